"""ms-swift: `swift sft`, `rlhf`, `rollout`, ... Its topology is environment, not flags.

`swift pt|sft|rlhf|infer` start torchrun themselves if, and only if, NPROC_PER_NODE or NNODES is
set (swift/cli/main.py, 3.0 to 4.6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.launchers import Command, FixedPort, Launch, Rendezvous, common
from safelaunch.launchers.common import for_elastic, master_addr
from safelaunch.model import EnvVar, Job, Origin, Slot, Word, text

if TYPE_CHECKING:
    from collections.abc import Mapping

SUMMARY = "ms-swift: command: [sft], [rlhf], [rollout] ...; processes become NPROC_PER_NODE"
TARGETS = ("command",)
STARTS_RANKS = True
COUNT_REQUIRED = False
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("swift",)
MODULES = ("swift.cli.main",)
TIMEOUT = "`--ddp_timeout` (seconds)"
HUB_SWITCH = "USE_HF"  # else models come from ModelScope's hub, with a cache of its own


_TRAINING = ("pt", "sft", "rlhf")
_DISTRIBUTED = (*_TRAINING, "infer")
_SINGLE = ("deploy", "rollout", "eval", "export", "sample", "app", "web-ui", "merge-lora")
# ms-swift's own default is 18,000,000 s (208 days): a hang would never end. transformers' default
# for the same option is 1800 s (TrainingArguments.ddp_timeout).
_DDP_TIMEOUT = "1800"


def command(launch: Launch) -> Command:
    """Return `python -m swift.cli.main SUBCOMMAND ...` for one node."""
    job = launch.job
    sub = job.command[0] if job.command else ""
    names = (*_DISTRIBUTED, *_SINGLE)
    if sub not in names:
        raise ConfigError(
            f"swift has no subcommand `{sub}`",
            where=job.origin("command"),
            hint=did_you_mean(sub, names) or "known: " + ", ".join(names),
        )
    if job.launcher_args.words:
        raise ConfigError(
            "swift takes no `launcher_args`", where=job.origin("launcher_args"), hint="use `args:`"
        )
    topology = _topology(launch, sub)
    program = (*job.command, *job.args.words)
    words: list[Word] = [job.interpreter.word, "-m", "swift.cli.main"]
    words += for_elastic(program) if topology else program
    if sub in _TRAINING and not job.args.has("ddp_timeout"):
        words += ["--ddp_timeout", _DDP_TIMEOUT]
    return Command(
        argv=tuple(words),
        env=topology,
        required=_required(job, sub),
        single=None if topology else "child",  # swift.cli.main runs the subcommand's file
    )


def _required(job: Job, sub: str) -> tuple[EnvVar, ...]:
    """Return the variables that a single-process subcommand must not see, if the job sets them."""
    if sub not in _SINGLE or not any(var.name == "NPROC_PER_NODE" for var in job.env):
        return ()
    why = "with it each copy takes the same port"
    origin = Origin("launcher swift")
    return (EnvVar("NPROC_PER_NODE", None, origin, why=why, source="ms-swift issue 8398"),)


def _topology(launch: Launch, sub: str) -> tuple[EnvVar, ...]:
    job, origin = launch.job, Origin("launcher swift")
    stated = "processes" in job.origins or job.topology.nodes > 1
    if sub in _SINGLE:
        if job.topology.nodes > 1 or (stated and job.topology.processes != 1):
            key = "processes" if "processes" in job.origins else "hosts"
            raise ConfigError(
                f"`swift {sub}` is a single process",
                where=job.origin(key),
                hint=f"leave `{key}` out; with NPROC_PER_NODE its ports collide (ms-swift 8398)",
            )
        return ()
    if not stated:  # one process over all visible GPUs (device_map), swift's default
        return ()
    why = "swift starts torchrun itself when this is set"
    variables = [
        EnvVar("NPROC_PER_NODE", job.topology.count(), origin, why=why),
        EnvVar("MASTER_PORT", text(Slot.PORT), origin, why="rendezvous port chosen at the start"),
    ]
    if job.topology.nodes > 1:
        variables += [
            EnvVar("NNODES", str(job.topology.nodes), origin),
            EnvVar("NODE_RANK", str(launch.node_rank), origin),
            EnvVar("MASTER_ADDR", master_addr(job), origin),
        ]
    return tuple(variables)


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `swift SUBCOMMAND`, and the words after it."""
    return common.program_of_words(("swift", *job.command))


def imports(_job: Job) -> dict[str, str]:
    """Return ms-swift: the package `swift` is OpenStack's object store."""
    return {"swift": "ms-swift"}


def ranks_per_node(job: Job) -> int | None:
    """Return the processes that swift lets torchrun start; without a count it is one process."""
    variable = next((var for var in job.env if var.name == "NPROC_PER_NODE"), None)
    if variable is not None and variable.value is not None:
        value = variable.value
        return int(value) if isinstance(value, str) and value.isdecimal() else None
    is_stated = "processes" in job.origins or job.topology.nodes > 1
    return job.topology.processes if is_stated else 1


def binds_gpus(job: Job) -> bool:
    """Whether ranks take the GPU of their local rank: a single process spreads over all GPUs."""
    return "processes" in job.origins


def rendezvous(job: Job, env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return what MASTER_ADDR and MASTER_PORT fix: required where swift starts torchrun."""
    fixed = common.rendezvous(job, env)
    if "NPROC_PER_NODE" not in env:
        return fixed
    remedy = "take MASTER_PORT out of `env`: a free port is chosen at each start"
    ports = (FixedPort(port.port, port.setting, remedy) for port in fixed.ports)
    return Rendezvous(tuple(ports), fixed.addresses)
