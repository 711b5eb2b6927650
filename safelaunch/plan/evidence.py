"""Which variables let a hang leave evidence: torch's flight recorder, and a log of NCCL's start.

They are no part of the environment of the launcher. Each rank sets them for itself
(runtime/site/safelaunch_evidence.py), where neither the job nor its environment has one of the same
group: half of a group would send what the user asked for to another place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.model import BUILT_IN, EnvVar, Slot, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from safelaunch.launchers import Command
    from safelaunch.model import Job

ACCELERATORS = ("cuda", "rocm")  # whose collectives are NCCL's, or RCCL's, which reads its names
_WITH_RANKS = ("shell", "mpi")  # what a script or mpirun starts may be ranks
_FOLDER = "/nccl/attempt-<n>/"
_FLIGHT_COST = (
    "3 to 5 us of CPU time for each collective and 4 MB in a rank (measured, torch 2.13, gloo); an "
    "inference server lost 4 to 9 % in one report (intel/torch-xpu-ops PR 5413); a rank that has "
    "timed out waits a minute for the dumps; torch 2.8 to 2.10 warn that a name is deprecated"
)
_FLIGHT_SOURCE = (
    "FlightRecorder.hpp and ProcessGroupNCCL.hpp of the wheels of torch 2.6 to 2.13, on by default "
    "since 2.11; ProcessGroupNCCL.cpp, Watchdog::runLoop; pytorch tutorials, Flight Recorder"
)
_NCCL_COST = (
    "a file of some 100 lines for each communicator, written at its start; before NCCL 2.22 a line "
    "`NCCL version` for each in the log"
)
_NCCL_SOURCE = "NCCL 2.30.7, src/debug.cc, src/init.cc, src/transport"


def _group(
    condition: str, cost: str, source: str, rows: Iterable[tuple[str, str | tuple[str, str], str]]
) -> tuple[EnvVar, ...]:
    """Return variables from (name, value, why); a value in parts is a path in the run directory."""
    return tuple(
        EnvVar(
            name,
            value if isinstance(value, str) else text(Slot.RUN_DIR, *value),
            BUILT_IN,
            why=why,
            cost=cost,
            source=source,
            computed=condition,
        )
        for name, value, why in rows
    )


GROUPS: Mapping[str, tuple[EnvVar, ...]] = {
    "flight": _group(
        "each rank with torch 2.2 or newer, under the names of its version",
        _FLIGHT_COST,
        _FLIGHT_SOURCE,
        (
            ("TORCH_FR_BUFFER_SIZE", "2000", "a timeout shows which rank was in which collective"),
            ("TORCH_FR_DUMP_TEMP_FILE", (_FOLDER, "flight-"), "a file for each rank"),
            ("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "torch before 2.11 needs it"),
            ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", (_FOLDER, "flight-"), "a hang shows it too"),
        ),
    ),
    "nccl": _group(
        "each rank that has no NCCL_DEBUG",
        _NCCL_COST,
        _NCCL_SOURCE,
        (
            ("NCCL_DEBUG", "INFO", "versions, transports and warnings of NCCL are recorded"),
            ("NCCL_DEBUG_SUBSYS", "INIT,ENV", "no line for each collective"),
            ("NCCL_DEBUG_FILE", (_FOLDER, "rank-<r>.%p"), "the log stays readable"),
        ),
    ),
}
# further names by which a job decides itself about a group
_ALIASES = {
    "flight": (
        *("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        "TORCH_FR_DUMP_ON_TIMEOUT",
    ),
    "nccl": (),
}


def variables(
    job: Job, command: Command, kind: str, env: Mapping[str, EnvVar], *, starts_ranks: bool
) -> dict[str, tuple[EnvVar, ...]]:
    """Return the groups that the ranks of a node arm; `kind` is its accelerator, `env` the plan's.

    None without `capture`, whose hooks do it, or where one process is all that is started.
    """
    if not job.supervision.capture or kind not in ACCELERATORS:
        return {}
    has_ranks = starts_ranks and job.topology.world_size != 1
    if not has_ranks and command.single not in _WITH_RANKS:
        return {}
    return {
        group: rows
        for group, rows in GROUPS.items()
        if not env.keys() & {*(row.name for row in rows), *_ALIASES[group]}
    }
