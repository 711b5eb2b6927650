"""What a job of Slurm and the run's own record together mean: the state that is shown.

The run's own end counts wherever there is one that Slurm did not bring about. Slurm tells of what
no supervisor can: the time before it, and what took it away. A job that Slurm calls completed
without an end of ours is lost, never succeeded.
"""

from __future__ import annotations

import os
import time

from safelaunch.runtime import units
from safelaunch.runtime.engines.meaning import Meaning, failure_class, is_by_signal
from safelaunch.runtime.engines.slurm import batch_log, jobs, reasons

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.runtime.engines.slurm.jobs import SlurmJob
    from safelaunch.runtime.records import Status

START_LIMIT = 60.0  # seconds from a job's start to the first report of a supervisor
# Slurm lets a requeued job wait so long: the lifetime of a credential, 120 s, and a second
REQUEUE_DELAY = 121.0
SKEW = 60.0  # seconds by which the clocks of controller and nodes may differ
OUTPUT_SIGNAL = 53  # how Slurm ends a batch script whose output or folder it cannot open
OOM_SIGNAL = 125  # how it ends a step that the kernel has killed for memory

# what the run's own record says
SUCCEEDED, FAILED, STOPPED = "succeeded", "failed", "stopped"
KILLED = "killed"  # failed, by a SIGKILL of unknown origin
TAKEN = "taken"  # stopped by a signal, not by our `stop`: Slurm may queue it again
OPEN = "open"  # it has begun, and recorded no end
LOST = "lost"  # its supervisor is gone for certain
NONE = "none"  # nothing was recorded
ANY = (SUCCEEDED, FAILED, STOPPED, TAKEN, OPEN, LOST, NONE)
NO_END = (OPEN, LOST, NONE)
OWN = "own"  # as a state: the run's own
# what Slurm says, beyond the words of a state
FORGOTTEN, SILENT, NEW_WORD = "(forgotten)", "(silent)", "(new word)"
AGAIN = "(again)"  # pending, after a first life
LATE = "(late)"  # running for START_LIMIT
NO_OUTPUT = "(no output)"
OOM = "(memory)"  # in any of its steps

_HOLDS = (jobs.REQUEUE_HOLD, jobs.SPECIAL_EXIT)
_WAITING = (jobs.PENDING, jobs.REQUEUED, "REQUEUE_FED", "RESV_DEL_HOLD", "EXPEDITING", *_HOLDS)
_GOING = (jobs.RUNNING, "RESIZING", "SIGNALING")
_PREPARING = (jobs.CONFIGURING, "POWER_UP_NODE")
_ENDING = (jobs.COMPLETING, "STAGE_OUT", "UPDATE_DB")
_PAUSED = (jobs.SUSPENDED, "STOPPED")
_NOT_STARTED = (jobs.BOOT_FAIL, jobs.DEADLINE, jobs.LAUNCH_FAILED, "RECONFIG_FAIL")
_LOG = f"read {batch_log.NAME} in the folder of the run"

# what Slurm says, what the run's own record says, the state that is shown, its reason, the failure
# class, what to do; the first row that fits. docs: https://slurm.schedmd.com/job_state_codes.html
TABLE: tuple[tuple[tuple[str, ...], tuple[str, ...], str, str, str, str], ...] = (
    ((SILENT, NEW_WORD), (SUCCEEDED, FAILED, STOPPED), OWN, "", "", ""),
    ((SILENT,), NO_END, "unknown", "{problem}", "", ""),
    ((NEW_WORD,), NO_END, "unknown", "Slurm says {state}, a word that is not known", "", ""),
    ((FORGOTTEN,), (SUCCEEDED, FAILED, STOPPED), OWN, "", "", ""),
    (
        (FORGOTTEN,), NO_END, "lost",
        "Slurm has forgotten its job, as it does after MinJobAge, without a recorded end", "", _LOG,
    ),
    ((AGAIN,), ANY, "pending", "queued again{restarts}: {waits}", "", "{remedy}"),
    (
        (*_WAITING, *_PREPARING, *_PAUSED, *_GOING, *_ENDING), (TAKEN,), "running",
        "ended by a signal: Slurm has not said yet whether it is queued again", "", "",
    ),
    (_WAITING, (SUCCEEDED, FAILED, STOPPED, LOST), OWN, "", "", ""),
    (_WAITING, (OPEN,), "running", "", "", ""),  # it has just started: Slurm's answer is older
    (_WAITING, (NONE,), "pending", "{waits}", "", "{remedy}"),
    (_PREPARING, (SUCCEEDED, FAILED, STOPPED, OPEN, LOST), OWN, "", "", ""),
    (_PREPARING, (NONE,), "pending", "its nodes are prepared: {nodes}", "", ""),
    (_PAUSED, (SUCCEEDED, FAILED, STOPPED, LOST), OWN, "", "", ""),
    (_PAUSED, (OPEN, NONE), "running", "suspended by Slurm", "", "`scontrol resume {id}`"),
    ((LATE,), (NONE,), "pending",
        "its job runs on {nodes} for {age}, and no supervisor has reported", "",
        f"{_LOG}: is the run's folder there, and a Python, on the nodes?",
    ),
    (_GOING, (SUCCEEDED, FAILED, STOPPED, LOST), OWN, "", "", ""),
    (_GOING, (OPEN,), "running", "", "", ""),
    (_GOING, (NONE,), "pending", "its nodes are prepared: {nodes}", "", ""),
    (_ENDING, (SUCCEEDED, FAILED, STOPPED, LOST), OWN, "", "", ""),
    (_ENDING, (OPEN, NONE), "running", "Slurm is ending its job", "", ""),
    (
        (OOM,), (KILLED, *NO_END), FAILED, "out of memory on {nodes}: {end}", "host-oom",
        "ask for more memory (`mem` in `slurm:`), or use less",
    ),
    ((OOM,), (SUCCEEDED, FAILED, STOPPED), OWN, "", "", ""),
    ((jobs.COMPLETED,), (SUCCEEDED, FAILED, STOPPED), OWN, "", "", ""),
    (
        (jobs.COMPLETED,), NO_END, "lost",
        "Slurm has its job as completed, and no end was recorded", "", _LOG,
    ),
    ((NO_OUTPUT,), (SUCCEEDED, FAILED, STOPPED), OWN, "", "", ""),
    (
        (NO_OUTPUT,), NO_END, FAILED,
        "Slurm could not open the output or the folder of the job on {nodes}: there is no log",
        "scheduler", "make sure that the folder exists on the nodes, then start it again",
    ),
    ((jobs.FAILED,), (SUCCEEDED, FAILED, STOPPED), OWN, "", "", ""),
    ((jobs.FAILED,), (OPEN, LOST), "lost", "its job ended and recorded no end: {end}", "", _LOG),
    (
        (jobs.FAILED,), (NONE,), FAILED, "its job ended before the run began: {end}", "scheduler",
        _LOG,
    ),
    ((jobs.TIMEOUT,), (SUCCEEDED, FAILED), OWN, "", "", ""),
    (
        (jobs.TIMEOUT,), (STOPPED, *NO_END), FAILED, "the time limit of its job was reached{limit}",
        "time-limit", "ask for more time (`time` in `slurm:`), or resume from the last checkpoint",
    ),
    ((jobs.PREEMPTED,), (SUCCEEDED, FAILED), OWN, "", "", ""),
    (
        (jobs.PREEMPTED,), (STOPPED, *NO_END), STOPPED,
        "its job was preempted by another one, and is not queued again", "",
        "resume it, or let Slurm queue it again (`requeue` in `slurm:`)",
    ),
    ((jobs.NODE_FAIL,), (SUCCEEDED, FAILED), OWN, "", "", ""),
    (
        (jobs.NODE_FAIL,), (STOPPED, *NO_END), FAILED, "a node failed, one of {nodes}", "peer-lost",
        "`sinfo -R` shows which; resume from the last checkpoint, without it",
    ),
    (_NOT_STARTED, (SUCCEEDED, FAILED), OWN, "", "", ""),
    (
        _NOT_STARTED, (STOPPED, *NO_END), FAILED, "Slurm could not run its job: {end}", "scheduler",
        "",
    ),
    ((jobs.CANCELLED,), (SUCCEEDED, FAILED), OWN, "", "", ""),
    ((jobs.CANCELLED,), (STOPPED, *NO_END), STOPPED, "its job was cancelled{whom}", "", ""),
    ((jobs.REVOKED,), (SUCCEEDED, FAILED, STOPPED), OWN, "", "", ""),
    ((jobs.REVOKED,), NO_END, "unknown", "another cluster of the federation has its job", "", ""),
)  # fmt: skip


def meaning(
    job: SlurmJob | None,
    status: Status | None,
    *,
    life: int | None = None,
    now: float | None = None,
    uid: int | None = None,
) -> Meaning:
    """Return what a job (None: Slurm has forgotten it) and the status of its run mean.

    `life` is how often the job had been queued again when a node last joined the run, None where
    that is not known; `now` and `uid` are the time and the user that look at it.
    """
    now = time.time() if now is None else now
    own = _own_records(job, status, life)
    _, _, state, reason, class_name, remedy = next(
        row
        for word in _engine_words(job, status, life, now)
        for row in TABLE
        if word in row[0] and any(record in row[1] for record in own)
    )
    if state == OWN and status is not None:
        return Meaning(
            state=status.state, reason=status.reason or "", class_name=failure_class(status)
        )
    values = _values(job or jobs.SlurmJob(), now, os.getuid() if uid is None else uid)
    return Meaning(
        state=state,
        reason=reason.format(**values),
        class_name=class_name or None,
        remedy=remedy.format(**values),
    )


# -- the two sides of the table --------------------------------------------------------------------


def _own_records(job: SlurmJob | None, status: Status | None, life: int | None) -> tuple[str, ...]:
    """Return what the run's own record says of the life that the job is in."""
    sign = _last_sign(status)
    started = job.started_at if job is not None and job.restarts else None
    is_earlier = job is not None and life is not None and life < job.restarts
    if status is None or status.state == "pending" or is_earlier:
        return (NONE,)
    if started is not None and sign is not None and sign < started - SKEW:
        return (NONE,)  # the record of an earlier life
    if status.state == FAILED and failure_class(status) in ("killed", "peer-lost"):
        return (KILLED, FAILED)
    if status.state == STOPPED and is_by_signal(status):
        return (TAKEN, STOPPED)
    if status.state in (SUCCEEDED, FAILED, STOPPED, LOST):
        return (status.state,)
    return (OPEN,)  # also one on another machine, whose processes are not visible


def _engine_words(
    job: SlurmJob | None, status: Status | None, life: int | None, now: float
) -> Iterable[str]:
    """Yield what Slurm says, the most particular word first."""
    if job is None:
        yield FORGOTTEN
        return
    if not job.state:
        yield SILENT
        return
    if _is_queued_again(job, status, life):
        yield AGAIN
    elif job.state in _GOING and not job.flags and now - (job.started_at or now) >= START_LIMIT:
        yield LATE
    elif job.state == jobs.FAILED and job.signal == OUTPUT_SIGNAL:
        yield NO_OUTPUT
    elif _is_out_of_memory(job):
        yield OOM
    yield from job.flags  # a job that is COMPLETING has also the state that it will have
    yield job.state
    yield NEW_WORD


def _is_queued_again(job: SlurmJob, status: Status | None, life: int | None) -> bool:
    """Whether a job waits after a first life, and the run has not reported a later one."""
    if job.state in (jobs.REQUEUED, "REQUEUE_FED", *_HOLDS):
        return True
    if job.state != jobs.PENDING or not job.restarts:
        return False
    if life is not None:  # a node that has joined since then is newer than Slurm's answer
        return life < job.restarts
    sign = _last_sign(status)
    return sign is None or job.submitted_at is None or sign < job.submitted_at + REQUEUE_DELAY


def _is_out_of_memory(job: SlurmJob) -> bool:
    """Whether the kernel killed a step for memory, which the job's own state may hide."""
    states = [job.state, *(step.state for step in job.steps)]
    signals = (job.signal, job.derived_signal, *(step.signal for step in job.steps))
    ended = (jobs.FAILED, jobs.COMPLETED, jobs.OUT_OF_MEMORY)
    return job.state in ended and (jobs.OUT_OF_MEMORY in states or OOM_SIGNAL in signals)


def _last_sign(status: Status | None) -> float | None:
    """Return when the run ended, or its newest attempt began."""
    if status is None:
        return None
    if status.ended_at is not None:
        return status.ended_at
    return status.attempts[-1].started_at if status.attempts else status.started_at


# -- words -----------------------------------------------------------------------------------------


def _values(job: SlurmJob, now: float, uid: int) -> dict[str, str]:
    waits, remedy = reasons.describe(job)
    if job.expected_at is not None and job.expected_at > now:
        waits += f"; Slurm expects it to start in {units.brief_duration(job.expected_at - now)}"
    by = {"": "", str(uid): " by your user (`scancel`)", "0": " by root"}
    whom = by.get(job.cancelled_by, f" by user {job.cancelled_by}")
    if job.reason.startswith("DependencyNeverSatisfied"):  # --kill-on-invalid-dep
        whom = f": {waits}"
    return {
        "problem": job.problem or "Slurm says nothing about its job",
        "state": job.state,
        "waits": waits,
        "remedy": remedy,
        "restarts": f" ({units.quantity(job.restarts, 'time')})" if job.restarts else "",
        "nodes": job.node_list or "its nodes",
        "id": job.id,
        "age": units.brief_duration(now - (job.started_at or now)),
        "end": _end(job),
        "limit": f" ({units.duration(job.time_limit)})" if job.time_limit else "",
        "whom": whom,
    }


def _end(job: SlurmJob) -> str:
    """Return how a job ended: `FAILED, exit code 1 (NonZeroExitCode)`."""
    code = f", exit code {job.exit_code}" if job.exit_code else ""
    signal = f", signal {job.signal}" if job.signal and job.signal != OOM_SIGNAL else ""
    reason = f" ({job.reason})" if job.reason else ""
    return f"{job.state}{code}{signal}{reason}"
