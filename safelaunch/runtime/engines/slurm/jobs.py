"""What squeue, sacct and scontrol print about jobs, as records. Nothing is run here.

The formats are explicit and delimited: Slurm's JSON changes between releases, this text has been
the same from 20.11 on. The commands print times as seconds since 1970 with SLURM_TIME_FORMAT=%s; a
local time is understood too, for where a wrapper of the site drops the variable.
"""

from __future__ import annotations

import time

from safelaunch.runtime.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.runtime.records import Nullable

SEPARATOR = "|"
# fields of `squeue --Format`, the free text last; a width of 0 means that none is cut
SQUEUE_FIELDS = (
    "JobArrayID", "JobID", "HetJobID", "Cluster", "Partition", "UserName", "State", "Reason",
    "NumNodes", "NodeList", "exit_code", "DerivedEC", "RestartCnt", "SubmitTime", "StartTime",
    "EndTime", "TimeLimit", "Comment",
)  # fmt: skip
SQUEUE_FORMAT = f":0{SEPARATOR},".join(SQUEUE_FIELDS) + ":0"
# fields of `sacct --format`, all of which 20.11 has: an unknown one ends sacct
SACCT_FIELDS = (
    "JobID", "JobIDRaw", "Cluster", "Partition", "User", "State", "Reason", "NNodes", "NodeList",
    "ExitCode", "DerivedExitCode", "Submit", "Start", "End", "TimelimitRaw", "Comment",
)  # fmt: skip
# keys of `scontrol show job`, in the order in which it prints them
_SCONTROL_KEYS = (
    "ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset", "JobState", "Reason", "Restarts",
    "ExitCode", "DerivedExitCode", "TimeLimit", "SubmitTime", "StartTime", "EndTime",
    "Partition", "NodeList", "NumNodes",
)  # fmt: skip


class _SqueueNames:
    """What squeue calls the fields of a job that all three commands print."""

    partition = "Partition"
    state = "State"
    reason = "Reason"
    nodes = "NumNodes"
    node_list = "NodeList"
    exit_code = "exit_code"
    derived_exit_code = "DerivedEC"
    submitted_at = "SubmitTime"
    started_at = "StartTime"
    ended_at = "EndTime"
    time_limit = "TimeLimit"


class _SacctNames(_SqueueNames):
    nodes = "NNodes"
    exit_code = "ExitCode"
    derived_exit_code = "DerivedExitCode"
    submitted_at = "Submit"
    started_at = "Start"
    ended_at = "End"
    time_limit = "TimelimitRaw"


class _ScontrolNames(_SqueueNames):
    state = "JobState"
    exit_code = "ExitCode"
    derived_exit_code = "DerivedExitCode"


# https://slurm.schedmd.com/job_state_codes.html, with the compact codes of squeue's `%t`
PENDING, RUNNING, SUSPENDED = "PENDING", "RUNNING", "SUSPENDED"
COMPLETED, CANCELLED, FAILED, TIMEOUT = "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT"
NODE_FAIL, PREEMPTED, OUT_OF_MEMORY = "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY"
BOOT_FAIL, DEADLINE, LAUNCH_FAILED = "BOOT_FAIL", "DEADLINE", "LAUNCH_FAILED"
ENDS = (
    COMPLETED, CANCELLED, FAILED, TIMEOUT, NODE_FAIL, PREEMPTED, OUT_OF_MEMORY, BOOT_FAIL, DEADLINE,
)  # fmt: skip
BASE_STATES = (PENDING, RUNNING, SUSPENDED, *ENDS)
COMPLETING, CONFIGURING, REQUEUED = "COMPLETING", "CONFIGURING", "REQUEUED"
REQUEUE_HOLD, SPECIAL_EXIT, REVOKED = "REQUEUE_HOLD", "SPECIAL_EXIT", "REVOKED"
STATE_FLAGS = (
    COMPLETING, CONFIGURING, REQUEUED, REQUEUE_HOLD, SPECIAL_EXIT, REVOKED, LAUNCH_FAILED,
    "EXPEDITING", "POWER_UP_NODE", "RECONFIG_FAIL", "REQUEUE_FED", "RESIZING", "RESV_DEL_HOLD",
    "SIGNALING", "STAGE_OUT", "STOPPED", "UPDATE_DB",
)  # fmt: skip
_COMPACT = {
    "BF": BOOT_FAIL, "CA": CANCELLED, "CD": COMPLETED, "CF": CONFIGURING, "CG": COMPLETING,
    "DL": DEADLINE, "F": FAILED, "NF": NODE_FAIL, "OOM": OUT_OF_MEMORY, "PD": PENDING,
    "PR": PREEMPTED, "R": RUNNING, "RD": "RESV_DEL_HOLD", "RF": "REQUEUE_FED", "RH": REQUEUE_HOLD,
    "RQ": REQUEUED, "RS": "RESIZING", "RV": REVOKED, "S": SUSPENDED, "SE": SPECIAL_EXIT,
    "SI": "SIGNALING", "SO": "STAGE_OUT", "ST": "STOPPED", "TO": TIMEOUT,
}  # fmt: skip
_EMPTY = ("", "(null)", "N/A", "None", "NONE", "None assigned", "Unknown", "Invalid")


class SlurmStep(Record):
    """A step of a job: the batch script, or what one srun started."""

    id: str = ""  # batch, extern, interactive or a number
    state: str = ""  # as of a job
    exit_code: int | None = None  # highest exit code of its tasks
    signal: int | None = None  # signal that ended it; 125: its memory limit
    node_list: str = ""  # its nodes, in Slurm's short form
    ended_at: float | None = None  # seconds since 1970


class SlurmJob(Record):
    """A job, as one of Slurm's commands describes it. Empty `state`: it says nothing about it."""

    id: str = ""  # as Slurm prints it: 7, 7_3 (of an array), 21+0 (of a heterogeneous job)
    number: str = ""  # its own number: a task of an array and a component have others than the id
    array: str = ""  # number of the array that it is a task of
    het: str = ""  # number of the heterogeneous job that it is a component of
    cluster: str = ""  # name of the cluster; empty: not said
    partition: str = ""  # its partition, or those that it may run in
    state: str = ""  # PENDING, RUNNING, ...; a flag such as COMPLETING where no state was printed
    flags: Sequence[str] = ()  # further words of the state: COMPLETING, REQUEUED, ...
    reason: str = ""  # why it is pending or has ended, in Slurm's words
    nodes: int | None = None  # number of nodes
    node_list: str = ""  # its nodes, in Slurm's short form; empty: none yet
    exit_code: int | None = None  # exit code of the batch script
    signal: int | None = None  # signal that ended it; 53: its output could not be opened
    derived_exit_code: int | None = None  # highest exit code of all steps
    derived_signal: int | None = None  # and its signal; 125: a memory limit
    restarts: int = 0  # how many times it was queued again
    submitted_at: float | None = None  # when it was queued, the last time
    started_at: float | None = None  # when it got its nodes, the last time
    expected_at: float | None = None  # when it may get them, of a pending one
    ended_at: float | None = None  # when it ended
    limit_at: float | None = None  # when its time is over, of a running one
    time_limit: Nullable[float] = None  # seconds that it may run; null: not said, or no limit
    steps: Sequence[SlurmStep] = ()  # those of its last life, where accounting tells them
    comment: str = ""  # its comment
    user: str = ""  # whose job it is
    cancelled_by: str = ""  # number of the user that cancelled it
    source: str = ""  # squeue, sacct or scontrol
    problem: str = ""  # why nothing is known, in the engine's words
    tasks: Sequence[SlurmJob] = ()  # of an array: those that are listed

    @property
    def words(self) -> tuple[str, ...]:
        """The state and its flags."""
        return (self.state, *self.flags)


def parse_squeue(text: str) -> list[SlurmJob]:
    """Return the jobs that `squeue --noheader --Format=SQUEUE_FORMAT` prints.

    Lines that are none, such as a banner of the site, are left out.
    """
    jobs = []
    cluster = ""
    for line in text.splitlines():
        if line.startswith("CLUSTER: "):  # above the jobs of each of several clusters
            cluster = line[len("CLUSTER: ") :].strip()
        row = _row(line, SQUEUE_FIELDS)
        if row is None:
            continue
        job = _job(row["JobArrayID"], row["JobID"], "squeue")
        job.het = job.het or _text(row["HetJobID"])
        job.cluster = _text(row["Cluster"]) or cluster
        job.user, job.comment = _text(row["UserName"]), _text(row["Comment"])
        job.restarts = _count(row["RestartCnt"]) or 0
        _describe(job, row, _SqueueNames)
        jobs.append(job)
    return jobs


def parse_sacct(text: str) -> list[SlurmJob]:
    """Return the jobs that `sacct --duplicates --parsable2 --format=SACCT_FIELDS` prints.

    A job that was queued again has several records, each with the steps of one life: the last one
    counts, and the others are its restarts.
    """
    jobs: dict[str, SlurmJob] = {}
    for line in text.splitlines():
        row = _row(line, SACCT_FIELDS)
        if row is None:
            continue
        name, _, step = row["JobID"].partition(".")
        if step:
            if name in jobs:
                jobs[name].steps = [*jobs[name].steps, _step(step, row)]
            continue
        job = _job(name, row["JobIDRaw"], "sacct")
        job.cluster = _text(row["Cluster"])
        job.user, job.comment = _text(row["User"]), _text(row["Comment"])
        _describe(job, row, _SacctNames)
        if name in jobs:
            earlier = jobs.pop(name)
            if (job.submitted_at or 0) < (earlier.submitted_at or 0):
                job, earlier = earlier, job
            job.restarts = max(job.restarts, earlier.restarts) + 1
        jobs[name] = job
    return list(jobs.values())


def parse_scontrol(text: str) -> list[SlurmJob]:
    """Return the jobs that `scontrol show job --oneliner` prints."""
    jobs = []
    for line in text.splitlines():
        head, _, rest = line.strip().partition(" ")
        key, _, number = head.partition("=")
        if key != "JobId" or not _is_number(number):
            continue
        values = _scontrol_values(" " + rest)
        job = _job(_scontrol_id(number, values), number, "scontrol")
        user = rest.partition(" JobState=")[0].rpartition(" UserId=")[2]
        job.user, job.comment = user.partition("(")[0], _text(_scontrol_comment(rest))
        job.restarts = _count(values["Restarts"]) or 0
        # scontrol prints the blanks of a reason as underscores
        values["Reason"] = values["Reason"].replace("_", " ")
        _describe(job, values, _ScontrolNames)
        jobs.append(job)
    return jobs


def split_key(key: str) -> tuple[str, str]:
    """Return id and cluster of a job as `sbatch --parsable` names it: `7`, or `7;cluster`."""
    name, _, cluster = key.partition(";")
    return name.strip(), cluster.strip()


def is_job_id(text: str) -> bool:
    """Whether a text is the id of one job: `7`, `7_3` or `21+0`."""
    parts = text.replace("+", "_").split("_")
    return len(parts) in (1, 2) and all(map(_is_number, parts))


def gather(jobs: Sequence[SlurmJob], key: str) -> SlurmJob | None:
    """Return the job that a key names, of an array with its tasks; else None."""
    name, cluster = split_key(key)
    same = [job for job in jobs if not (cluster and job.cluster and job.cluster != cluster)]
    tasks = [job for job in same if job.array == name]
    return _array(name, cluster, tasks) if tasks else find(jobs, key)


def _array(name: str, cluster: str, tasks: Sequence[SlurmJob]) -> SlurmJob:
    """Return what an array is: at work while a task is, then waiting, and ended once all are."""
    states = [task.state for task in tasks]
    others = [state for state in states if state not in (*ENDS, PENDING)]
    state = others[0] if others else PENDING if PENDING in states else FAILED
    if set(states) == {COMPLETED}:
        state = COMPLETED
    return SlurmJob(
        id=name, number=name, cluster=cluster, state=state, source=tasks[0].source, tasks=tasks
    )


def find(jobs: Sequence[SlurmJob], key: str) -> SlurmJob | None:
    """Return the job that a key of `split_key` names, also as a task in a range; else None."""
    name, cluster = split_key(key)
    same = [job for job in jobs if not (cluster and job.cluster and job.cluster != cluster)]
    for job in same:
        if job.id == name:
            return job
    array, _, task = name.partition("_")
    for job in same:
        if task and job.array == array and _has_task(job.id.partition("_")[2], int(task)):
            return job
    # a heterogeneous job is what its first component is
    return next((job for job in same if job.number == name), None)


# -- lines -----------------------------------------------------------------------------------------


def _row(line: str, fields: Sequence[str]) -> Mapping[str, str] | None:
    """Return {field: text} of a line of delimited output, None where it is none."""
    cells = line.split(SEPARATOR, len(fields) - 1)
    if len(cells) != len(fields) or not _is_listed_id(cells[0].strip()):
        return None
    return {field: cell.strip() for field, cell in zip(fields, cells)}  # noqa: B905 - Python 3.10


def _is_listed_id(text: str) -> bool:
    """Whether a line begins with an id, of a step too, or a range of an array: `7_[0-3%2]`."""
    name = text.partition(".")[0]
    array, bracket, _ = name.partition("_[")
    return is_job_id(array if bracket else name)


def _scontrol_values(rest: str) -> dict[str, str]:
    """Return {key: value}: "" for a key that this release does not print.

    Each is looked for behind the one before it: a later one may stand in a name of the user's.
    """
    values, place = {}, 0
    for key in _SCONTROL_KEYS:
        start = rest.find(f" {key}=", place)
        if start < 0:
            values[key] = ""
            continue
        start += len(key) + 2
        end = rest.find(" ", start)
        place = len(rest) if end < 0 else end
        values[key] = rest[start:place]
    return values


def _scontrol_id(number: str, values: Mapping[str, str]) -> str:
    if values["ArrayJobId"]:
        task = values["ArrayTaskId"]
        return f"{values['ArrayJobId']}_{task if task.isdigit() else f'[{task}]'}"
    if values["HetJobId"]:
        return f"{values['HetJobId']}+{values['HetJobOffset']}"
    return number


def _scontrol_comment(rest: str) -> str:
    """Return the comment: what follows ` Comment=` behind WorkDir, up to the next key."""
    comment = rest.partition(" WorkDir=")[2].partition(" Comment=")[2]
    # the next keys; a release from 23.11 on may print Extra between them
    ends = (comment.find(f" {key}=") for key in ("Extra", "StdErr", "StdIn", "StdOut"))
    return comment[: min((end for end in ends if end >= 0), default=len(comment))]


def _has_task(tasks: str, task: int) -> bool:
    """Whether the tasks of an array, such as `[0-3,8-20:4%2]`, include a number."""
    for part in tasks.strip("[]").partition("%")[0].split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        high = high or low
        if not all(map(_is_number, (low, high, step or "1"))):
            continue  # Slurm cuts a long list: `1-3,5,...`
        if int(low) <= task <= int(high) and (task - int(low)) % max(1, int(step or "1")) == 0:
            return True
    return False


# -- values ----------------------------------------------------------------------------------------


def _job(name: str, number: str, source: str) -> SlurmJob:
    array, _, task = name.partition("_")
    het, _, component = name.partition("+")
    return SlurmJob(
        id=name,
        number=number or name,
        array=array if task else "",
        het=het if component else "",
        source=source,
    )


def _step(name: str, row: Mapping[str, str]) -> SlurmStep:
    state, _, _ = parse_state(row["State"])
    exit_code, signal = _exit_code(row["ExitCode"])
    return SlurmStep(
        id=name,
        state=state,
        exit_code=exit_code,
        signal=signal,
        node_list=_text(row["NodeList"]),
        ended_at=parse_time(row["End"]),
    )


def _describe(job: SlurmJob, values: Mapping[str, str], names: type[_SqueueNames]) -> None:
    """Set what all three commands print of a job, from {name: text}."""
    job.partition = _text(values[names.partition])
    job.state, job.flags, job.cancelled_by = parse_state(values[names.state])
    job.reason = _text(values[names.reason])
    job.nodes, job.node_list = _count(values[names.nodes]), _text(values[names.node_list])
    job.exit_code, job.signal = _exit_code(values[names.exit_code])
    job.derived_exit_code, job.derived_signal = _exit_code(values[names.derived_exit_code])
    _set_times(job, values[names.submitted_at], values[names.started_at], values[names.ended_at])
    _set_limit(job, _limit(values[names.time_limit]))


def _set_times(job: SlurmJob, submitted: str, started: str, ended: str) -> None:
    """Set the times. What the commands call start and end is an expectation until it has come."""
    start, end = parse_time(started), parse_time(ended)
    job.submitted_at = parse_time(submitted)
    if job.state == PENDING:
        job.expected_at = start
        return
    job.started_at = start
    if job.state in ENDS or job.state == REQUEUED:
        job.ended_at = end
    else:
        job.limit_at = end


def _set_limit(job: SlurmJob, limit: float | None) -> None:
    job.time_limit = limit
    if job.limit_at is None and job.state in (RUNNING, SUSPENDED) and limit and job.started_at:
        job.limit_at = job.started_at + limit


def parse_state(text: str) -> tuple[str, list[str], str]:
    """Return state, flags, and who cancelled the job, of words such as `CANCELLED by 1000`.

    Cut words (`COMPLETI`, `CANCELLED+`) and compact codes (`PD`) are understood; words of a newer
    Slurm stay as they are.
    """
    text, _, user = text.strip().partition(" by ")
    words = [_state(word) for word in text.replace("+", ",").replace(" ", ",").split(",") if word]
    base = next((word for word in words if word in BASE_STATES), words[0] if words else "")
    return base, [word for word in words if word != base], user.strip()


def _state(word: str) -> str:
    states = (*BASE_STATES, *STATE_FLAGS)
    word = word.upper()
    if word in states:
        return word
    if word in _COMPACT:
        return _COMPACT[word]
    matches = [state for state in states if state.startswith(word)]
    return matches[0] if len(matches) == 1 else word


def parse_time(text: str) -> float | None:
    """Return the seconds since 1970 of such a number, or of a local time `2026-05-01T12:00:00`."""
    if _is_number(text):
        return float(text) or None
    day, _, clock = text.partition("T")
    parts = [*day.split("-"), *clock.split(":")]
    if len(parts) != 6 or not all(map(_is_number, parts)):  # noqa: PLR2004
        return None
    year, month, date, hour, minute, second = map(int, parts)
    try:
        return time.mktime((year, month, date, hour, minute, second, 0, 0, -1))
    except (OverflowError, ValueError):
        return None


def _limit(text: str) -> float | None:
    """Return the seconds of a time limit: minutes, `MM:SS`, `HH:MM:SS` or `D-HH[:MM[:SS]]`."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(map(_is_number, (*parts, days or "0"))) or len(parts) > 3:  # noqa: PLR2004
        return None  # UNLIMITED, Partition_Limit, NOT_SET
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 1:
        hours, minutes, seconds = 0, numbers[0], 0
    else:
        hours, minutes, seconds = (0, *numbers)[-3:]
    return float(int(days or "0") * 86400 + hours * 3600 + minutes * 60 + seconds)


def _exit_code(text: str) -> tuple[int | None, int | None]:
    """Return exit code and signal of `1:0`, or of the wait status that squeue prints before 23."""
    first, colon, second = text.partition(":")
    if colon:
        return _count(first), _count(second) or None
    status = _count(first)
    if status is None:
        return None, None
    # as WIFSIGNALED: the low bits are the signal, whose codes 53 and 125 are Slurm's own
    return (0, status & 0x7F) if status & 0x7F else (status >> 8, None)


def _count(text: str) -> int | None:
    """Return a number, None where there is none: `3`, or `1-4` for a range of nodes wanted."""
    first = text.partition("-")[0]
    return int(first) if _is_number(first) else None


def _is_number(text: str) -> bool:
    """Whether a text is a number of Slurm's, which has at most 64 bits."""
    return text.isascii() and text.isdigit() and len(text) <= 20  # noqa: PLR2004


def _text(text: str) -> str:
    return "" if text.strip() in _EMPTY else text.strip()
