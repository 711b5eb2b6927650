"""Asks Slurm about jobs, for all processes of a home together: at most one call of a kind in 10 s.

What it does not say is never an end: an error, a command that is late, and an empty answer leave
a job unknown, with Slurm's words. Only `Invalid job id` of its controller means that it has none.
"""

from __future__ import annotations

import os
import time

from safelaunch.runtime import commands, home
from safelaunch.runtime.engines import answer_lock
from safelaunch.runtime.engines.slurm import jobs
from safelaunch.runtime.plain_text import clipped
from safelaunch.runtime.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from safelaunch.runtime.commands import CommandResult
    from safelaunch.runtime.engines.slurm.jobs import SlurmJob

    Run = Callable[[Sequence[str]], CommandResult]

INTERVAL = 10.0  # seconds in which an answer holds
LIMIT = 30.0  # seconds for a command: without its controller squeue says so after 22 s
SHARED = 60.0  # seconds in which a job that another process asked about is asked about too
RETENTION = 600.0  # seconds without a question until the answer to it is dropped
MOST_SHOWN = 20  # calls of `scontrol show job` at a time: each is about one job
# variables that change what the commands print or select
_FILTERS = ("SQUEUE_", "SACCT_", "SCONTROL_", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")
_NO_JOB = "invalid job id"
_NO_ACCOUNTING = ("accounting storage is disabled", "is not installed")


class SlurmAnswer(Record):
    """What Slurm said about a job."""

    asked_at: float = 0.0  # when Slurm was asked, seconds since 1970
    wanted_at: float = 0.0  # when somebody last watched to know
    job: SlurmJob | None = None  # the job
    is_forgotten: bool = False  # whether its controller has no such job


class SlurmAnswers(Record):
    """slurm-jobs.json in safelaunch's home: the answers that all its processes share."""

    FILE = "slurm-jobs.json"

    version: int = 1  # version of the format, 1
    answers: Mapping[str, SlurmAnswer] = {}  # `7` or `7;cluster` -> what Slurm said


def run_command(argv: Sequence[str]) -> CommandResult:
    """Run a command of Slurm, with times as numbers and without filters of the user's."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(_FILTERS)}
    # a length of 0 keeps the task numbers of an array whole
    environ.update(SLURM_TIME_FORMAT="%s", SLURM_BITSTR_LEN="0")
    return commands.run(argv, environ=environ, limit=LIMIT)


def look(
    keys: Sequence[str],
    run: Run = run_command,
    *,
    folder: str | None = None,
    clock: Callable[[], float] = time.time,
) -> Mapping[str, SlurmJob | None]:
    """Return {key: job} of jobs that are named as `sbatch --parsable` does: `7`, or `7;cluster`.

    A job of which nothing is known has no state, and `problem` says why. None: Slurm's controller
    has no such job, or no longer. `folder` is safelaunch's home. Raises ValueError for a key that
    names no job.
    """
    for key in keys:
        if not jobs.is_job_id(jobs.split_key(key)[0]):
            raise ValueError(f"`{key}` is no job id of Slurm")
    folder = folder or home.home()
    answers = answer_lock.read_or_ask(
        SlurmAnswers,
        folder,
        2 * LIMIT,
        lambda answers: _is_fresh(answers, keys, clock()),
        lambda answers: _ask(answers, keys, run, clock),
    )
    return {key: _answer(answers.answers.get(key)) for key in keys}


def _answer(answer: SlurmAnswer | None) -> SlurmJob | None:
    if answer is not None and (answer.is_forgotten or answer.job is not None):
        return None if answer.is_forgotten else answer.job
    return jobs.SlurmJob(problem="another process waits for Slurm's answer")


def _is_fresh(answers: SlurmAnswers, keys: Iterable[str], now: float) -> bool:
    """Whether the answers about all jobs are new enough."""
    return all(key in answers.answers and _holds(answers.answers[key], now) for key in keys)


def _holds(answer: SlurmAnswer, now: float) -> bool:
    """Whether an answer is still true. A job that Slurm has forgotten does not come back."""
    return answer.is_forgotten or (answer.job is not None and 0 <= now - answer.asked_at < INTERVAL)


def _ask(answers: SlurmAnswers, keys: Sequence[str], run: Run, clock: Callable[[], float]) -> None:
    """Ask about jobs, and about those that other processes watched to know of a short time ago."""
    now = clock()
    table = {
        key: answer
        for key, answer in answers.answers.items()
        if 0 <= now - answer.wanted_at < RETENTION or key in keys
    }
    for key in keys:
        table.setdefault(key, SlurmAnswer()).wanted_at = now
    watched = [
        key
        for key, answer in table.items()
        if not answer.is_forgotten and 0 <= now - answer.wanted_at < SHARED
    ]
    clusters: dict[str, list[str]] = {}
    for key in watched:
        clusters.setdefault(jobs.split_key(key)[1], []).append(key)
    for cluster, members in clusters.items():
        results = _Cluster(cluster, members, run).ask()
        for key, job in results.items():
            table[key].update(SlurmAnswer(job=job, is_forgotten=job is None, asked_at=clock()))
    answers.version = 1
    answers.answers = table


class _Cluster:
    """The questions about the jobs of one cluster."""

    def __init__(self, cluster: str, keys: Sequence[str], run: Run) -> None:
        self._keys = keys
        self._run = run
        self._option = [f"--clusters={cluster}"] if cluster else []
        self._numbers = ",".join(jobs.split_key(key)[0] for key in keys)

    def ask(self) -> dict[str, SlurmJob | None]:
        """Return what squeue, sacct and scontrol together say."""
        listed, problem = self._squeue()
        answers: dict[str, SlurmJob | None] = {}
        open_keys = []
        for key in self._keys:
            job = jobs.gather(listed, key)
            if job is not None:
                answers[key] = job
            # of an array squeue may have forgotten tasks that have ended
            has_begun = job is not None and job.tasks and job.state != jobs.PENDING
            if job is None or job.state in jobs.ENDS or has_begun:
                open_keys.append(key)
        accounted, silence = self._sacct(open_keys) if open_keys else ([], "")
        shown = 0  # calls of scontrol
        for key in open_keys:
            job, record = answers.get(key), jobs.gather(accounted, key)
            if job is not None:
                answers[key] = _with_steps(job, record)
            elif problem:
                answers[key] = _settled(record) or _unknown(key, problem, silence)
            elif record is not None and record.state in jobs.ENDS:
                answers[key] = record
            elif shown < MOST_SHOWN:
                answers[key], is_late = self._scontrol(key, record)
                shown = MOST_SHOWN if is_late else shown + 1
            else:
                answers[key] = _unknown(key, "squeue does not list the job")
        return answers

    def _squeue(self) -> tuple[list[SlurmJob], str]:
        """Return the jobs that the controller lists, and why it lists none."""
        result = self._run([
            "squeue", *self._option, "--noheader", "--all", "--array", "--states=all",
            f"--jobs={self._numbers}", f"--Format={jobs.SQUEUE_FORMAT}",
        ])  # fmt: skip
        # of a single job that it does not have squeue says so, of several it lists the others
        is_answer = result.code == 0 or _NO_JOB in result.err.lower()
        return jobs.parse_squeue(result.out), "" if is_answer else _words("squeue", result)

    def _sacct(self, keys: Sequence[str]) -> tuple[list[SlurmJob], str]:
        """Return the jobs that accounting has, and why it has none."""
        numbers = ",".join(jobs.split_key(key)[0] for key in keys)
        result = self._run([
            "sacct", *self._option, "--noheader", "--duplicates", "--parsable2",
            f"--jobs={numbers}", f"--format={','.join(jobs.SACCT_FIELDS)}",
        ])  # fmt: skip
        if any(words in result.err.lower() for words in _NO_ACCOUNTING):
            return [], ""
        return jobs.parse_sacct(result.out), "" if result.code == 0 else _words("sacct", result)

    def _scontrol(self, key: str, record: SlurmJob | None) -> tuple[SlurmJob | None, bool]:
        """Return a job that squeue does not list, and whether the controller is late.

        The job is None where the controller says that it has none.
        """
        result = self._run([
            "scontrol", *self._option, "--details", "--oneliner", "show", "job",
            jobs.split_key(key)[0],
        ])  # fmt: skip
        job = jobs.gather(jobs.parse_scontrol(result.out), key)
        if job is None and _NO_JOB not in f"{result.out}\n{result.err}".lower():
            job = _unknown(key, _words("scontrol", result))
        elif job is None and record is not None:
            why = f"sacct has it as {record.state}, and Slurm's controller has no such job"
            job = _unknown(key, why)
        return job, result.code == commands.NOT_RUN


def _settled(record: SlurmJob | None) -> SlurmJob | None:
    """Return a record of accounting that is an end, also where the controller does not answer.

    A job that was preempted or lost its node may be queued again, which accounting says later.
    """
    may_go_on = (jobs.PREEMPTED, jobs.NODE_FAIL, jobs.BOOT_FAIL)
    if record is None or record.state not in jobs.ENDS or record.state in may_go_on:
        return None
    return record


def _with_steps(job: SlurmJob, record: SlurmJob | None) -> SlurmJob:
    """Return a job that squeue lists as ended, with what only accounting has of the same life."""
    if record is not None and job.tasks:
        listed = {task.id for task in job.tasks}
        ended = [t for t in record.tasks if t.state in jobs.ENDS and t.id not in listed]
        with_steps = [_with_steps(task, jobs.find(record.tasks, task.id)) for task in job.tasks]
        job.tasks = [*with_steps, *ended]
        return job
    if record is None or record.state != job.state:
        return job  # accounting comes later
    job.steps, job.cancelled_by = record.steps, record.cancelled_by
    return job


def _unknown(key: str, *problems: str) -> SlurmJob:
    name, cluster = jobs.split_key(key)
    words = "; ".join(problem for problem in problems if problem)
    return jobs.SlurmJob(id=name, number=name, cluster=cluster, problem=words)


def _words(command: str, result: CommandResult) -> str:
    """Return what a command said in place of an answer."""
    text = " ".join((result.err or result.out).split()) or f"exit code {result.code}, no answer"
    return clipped(text if text.startswith(("`", command)) else f"{command}: {text}")
