"""The nodes of a run whose machines an engine chooses: how each is, and stopping them.

Their supervisors are on other machines. What they have recorded counts, and where it says nothing
the engine's word does. Once the engine has ended the job, its word is written down: it forgets.
"""

from __future__ import annotations

import os
import time

from safelaunch.runtime import json_files, run_state
from safelaunch.runtime.engines import table
from safelaunch.runtime.records import (
    EngineJob,
    Failure,
    JobEnvironment,
    RunRecord,
    Status,
    StopRequest,
)
from safelaunch.runtime.signatures import classes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.runtime.engines.meaning import Meaning

SETTLING = 90.0  # seconds in which an engine may not list a job whose start was interrupted
STOP_PATIENCE = 30.0  # seconds beyond the grace in which the supervisors may end
POLL = 0.5


class EngineNode:
    """A node of a run on an engine: its number, its machine, its status and why it failed."""

    def __init__(self, number: int, host: str, status: Status, failure: Failure | None) -> None:
        self.number = number
        self.host = host
        self.status = status
        self.failure = failure


def watch(folders: Sequence[str]) -> None:
    """Ask the engines about several runs at once; `nodes` then uses their answers."""
    engines: dict[str, dict[str, EngineJob]] = {}
    for folder in folders:
        job = find_job(folder)
        if job is not None and job.job and not job.is_over:
            engines.setdefault(job.name, {})[folder] = job
    for name, runs in engines.items():
        table.load(name).look(runs, home_of(folders[0]))


def nodes(folder: str) -> list[EngineNode]:
    """Return the nodes of a run as they are now."""
    job, own = find_job(folder), _records(folder)
    if job is None:
        return [EngineNode(n, "", status_of(folder, n, s), None) for n, s in own.items()]
    states = [status.state if status is not None else "" for status in own.values()]
    hosts = hosts_of(folder)
    if job.is_over or all(state in ("succeeded", "failed") for state in states):
        return [
            EngineNode(n, hosts.get(n, ""), status_of(folder, n, status), None)
            for n, status in own.items()
        ]
    if not job.job:
        return unclear(folder, job, own)
    engine = table.load(job.name)
    answer = engine.look({folder: job}, home_of(folder))[folder]
    now = time.time()
    result = []
    for number, status in own.items():
        word = engine.meaning(answer, status, life_of(folder, number), now)
        present = shown(status_of(folder, number, status), status, word)
        failure = failure_of(word, hosts.get(number, "")) if present.state == "failed" else None
        result.append(EngineNode(number, hosts.get(number, ""), present, failure))
    if engine.is_settled(answer, now):
        _record(folder, job, result)
    return result


def find_job(folder: str) -> EngineJob | None:
    """Return the job of a run, which is looked up where its start was interrupted.

    None also where its engine is one that this version does not know.
    """
    first = os.path.join(folder, "node-0")
    job = EngineJob.read(first)
    if job is not None and not table.has(job.name):
        return None
    if job is not None and not job.job and not job.is_over:
        entry = table.load(job.name).find(job, folder, os.environ)
        if entry is not None and entry[0]:
            job.job, job.cluster = entry
            job.write(first)
    return job


def unclear(folder: str, job: EngineJob, own: Mapping[int, Status | None]) -> list[EngineNode]:
    """Return the nodes of a run whose engine has not said whether it has the job."""
    result = []
    for number, recorded in own.items():
        status = status_of(folder, number, recorded)
        if recorded is None and time.time() - job.submitted_at < SETTLING:
            status.reason = f"{job.name} has not said yet whether it has the job"
        elif recorded is None:
            status.state = "lost"
            status.reason = f"its start was interrupted, and {job.name} has no such job"
            if table.load(job.name).find(job, folder, os.environ) is None:
                status.state = "unknown"
                status.reason = f"its start was interrupted, and {job.name} does not answer"
        result.append(EngineNode(number, "", status, None))
    return result


def home_of(folder: str) -> str:
    """Return safelaunch's folder, of the folder of a run."""
    return os.path.dirname(os.path.dirname(folder))


def _records(folder: str) -> dict[int, Status | None]:
    """Return {number: recorded status} of all nodes, None where a node has none yet."""
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    numbers = sorted(int(n[5:]) for n in names if n.startswith("node-") and n[5:].isdigit())
    return {n: Status.read(os.path.join(folder, f"node-{n}")) for n in numbers}


def hosts_of(folder: str) -> Mapping[int, str]:
    """Return {number: machine}, as the engine names it; before a start there is none."""
    run = RunRecord.read(os.path.join(folder, "node-0")) or RunRecord()
    is_joined = run.engine is not None and run.engine.is_joined
    return dict(enumerate(run.hosts)) if is_joined else {}


def life_of(folder: str, number: int) -> int | None:
    """Return how often the job had been queued again when a node last joined the run."""
    run = RunRecord.read(os.path.join(folder, f"node-{number}")) or RunRecord()
    return run.engine.life if run.engine is not None and run.engine.is_joined else None


def status_of(folder: str, number: int, own: Status | None) -> Status:
    """Return the recorded status of a node, or that of one without a record."""
    if own is not None:
        return own.copy()
    run = RunRecord.read(os.path.join(folder, f"node-{number}")) or RunRecord()
    name, created = os.path.basename(folder), run.created_at
    return Status(version=1, id=name, name=run.name, state="pending", created_at=created)


def shown(status: Status, own: Status | None, word: Meaning) -> Status:
    """Return a status with what the engine's word makes of it."""
    if own is not None and word.state == own.state and not word.reason:
        return status
    if word.state in ("pending", "running") and status.state in run_state.ENDED:
        status.ended_at = status.exit_code = status.signal = status.stopped_by = None
    status.state = word.state
    words = [word.reason, "" if word.class_name else word.remedy]
    status.reason = "; ".join(text for text in words if text) or None
    return status


def failure_of(word: Meaning, host: str) -> Failure | None:
    """Return the failure that the engine tells of; None where the supervisor has its own."""
    if not word.remedy and not word.reason:
        return None
    name = word.class_name
    return Failure(
        version=1,
        class_name=name,
        meaning=classes.meaning(name or "") or None,
        role="root",
        host=host,
        time=time.time(),
        what=word.reason,
        advice=word.remedy,
    )


def _record(folder: str, job: EngineJob, result: list[EngineNode]) -> None:
    """Write down how the nodes have ended by the engine's word, and remove secrets."""
    if any(node.status.state not in (*run_state.ENDED, "lost") for node in result):
        return
    try:
        for node in result:
            node_dir = os.path.join(folder, f"node-{node.number}")
            own = Status.read(node_dir)
            if own is None or own.state != node.status.state:
                node.status.ended_at = node.status.ended_at or time.time()
                if node.failure is not None:
                    node.failure.write(node_dir)
                node.status.write(node_dir)
            json_files.remove(os.path.join(node_dir, JobEnvironment.FILE))
        job.is_over = True
        job.write(os.path.join(folder, "node-0"))
    except OSError:
        pass  # a full disk: the next look tries again


# -- stopping --------------------------------------------------------------------------------------


def stop(folder: str, grace: float) -> bool:
    """Stop a run: its supervisors by a request in the run directory, then the engine's job.

    Returns whether it had ended before. What the engine does not let go of stays in its status.
    """
    if all(node.status.state in run_state.ENDED for node in nodes(folder)):
        return True
    job, numbers = find_job(folder), list(_records(folder))
    _request_stop(folder, numbers, grace)
    if job is None:
        return False
    engine = table.load(job.name)
    if not job.job:  # supervisors that start later read the request
        if engine.find(job, folder, os.environ) is not None:
            _record_stop(folder, job, numbers)
        return False
    if engine.is_begun(job, folder):
        deadline = time.monotonic() + grace + STOP_PATIENCE
        while time.monotonic() < deadline and not _have_ended(folder):
            time.sleep(POLL)
    is_over, note = engine.end(job, folder)
    if is_over:
        _record_stop(folder, job, numbers, note)
    return False


def _request_stop(folder: str, numbers: list[int], grace: float) -> None:
    """Write a request to stop for the supervisor of each node."""
    for number in numbers:
        request = StopRequest(grace=grace, origin=run_state.caller())
        try:
            request.write(os.path.join(folder, f"node-{number}"))
        except OSError:
            pass  # a full disk: the engine ends them


def _have_ended(folder: str) -> bool:
    return all(s is not None and s.state in run_state.ENDED for s in _records(folder).values())


def _record_stop(folder: str, job: EngineJob, numbers: list[int], note: str = "") -> None:
    """Write down the stop of nodes that have recorded no end of their own."""
    try:
        _write_stop(folder, job, numbers, note)
    except OSError:
        pass  # a full disk: the engine's word stands for it


def _write_stop(folder: str, job: EngineJob, numbers: list[int], note: str) -> None:
    for number in numbers:
        node_dir = os.path.join(folder, f"node-{number}")
        own = Status.read(node_dir)
        if own is None or own.state not in run_state.ENDED:
            status = status_of(folder, number, own)
            has_begun = own is not None and own.started_at is not None
            status.state, status.stopped_by, status.ended_at = "stopped", "SIGTERM", time.time()
            status.stop_origin = f"`safelaunch stop` ({run_state.caller()})"
            words = [note] if has_begun else ["cancelled before it started", note]
            status.reason = "; ".join(word for word in words if word) or None
            status.proof = job.name
            status.write(node_dir)
        json_files.remove(os.path.join(node_dir, JobEnvironment.FILE))
    job.is_over = True
    job.write(os.path.join(folder, "node-0"))
