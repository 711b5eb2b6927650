"""The jobs that a Ray lists."""

from __future__ import annotations

from safelaunch.runtime.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# docs.ray.io, "Ray Jobs REST API": the words of a job's status
PENDING, RUNNING = "PENDING", "RUNNING"
SUCCEEDED, FAILED, STOPPED = "SUCCEEDED", "FAILED", "STOPPED"
ENDS = (SUCCEEDED, FAILED, STOPPED)
MARK = "safelaunch"  # key of a job's metadata, with the id of its run
MOST_WORDS = 4000  # characters of a message that are kept, from its end: the driver's last lines


class RayJob(Record):
    """A job as Ray lists it."""

    id: str = ""  # its submission id, which is that of the run
    state: str = ""  # PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED; empty: Ray said nothing
    message: str = ""  # in Ray's words; of a driver that failed also its last lines
    exit_code: int | None = None  # of the driver
    ended_at: float | None = None  # seconds since 1970
    problem: str = ""  # why nothing is known of it


def parse(entry: Any) -> RayJob | None:
    """Return a job of Ray's list; None for what is none of ours."""
    metadata = entry.get("metadata") if isinstance(entry, dict) else None
    name = metadata.get(MARK) if isinstance(metadata, dict) else None
    if not isinstance(name, str) or entry.get("submission_id") != name:
        return None
    job = RayJob.from_json({"id": name, "state": entry.get("status")})
    message, code, end = (entry.get(key) for key in ("message", "driver_exit_code", "end_time"))
    job.message = message[-MOST_WORDS:] if isinstance(message, str) else ""
    if isinstance(code, int):
        job.exit_code = code
    if isinstance(end, (int, float)) and end:
        job.ended_at = end / 1000  # Ray's are milliseconds
    return job
