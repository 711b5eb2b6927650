"""Asks a Ray about its jobs, for all processes of a home together: at most once in 10 s.

What it does not say is never an end: a Ray that is away, or answers something else, leaves a job
unknown, with what came instead. Only a list without the job means that Ray has none.
"""

from __future__ import annotations

import os
import time

from safelaunch.runtime.engines import answer_lock
from safelaunch.runtime.engines.ray import http, jobs
from safelaunch.runtime.records import JobEnvironment, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from safelaunch.runtime.engines.ray.jobs import RayJob
    from safelaunch.runtime.records import EngineJob

INTERVAL = 10.0  # seconds in which an answer holds
LIMIT = 10.0  # seconds for an answer
RETENTION = 3600.0  # seconds without a question until the answer of a Ray is dropped


class RayList(Record):
    """What a Ray answered to the question about its jobs."""

    asked_at: float = 0.0  # when it was asked, seconds since 1970
    problem: str = ""  # what came in place of a list
    jobs: Mapping[str, RayJob] = {}  # submission id -> job; after a problem those that had ended


class RayLists(Record):
    """ray-jobs.json in safelaunch's home: the answers that all its processes share."""

    FILE = "ray-jobs.json"

    version: int = 1  # version of the format, 1
    lists: Mapping[str, RayList] = {}  # address -> what that Ray said


def look(
    runs: Mapping[str, EngineJob], home: str, clock: Callable[[], float] = time.time
) -> Mapping[str, RayJob | None]:
    """Return {folder: job} for runs, None where Ray has no such job.

    A job of which nothing is known has no state, and `problem` says why.
    """
    newest: dict[str, float] = {}  # address -> when the last of its runs was submitted
    tokens: dict[str, str] = {}
    for folder, job in runs.items():
        newest[job.cluster] = max(newest.get(job.cluster, 0.0), job.submitted_at)
        tokens[job.cluster] = tokens.get(job.cluster) or token(job, folder)
    lists = answer_lock.read_or_ask(
        RayLists,
        home,
        2 * LIMIT,
        lambda lists: _are_fresh(lists, newest, clock()),
        lambda lists: _ask(lists, newest, tokens, clock),
    )
    return {folder: _job(lists.lists.get(job.cluster), job.job) for folder, job in runs.items()}


def token(job: EngineJob, folder: str) -> str:
    """Return the token for a job's Ray: of this environment, else of that of the start."""
    if not job.token_from:
        return ""
    saved = JobEnvironment.read(os.path.join(folder, "node-0")) or JobEnvironment()
    return os.environ.get(job.token_from) or saved.variables.get(job.token_from) or ""


def _are_fresh(lists: RayLists, newest: Mapping[str, float], now: float) -> bool:
    """Whether the answers of all addresses are new enough, and later than the submissions."""
    for address, submitted_at in newest.items():
        answer = lists.lists.get(address) or RayList()
        if not (0 <= now - answer.asked_at < INTERVAL and answer.asked_at >= submitted_at):
            return False
    return True


def _ask(
    lists: RayLists,
    newest: Mapping[str, float],
    tokens: Mapping[str, str],
    clock: Callable[[], float],
) -> None:
    now = clock()
    table = {
        address: answer
        for address, answer in lists.lists.items()
        if 0 <= now - answer.asked_at < RETENTION
    }
    for address in newest:
        earlier = table.get(address) or RayList()
        table[address] = _list(address, tokens[address], earlier)
        table[address].asked_at = clock()
    lists.version, lists.lists = 1, table


def _list(address: str, secret: str, earlier: RayList) -> RayList:
    """Return what a Ray says now; where it says nothing, an end stays that it told of before."""
    answer = http.ask(address, "/api/jobs/", token=secret, limit=LIMIT)
    entries = answer.data
    if isinstance(entries, list):
        listed = [job for job in map(jobs.parse, entries) if job is not None]
        return RayList(jobs={job.id: job for job in listed})
    ended = {name: job for name, job in earlier.jobs.items() if job.state in jobs.ENDS}
    return RayList(problem=f"{address} answers: {answer.words}", jobs=ended)


def _job(answer: RayList | None, name: str) -> RayJob | None:
    if answer is None:
        return jobs.RayJob(id=name, problem="another process waits for Ray's answer")
    if name not in answer.jobs and answer.problem:
        return jobs.RayJob(id=name, problem=answer.problem)
    return answer.jobs.get(name)
