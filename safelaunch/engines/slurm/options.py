"""Refuses options of sbatch that would undo what a plan sets itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.model import SbatchOption, Slurm

FORCED_OPTIONS = "slurm-options"  # the entry of `force:` that lets a job set them all the same
# option -> what it would undo; sbatch takes each of them as a beginning of the name too
_OWN = {
    "array": "a run is one job", "chdir": "the folder of the run", "comment": "the id of the run",
    "error": "the log of the run", "export": "what the batch script inherits",
    "export-file": "what the batch script inherits", "get-user-env": "its environment",
    "gpus-per-socket": "a task is a node", "gpus-per-task": "a task is a node",
    "help": "the submission", "input": "the standard input", "job-name": "the job's `name`",
    "kill-on-invalid-dep": "the submission", "nodes": "the job's `nodes`",
    "no-requeue": "`requeue:`", "ntasks": "one task a node", "ntasks-per-core": "one task a node",
    "ntasks-per-gpu": "one task a node", "ntasks-per-node": "one task a node",
    "ntasks-per-socket": "one task a node", "open-mode": "the log of the run",
    "output": "the log of the run", "parsable": "the submission", "requeue": "`requeue:`",
    "signal": "`signal:`", "test-only": "the submission", "usage": "the submission",
    "version": "the submission", "wait": "the submission", "wrap": "the batch script",
}  # fmt: skip
# option -> the key of the block that sets it
_KEYS = {
    "account": "account", "constraint": "constraint", "cpus-per-gpu": "cpus_per_gpu",
    "cpus-per-task": "cpus_per_task", "exclude": "exclude", "exclusive": "exclusive",
    "mem": "mem", "mem-per-cpu": "mem_per_cpu", "mem-per-gpu": "mem_per_gpu",
    "nodelist": "nodelist", "partition": "partition", "qos": "qos", "reservation": "reservation",
    "time": "time", "gres": "gres", "gpus-per-node": "gpus_per_node", "gpus": "gpus_per_node",
}  # fmt: skip
# sbatch(1) of Slurm 22.05: letters with a long name here, and those of switches without a value
_LETTERS = {
    "A": "account", "a": "array", "C": "constraint", "c": "cpus-per-task", "D": "chdir",
    "e": "error", "G": "gpus", "h": "help", "i": "input", "J": "job-name", "N": "nodes",
    "n": "ntasks", "o": "output", "p": "partition", "q": "qos", "t": "time", "V": "version",
    "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_SWITCHES = "HhkOQRsvVW"
# other options that begin as one of the above does, so that their whole names are meant
_OTHERS = frozenset((
    "acctg-freq", "batch", "bb", "bbf", "begin", "cluster-constraint", "clusters", "container",
    "contiguous", "core-spec", "cores-per-socket", "cpu-freq", "deadline", "delay-boot",
    "dependency", "distribution", "extra-node-info", "gid", "gpu-bind", "gpu-freq",
    "gres-flags", "hint", "hold", "ignore-pbs", "licenses", "mail-type", "mail-user", "mcs-label",
    "mem-bind", "mincpus", "network", "nice", "no-kill", "nodefile", "overcommit",
    "oversubscribe", "power", "prefer", "priority", "profile", "propagate", "quiet", "reboot",
    "sockets-per-node", "spread-job", "switches", "thread-spec", "threads-per-core", "time-min",
    "tmp", "tres-per-task", "uid", "use-min-nodes", "verbose", "wait-all-nodes", "wckey",
))  # fmt: skip
_MEMORY = ("mem", "mem_per_gpu", "mem_per_cpu")


def option_names(option: SbatchOption) -> Iterator[str]:
    """Yield the long names that an option of sbatch may be: `-Ho x`, `--outp=x`."""
    word = option.words[0]
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        whole = name in _OTHERS or name in _OWN or name in _KEYS
        names = (*_OWN, *_KEYS)
        yield from (n for n in names if n == name or (not whole and n.startswith(name)))
        return
    for letter in word[1:]:
        if letter in _LETTERS:
            yield _LETTERS[letter]
        if letter not in _SWITCHES:
            return


def has_dependency(block: Slurm) -> bool:
    """Whether the options make the job wait for another one."""
    return any(map(is_dependency, block.options))


def is_dependency(option: SbatchOption) -> bool:
    """Whether an option makes the job wait for another one."""
    return re.match(r"--dep|-[HhkOQRsvVW]*d", option.words[0]) is not None


def check_options(block: Slurm, *, forced: bool) -> None:
    """Refuse options that the plan itself sets, and those that say a key again.

    Raises ConfigError.
    """
    present = {key for key in block.origins if getattr(block, key) not in (None, False, ())}
    for option in block.options:
        shown = option.words[0].partition("=")[0]
        for name in () if forced else option_names(option):
            if name in _OWN:
                raise ConfigError(
                    f"`{shown}` among the options of sbatch: the plan sets `--{name}` itself",
                    where=option.origin,
                    hint=f"it would change {_OWN[name]}; to insist: force: [{FORCED_OPTIONS}]",
                )
        for name in option_names(option):
            key = _KEYS.get(name)
            twins = _MEMORY if key in _MEMORY else (key,)
            twin = next((twin for twin in twins if twin in present), None)
            if twin is not None:
                raise ConfigError(
                    f"`{shown}` among the options of sbatch, and `{twin}`",
                    where=option.origin,
                    hint=f"`{twin}` is set at {block.origins[twin]}; give one",
                )
