"""`mpiexec`: another name of `mpirun`, in Open MPI, MPICH and Intel MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.launchers.mpi import mpirun, starter

if TYPE_CHECKING:
    from safelaunch.launchers import Command, CommandLine, JobKeys, Launch

SUMMARY = "mpiexec: as mpirun"
TARGETS = mpirun.TARGETS
STARTS_RANKS = mpirun.STARTS_RANKS
COUNT_REQUIRED = mpirun.COUNT_REQUIRED
RUNS_PYTHON = mpirun.RUNS_PYTHON
PLACES_RANKS = mpirun.PLACES_RANKS
SETS_THREADS = mpirun.SETS_THREADS
PROGRAMS = ("mpiexec",)

_MPIEXEC = mpirun.MPIRUN._replace(total="-n")  # the spelling of the MPI standard

environment = mpirun.environment
ranks_per_node = starter.ranks_per_node


def command(launch: Launch) -> Command:
    """Return `mpiexec OPTIONS PROGRAM ARGS`."""
    return starter.command(_MPIEXEC, launch)


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of `mpiexec OPTIONS PROGRAM ARGS`."""
    return starter.job_keys(_MPIEXEC, line)
