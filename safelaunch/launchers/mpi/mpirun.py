"""`mpirun` of Open MPI, MPICH and Intel MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.launchers.mpi import starter
from safelaunch.launchers.mpi.options import OptionSyntax

if TYPE_CHECKING:
    from safelaunch.launchers import Command, CommandLine, JobKeys, Launch
    from safelaunch.model import Job

SUMMARY = "mpirun: a script, module or command as MPI ranks, its options in launcher_args"
TARGETS = ("script", "module", "command")
STARTS_RANKS = False  # each rank has OMPI_COMM_WORLD_RANK or PMI_RANK, not RANK
COUNT_REQUIRED = False
RUNS_PYTHON = False
PLACES_RANKS = True
SETS_THREADS = False  # Open MPI binds ranks to cores
PROGRAMS = ("mpirun",)

# `mpirun --help full` of Open MPI 4.1.4, docs.open-mpi.org/en/v5.0.x (mpirun(1)), and `-help` of
# MPICH 4.0.2, whose Hydra is Intel MPI's too. An option that they read in different ways is absent.
_ARITY = {
    **dict.fromkeys((
        "allow-run-as-root", "bind-to-core", "bind-to-socket", "bycore", "bynode", "byslot",
        "continuous", "disable-auto-cleanup", "disable-hostname-propagation", "disable-recovery",
        "disable-x", "display-allocation", "display-map", "display-topo", "do-not-launch",
        "do-not-resolve", "enable-recovery", "enable-x", "envall", "envnone", "genvall",
        "genvnone", "get-stack-traces", "index-argv-by-rank", "info", "leave-session-attached",
        "merge-stderr-to-stdout", "nolocal", "nooversubscribe", "noprefix", "novm",
        "oversubscribe", "pernode", "prepend-rank", "print-all-exitcodes", "q", "quiet",
        "report-bindings", "skip-launch-node", "tag-output", "timestamp-output",
        "use-hwthread-cpus", "v", "verbose",
    ), 0),
    **dict.fromkeys((
        "N", "bind-to", "c", "cpu-list", "cpu-set", "cpus-per-proc", "cpus-per-rank",
        "default-hostfile", "demux", "envlist", "errfile-pattern", "f", "genvlist",
        "gpus-per-proc", "H", "host", "hostfile", "hosts", "iface", "launch-agent", "launcher",
        "launcher-exec", "localhost", "machinefile", "map-by", "max-restarts", "membind", "n",
        "nameserver", "np", "npernode", "npersocket", "order-nodes", "outfile-pattern",
        "output-filename", "path", "ppn", "ppr", "prefix", "prepend-pattern", "rank-by",
        "rankfile", "rf", "rmk", "stdin", "timeout", "topolib", "tune", "usize", "wd", "wdir",
        "x",
    ), 1),
    **dict.fromkeys(("env", "genv", "gmca", "mca", "omca", "pmixmca", "prtemca"), 2),
}  # fmt: skip
MPIRUN = starter.Starter(
    # Hydra (MPICH, MVAPICH2): genv_fn of mpiexec/utils.c, "not of the form x=foo"
    OptionSyntax(_ARITY, assignments=frozenset({"env", "genv"})),
    total="-np",
    totals=frozenset({"np", "n", "c"}),
    per_node=frozenset({"N", "npernode", "npersocket", "pernode", "ppn", "ppr"}),
    places=frozenset({"wd", "wdir", "path"}),
    variables=frozenset({"x", "envlist", "genvlist"}),
)

ranks_per_node = starter.ranks_per_node


def command(launch: Launch) -> Command:
    """Return `mpirun OPTIONS PROGRAM ARGS`."""
    return starter.command(MPIRUN, launch)


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of `mpirun OPTIONS PROGRAM ARGS`."""
    return starter.job_keys(MPIRUN, line)


def environment(job: Job) -> tuple[str, ...]:
    """Return the settings of MPI, the allocation it starts in, what `-x` names."""
    own = ("OMPI_*", "PMIX_*", "PMI_*", "MV2_*", "MPI_*", "SLURM_*")
    return (*own, *starter.MEETING, *starter.variables(MPIRUN, job))
