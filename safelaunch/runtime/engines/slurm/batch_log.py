"""The log of the batch script, in the folder of the run: what slurmstepd says of a step's end."""

from __future__ import annotations

import os
import re

NAME = "slurm.log"
_TAIL = 1 << 16  # bytes from its end that are read
# slurmstepd of 20.11 to 25.11: where it polls for memory itself, and for the kernel's killer
_MEMORY = re.compile(rb"xceeded (?:job |step )?memory limit|oom[-_]kill event", re.IGNORECASE)


def path(folder: str) -> str:
    """Return the path of the log of a run's folder."""
    return os.path.join(folder, NAME)


def tells_of_memory(folder: str) -> bool:
    """Whether a step was killed for memory, which no state of Slurm says without cgroups."""
    try:
        with open(path(folder), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return _MEMORY.search(file.read()) is not None
    except OSError:
        return False
