"""Slurm's srun: as a job of its own, or as a step of the allocation that SLURM_* names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.launchers.mpi import starter
from safelaunch.launchers.mpi.options import OptionSyntax

if TYPE_CHECKING:
    from safelaunch.launchers import Command, CommandLine, JobKeys, Launch
    from safelaunch.model import Job

SUMMARY = "Slurm's srun: a script, module or command as tasks, its options in launcher_args"
TARGETS = ("script", "module", "command")
STARTS_RANKS = False  # each task has SLURM_PROCID, not RANK
COUNT_REQUIRED = False
RUNS_PYTHON = False
PLACES_RANKS = True
SETS_THREADS = False  # Slurm binds tasks to cores, on machines that are not seen from here
PROGRAMS = ("srun",)

# src/common/slurm_opt.c of Slurm 26.05.3: required_argument, no_argument, optional_argument
_VALUED = (
    "accel-bind", "account", "acctg-freq", "autocomplete", "bb", "bbf", "bcast-exclude", "begin",
    "chdir", "cluster", "cluster-constraint", "clusters", "comment", "constraint", "container",
    "container-id", "container-type", "context", "core-spec", "cores-per-socket", "cpu-bind",
    "cpu-freq", "cpu_bind", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot",
    "dependency", "distribution", "epilog", "error", "exclude", "export", "extra",
    "extra-node-info", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket",
    "gpus-per-task", "gres", "gres-flags", "het-group", "hint", "ignore-signals", "input",
    "job-name", "jobid", "licenses", "mail-type", "mail-user", "mcs-label", "mem", "mem-bind",
    "mem-per-cpu", "mem-per-gpu", "mem-update", "mincpus", "mpi", "msg-timeout", "network",
    "nodefile", "nodelist", "nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu",
    "ntasks-per-node", "ntasks-per-socket", "ntasks-per-tres", "open-mode", "output",
    "pack-group", "partition", "prefer", "priority", "profile", "prolog", "qos", "relative",
    "reservation", "resources", "segment", "signal", "slurmd-debug", "sockets-per-node",
    "switches", "task-epilog", "task-prolog", "tasks-per-node", "thread-spec", "threads",
    "threads-per-core", "time", "time-min", "tmp", "treewidth", "tres-bind", "tres-per-task",
    "wait", "wckey",
)  # fmt: skip
_SWITCHES = (
    "async", "consolidate-segments", "contiguous", "debugger-test", "disable-status", "exact",
    "help", "hold", "interactive", "label", "multi-prog", "no-allocate", "overcommit",
    "oversubscribe", "parsable", "preserve-env", "quiet", "quit-on-interrupt", "reboot",
    "spread-job", "spread-segments", "stepmgr", "test-only", "unbuffered", "usage",
    "use-min-nodes", "verbose", "version", "wait-for-children", "whole",
)  # fmt: skip
_OPTIONAL = (
    "bcast", "compress", "exclusive", "external-launcher", "immediate", "kill-on-bad-exit", "nice",
    "no-kill", "oom-kill-step", "overlap", "propagate", "pty", "resv-ports", "send-libs", "x11",
)  # fmt: skip
# args.c of the plug-in pyxis (github.com/NVIDIA/pyxis, 0619349), on many clusters
_PYXIS = {
    **dict.fromkeys((
        "container-env", "container-image", "container-mounts", "container-name",
        "container-save", "container-workdir",
    ), 1),
    **dict.fromkeys((
        "container-entrypoint", "container-entrypoint-log", "container-mount-home",
        "container-readonly", "container-remap-root", "container-writable",
        "no-container-entrypoint", "no-container-mount-home", "no-container-remap-root",
    ), 0),
}  # fmt: skip
_SHORT = {
    "A": "account", "b": "begin", "B": "extra-node-info", "c": "cpus-per-task", "C": "constraint",
    "d": "dependency", "D": "chdir", "e": "error", "E": "preserve-env", "F": "nodefile",
    "G": "gpus", "h": "help", "H": "hold", "i": "input", "I": "immediate", "J": "job-name",
    "k": "no-kill", "K": "kill-on-bad-exit", "l": "label", "L": "licenses", "m": "distribution",
    "M": "clusters", "n": "ntasks", "N": "nodes", "o": "output", "O": "overcommit",
    "p": "partition", "q": "qos", "Q": "quiet", "r": "relative", "s": "oversubscribe",
    "S": "core-spec", "t": "time", "T": "threads", "u": "unbuffered", "v": "verbose",
    "V": "version", "w": "nodelist", "W": "wait", "x": "exclude", "X": "disable-status",
    "Z": "no-allocate",
}  # fmt: skip
_SRUN = starter.Starter(
    OptionSyntax(
        dict.fromkeys(_VALUED, 1) | dict.fromkeys(_SWITCHES, 0) | _PYXIS,
        frozenset(_OPTIONAL),
        _SHORT,
    ),
    total="--ntasks",
    totals=frozenset({"ntasks"}),
    per_node=frozenset({"ntasks-per-node", "tasks-per-node"}),
    nodes=frozenset({"nodes"}),
    # in a container, pyxis' or Slurm's own, the program is a file of the image
    places=frozenset(
        (
            "chdir",
            "container",
            "container-id",
            "container-image",
            "container-name",
            "container-workdir",
        )
    ),
    others=frozenset({"multi-prog", "het-group", "pack-group"}),
    variables=frozenset({"export"}),
)

ranks_per_node = starter.ranks_per_node


def command(launch: Launch) -> Command:
    """Return `srun OPTIONS PROGRAM ARGS`."""
    return starter.command(_SRUN, launch)


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of `srun OPTIONS PROGRAM ARGS`."""
    return starter.job_keys(_SRUN, line)


def environment(job: Job) -> tuple[str, ...]:
    """Return the variables of the allocation, of `--export`, and where ranks meet."""
    names = (name for name in starter.variables(_SRUN, job) if name not in ("ALL", "NONE", "NIL"))
    return ("SLURM_*", "PMI_*", "PMIX_*", *starter.MEETING, *names)
