"""Flags of accelerate or torchrun that a framework's own command line hands on to them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.launchers import FixedPort, Rendezvous
from safelaunch.launchers.common import port_number, process_number
from safelaunch.model import Slot, Word, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.launchers import CommandLine, Launch
    from safelaunch.model import Job

ACCELERATE, TORCHRUN = "accelerate", "torchrun"
_COUNT = {ACCELERATE: "num_processes", TORCHRUN: "nproc_per_node"}
_PORT = {ACCELERATE: "main_process_port", TORCHRUN: "master_port"}
# a line with another value runs on several machines, and says where this one stands among them
_NODES = {
    ACCELERATE: {"num_machines": "1", "machine_rank": "0"},
    TORCHRUN: {"nnodes": "1", "node_rank": "0"},
}
# each has a rendezvous of its own
_RENDEZVOUS = frozenset(("rdzv_endpoint", "rdzv_backend", "standalone"))
# each chooses the kind of start itself; together with --multi_gpu accelerate refuses
_KINDS = frozenset(
    ("config_file", "accelerate_config", "use_deepspeed", "use_fsdp", "use_megatron_lm", "tpu",
     "cpu", "multi_gpu")
)  # fmt: skip


class CountFlags(NamedTuple):
    """The processes that flags state, and the words without those flags."""

    processes: str | None
    words: tuple[str, ...]


def flags(words: Sequence[str]) -> dict[str, str]:
    """Return {flag: its value} of words: the last one counts, a switch is empty."""
    values: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            name = name.replace("-", "_")
            values[name] = value
        elif name and not values[name]:
            values[name] = word
    return values


def split_count(
    words: tuple[str, ...], launcher: str, defaults: Mapping[str, str] = MappingProxyType({})
) -> CountFlags | None:
    """Return the processes of one machine; None for several machines, and for what is no count.

    `defaults` are settings of files, for what the words leave out.
    """
    stated = {**defaults, **flags(words)}
    if any(stated.get(name, own) != own for name, own in _NODES[launcher].items()):
        return None
    rest: list[str] = []
    count, is_value = None, False
    for word in words:
        name, equals, value = word.partition("=")
        if is_value:
            count, is_value = word, False
        elif name.startswith("--") and name[2:].replace("-", "_") == _COUNT[launcher]:
            count, is_value = (value if equals else count), not equals
        else:
            rest.append(word)
    count = defaults.get(_COUNT[launcher]) if count is None else count
    number = process_number(count)
    if is_value or (count is not None and number is None):
        return None
    return CountFlags(number, tuple(rest))


def settings(line: CommandLine, words: Sequence[str], own: str = "") -> dict[str, str]:
    """Return the settings that count where a line's words leave them out.

    Those of accelerate's config file, by the flag that names it or else the user's own one, and
    over them of the framework's file that the flag `own` names, whose keys are flags.
    """
    stated = flags(words)
    file = stated.get("config_file") or stated.get("accelerate_config") or None
    values = dict(line.settings(file))
    values.pop(_COUNT[ACCELERATE], None)  # what they mean there depends on its other keys
    return {**values, **(line.settings(stated[own]) if stated.get(own) else {})}


def added(launch: Launch, launcher: str, words: Sequence[str]) -> tuple[Word, ...]:
    """Return the flags that the plan adds to those of the job: the count, and a free port.

    Without `processes:` accelerate counts the visible GPUs, unless a file of settings says
    otherwise: that of TRL's `--config`, or the user's own default of accelerate.
    """
    job, stated = launch.job, flags(words)
    if job.topology.nodes > 1:
        raise ConfigError(
            f"`{job.launcher}` reaches one machine",
            where=job.origin("hosts" if "hosts" in job.origins else "nodes"),
            hint="`launcher: accelerate` or `torchrun` with `module:` runs on several",
        )
    for name in (_COUNT[launcher], *_NODES[launcher]):
        if name in stated and stated[name] != _NODES[launcher].get(name):
            place = "launcher_args" if job.launcher_args.has(name) else "args"
            raise ConfigError(
                f"`--{name}` is not for `{place}`: a key of the job sets it",
                where=job.origin(place),
                hint="use `processes:`" if name == _COUNT[launcher] else "use `hosts:`",
            )
    extra: list[Word] = []
    if launcher == TORCHRUN or "processes" in job.origins:
        extra += [f"--{_COUNT[launcher]}", job.topology.count()]
    if launcher == ACCELERATE and launch.accelerator == "cpu" and not _KINDS & stated.keys():
        # without a GPU accelerate starts a single process, whatever the count (commands/launch.py)
        extra += ["--multi_gpu"] * ((job.topology.processes or 1) > 1)
    if job.topology.several and not {_PORT[launcher], *_RENDEZVOUS} & stated.keys():
        extra += [f"--{_PORT[launcher]}", text(Slot.PORT)]
    return tuple(extra)


def single(job: Job, words: Sequence[str]) -> str | None:
    """Return how accelerate starts a single process: as a child, unless a kind needs torchrun.

    Of one GPU the count is not stated; ranks of several have RANK, and are no single process.
    """
    may_be_single = job.topology.processes in (1, None)
    return "child" if may_be_single and not _KINDS & flags(words).keys() else None


def rendezvous(launcher: str, words: Sequence[str], key: str) -> Rendezvous:
    """Return the port that a flag among the words fixes; `key` is the job's key of the words."""
    flag = _PORT[launcher]
    port = port_number(flags(words).get(flag))
    if port is None:
        return Rendezvous()
    remedy = f"take `{flag}` out of `{key}`: a free port is chosen at each start"
    return Rendezvous((FixedPort(port, f"`{key}: {{{flag}: {port}}}`", remedy),))
