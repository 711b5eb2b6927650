"""Horovod's launcher: it starts ranks itself (Gloo), or through mpirun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.launchers.mpi import mpirun, starter
from safelaunch.launchers.mpi.options import OptionSyntax

if TYPE_CHECKING:
    from safelaunch.launchers import Command, CommandLine, JobKeys, Launch

SUMMARY = "Horovod's horovodrun: a script, module or command as ranks"
TARGETS = ("script", "module", "command")
STARTS_RANKS = False  # each rank has HOROVOD_RANK or that of MPI, not RANK
COUNT_REQUIRED = False
RUNS_PYTHON = False
PLACES_RANKS = True
SETS_THREADS = False
PROGRAMS = ("horovodrun",)

# The parser of horovod 0.28.1 (horovod/runner/launch.py).
ARITY = {
    **dict.fromkeys((
        "H", "autotune-bayes-opt-max-samples", "autotune-gaussian-process-noise",
        "autotune-log-file", "autotune-steps-per-sample", "autotune-warmup-samples",
        "binding-args", "cache-capacity", "config-file", "cycle-time-ms", "elastic-timeout",
        "fusion-threshold-mb", "gloo-timeout-seconds", "host-discovery-script", "hostfile",
        "hosts", "i", "log-level", "max-np", "max-num-proc", "min-np", "min-num-proc",
        "mpi-args", "network-interface", "network-interfaces", "np", "num-nccl-streams",
        "num-proc", "output-filename", "p", "reset-limit", "slots-per-host",
        "ssh-identity-file", "ssh-port", "stall-check-shutdown-time-seconds",
        "stall-check-warning-time-seconds", "start-timeout", "thread-affinity",
        "timeline-filename",
    ), 1),
    **dict.fromkeys((
        "autotune", "cb", "check-build", "disable-cache", "gloo", "hierarchical-allgather",
        "hierarchical-allreduce", "jsrun", "log-hide-timestamp", "log-with-timestamp",
        "log-without-timestamp", "mpi", "mpi-threads-disable", "no-autotune",
        "no-hierarchical-allgather", "no-hierarchical-allreduce", "no-log-hide-timestamp",
        "no-mpi-threads-disable", "no-stall-check", "no-timeline-mark-cycles",
        "no-torus-allreduce", "prefix-output-with-timestamp", "prefix-timestamp", "stall-check",
        "tcp", "timeline-mark-cycles", "torus-allreduce", "v", "verbose", "version",
    ), 0),
    "blacklist-cooldown-range": 2,
}  # fmt: skip
_HOROVODRUN = starter.Starter(
    OptionSyntax(ARITY), total="-np", totals=frozenset({"np", "num-proc"})
)

environment = mpirun.environment
ranks_per_node = starter.ranks_per_node


def command(launch: Launch) -> Command:
    """Return `horovodrun OPTIONS PROGRAM ARGS`."""
    return starter.command(_HOROVODRUN, launch)


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of `horovodrun OPTIONS PROGRAM ARGS`."""
    return starter.job_keys(_HOROVODRUN, line)
