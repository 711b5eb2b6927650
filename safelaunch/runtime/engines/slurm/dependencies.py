"""The jobs that another job waits for: `--dependency` with the id that Slurm has for each run."""

from __future__ import annotations

import os
import re

from safelaunch.runtime.engines.errors import SubmitError
from safelaunch.runtime.records import EngineJob

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_JOB = re.compile(r"<job of ([\w.-]+)>")


def job_of(run_id: str) -> str:
    """Return what stands for the job of a run until it is submitted; a dry-run shows it."""
    return f"<job of {run_id}>"


def fill(argv: Sequence[str], runs: str) -> list[str]:
    """Return the line that submits, with the ids of the jobs of the runs in a folder.

    Raises SubmitError for a run that has no job there.
    """

    def number(match: re.Match[str]) -> str:
        job = EngineJob.read(os.path.join(runs, match[1], "node-0"))
        if job is None or job.name != "slurm" or not job.job:
            raise SubmitError(f"{match[1]}, after which it is to start, is no job of this cluster")
        return job.job

    return [_JOB.sub(number, word) if word.startswith("--dependency=") else word for word in argv]
