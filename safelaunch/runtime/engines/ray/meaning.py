"""What a job of Ray and the run's own record together mean: the state that is shown.

The run's own end counts wherever there is one that Ray did not bring about. The driver's exit code
only supports it: a job that succeeded for Ray without an end of ours is lost, never succeeded.
"""

from __future__ import annotations

from safelaunch.runtime.engines import exit_codes
from safelaunch.runtime.engines.meaning import Meaning, failure_class, is_by_signal
from safelaunch.runtime.engines.ray import jobs
from safelaunch.runtime.plain_text import clipped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.runtime.engines.ray.jobs import RayJob
    from safelaunch.runtime.records import Status

LOG = "ray.log"  # in the folder of a run: what driver and nodes print before their supervisors do
# seconds after the end of a job in which its supervisors end their ranks, and a shared file system
# may still show what they have recorded (nfs(5), acregmax: 60 s)
SETTLING = 90.0

# what the run's own record says
SUCCEEDED, FAILED, STOPPED = "succeeded", "failed", "stopped"
TAKEN = "taken"  # stopped by a signal, not by our `stop`: the end of its actor is one
OPEN = "open"  # it has begun, and recorded no end
LOST = "lost"  # its supervisor is gone for certain
NONE = "none"  # nothing was recorded
OWN_ENDS = (SUCCEEDED, FAILED, STOPPED)
NO_END = (OPEN, LOST, NONE)
OWN = "own"  # as a state: the run's own
# what Ray says, beyond the words of a state
FORGOTTEN, SILENT, NEW_WORD = "(forgotten)", "(silent)", "(new word)"
ENDING = "(ending)"  # it has ended within SETTLING
SUPPORTING = "(supporting)"  # its driver ended with the code of a stop
_LOG = f"read {LOG} in the folder of the run"
# lines of Ray's own in the log of a job (ray/dashboard/modules/job: job_manager, job_supervisor)
_OWN_LINES = ("Runtime env is setting up", "Running entrypoint for job")

# what Ray says, what the run's own record says, the state that is shown, its reason, the failure
# class, what to do; the first row that fits
TABLE: tuple[tuple[tuple[str, ...], tuple[str, ...], str, str, str, str], ...] = (
    ((SILENT, NEW_WORD), OWN_ENDS, OWN, "", "", ""),
    ((SILENT,), NO_END, "unknown", "{problem}", "", ""),
    ((NEW_WORD,), NO_END, "unknown", "Ray says {state}, a word that is not known", "", ""),
    ((FORGOTTEN,), OWN_ENDS, OWN, "", "", ""),
    (
        (FORGOTTEN,), NO_END, "lost",
        "Ray has no such job, as after a new start of its head, and no end was recorded", "", _LOG,
    ),
    ((jobs.PENDING, jobs.RUNNING), (*OWN_ENDS, LOST), OWN, "", "", ""),
    ((jobs.PENDING, jobs.RUNNING), (OPEN,), "running", "", "", ""),
    ((jobs.PENDING,), (NONE,), "pending", "{message}", "", ""),
    ((jobs.RUNNING,), (NONE,), "pending", "its driver asks Ray for nodes", "", ""),
    ((jobs.SUCCEEDED,), OWN_ENDS, OWN, "", "", ""),
    ((ENDING,), (OPEN,), "running", "Ray has ended its job: the ranks are ended", "", ""),
    (
        (jobs.SUCCEEDED,), NO_END, "lost",
        "Ray has its job as succeeded, and no end was recorded", "", _LOG,
    ),
    ((jobs.STOPPED,), (SUCCEEDED, FAILED), OWN, "", "", ""),
    (
        (jobs.STOPPED,), (TAKEN, *NO_END), STOPPED,
        "its job was stopped in Ray (`ray job stop`, or its dashboard)", "", "",
    ),
    ((jobs.STOPPED,), (STOPPED,), OWN, "", "", ""),
    ((jobs.FAILED,), (SUCCEEDED, FAILED), OWN, "", "", ""),
    ((SUPPORTING,), (TAKEN, STOPPED), OWN, "", "", ""),
    (
        (jobs.FAILED,), (TAKEN,), FAILED, "Ray ended its job: {message}", "scheduler",
        "resume from the last checkpoint",
    ),
    ((jobs.FAILED,), (STOPPED,), OWN, "", "", ""),
    (
        (jobs.FAILED,), (OPEN, LOST), "lost",
        "its job ended and recorded no end: {message}", "", _LOG,
    ),
    (
        (jobs.FAILED,), (NONE,), FAILED, "its job ended before the run began: {message}",
        "scheduler", _LOG,
    ),
)  # fmt: skip


def meaning(job: RayJob | None, status: Status | None, now: float) -> Meaning:
    """Return what a job (None: Ray has none) and the status of its run mean."""
    own = _own_records(status)
    _, _, state, reason, class_name, remedy = next(
        row
        for word in _engine_words(job, now)
        for row in TABLE
        if word in row[0] and any(record in row[1] for record in own)
    )
    if state == OWN and status is not None:
        return Meaning(
            state=status.state, reason=status.reason or "", class_name=failure_class(status)
        )
    values = _values(job or jobs.RayJob())
    return Meaning(
        state=state, reason=reason.format(**values), class_name=class_name or None, remedy=remedy
    )


def _own_records(status: Status | None) -> tuple[str, ...]:
    """Return what the run's own record says."""
    if status is None or status.state == "pending":
        return (NONE,)
    if status.state == STOPPED and is_by_signal(status):
        return (TAKEN, STOPPED)
    return (status.state,) if status.state in (*OWN_ENDS, LOST) else (OPEN,)


def _engine_words(job: RayJob | None, now: float) -> Iterable[str]:
    """Yield what Ray says, the most particular word first."""
    if job is None:
        yield FORGOTTEN
        return
    if not job.state:
        yield SILENT
        return
    if job.state in jobs.ENDS and job.ended_at is not None and now - job.ended_at < SETTLING:
        yield ENDING
    if job.state == jobs.FAILED and job.exit_code == exit_codes.STOPPED:
        yield SUPPORTING
    yield job.state
    yield NEW_WORD


def _values(job: RayJob) -> dict[str, str]:
    return {
        "problem": job.problem or "Ray says nothing about its job",
        "state": job.state,
        "message": _words(job.message) or f"Ray has it as {job.state}",
    }


def _words(message: str) -> str:
    """Return what matters of a message: our driver's last words, else its first line and last."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    lines = [line for line in lines if not any(words in line for words in _OWN_LINES)]
    own = [line.partition("safelaunch: ")[2] for line in lines if "safelaunch: " in line]
    if own:
        return clipped(own[-1])
    first = lines[0].partition(", last available logs")[0] if lines else ""
    return clipped("; ".join(dict.fromkeys(text for text in (first, *lines[1:][-1:]) if text)))
