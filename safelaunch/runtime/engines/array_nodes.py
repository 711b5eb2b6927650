"""A run whose parts are the tasks of an engine's array: how each is, how the whole is, its stop.

What a part's supervisor has recorded counts, and the order of the ends, which the tasks write. Of a
part that the engine has taken away its word is written down, as that of a run.
"""

from __future__ import annotations

import os
import time

from safelaunch.runtime import json_files, run_state
from safelaunch.runtime.engines import nodes, table
from safelaunch.runtime.parts import expand, manifest, preparation
from safelaunch.runtime.records import (
    Failure,
    FanOutSpec,
    JobEnvironment,
    Status,
    StopRequest,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from safelaunch.runtime.engines.nodes import EngineNode
    from safelaunch.runtime.engines.table import Engine

OPEN = ("running", "pending", "unknown")  # states of what may still be at work
MERGE = "all parts are done, and their outputs are being merged"
NO_MERGE = (
    "all parts are done, and the job that was to merge their outputs ended before:"
    " `safelaunch rerun` merges them"
)


def spec_of(folder: str) -> FanOutSpec | None:
    """Return the parts of a run whose parts are tasks of an array; None for any other run."""
    spec = FanOutSpec.read(os.path.join(folder, "node-0"))
    return spec if spec is not None and spec.is_array else None


def part_nodes(folder: str, index: int) -> list[EngineNode]:
    """Return the only node of a part of the run in a folder."""
    array = Array(folder)
    return [array.part(index)]


def run_nodes(folder: str) -> list[EngineNode]:
    """Return the only node of a run: what all parts together are."""
    array = Array(folder)
    node = array.whole()
    if array.is_settled:
        array.record(node)
    return [node]


class Array:
    """The parts of a run as they are now."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.run_dir = os.path.join(folder, "node-0")
        self.count = expand.part_count(spec_of(folder) or FanOutSpec(count=1))
        self.own = Status.read(self.run_dir)
        self.job = nodes.find_job(folder)
        self.now = time.time()
        self.answer: Any = None
        self.engine: Engine | None = None
        if self.job is not None and self.job.job and not self.has_ended:
            self.engine = table.load(self.job.name)
            self.answer = self.engine.look({folder: self.job}, nodes.home_of(folder))[folder]
        # after the answer: what has ended since then counts
        self.own = Status.read(self.run_dir)
        self.ends = manifest.read(self.run_dir)
        self.is_settled = False  # whether nothing more comes, and nothing of it is recorded

    @property
    def has_ended(self) -> bool:
        """Whether the end of the run is recorded."""
        is_over = self.job is not None and self.job.is_over
        return is_over or (self.own is not None and self.own.state in run_state.ENDED)

    def part(self, index: int) -> EngineNode:
        """Return how a part is."""
        folder = preparation.folder(self.run_dir, index)
        own = Status.read(os.path.join(folder, "node-0"))
        status = nodes.status_of(folder, 0, own)
        status.name = status.name or f"part-{index}"
        end = self.ends.get(index)
        host = nodes.hosts_of(folder).get(0, "")
        if end is not None:
            status.state, status.reason = end.state, end.cause or status.reason
            return nodes.EngineNode(0, host, status, None)
        if self.engine is None:
            if self.has_ended and status.state not in run_state.ENDED:
                status.state = "stopped"
            return nodes.EngineNode(0, host, status, None)
        answer = self.engine.task(self.answer, index)
        word = self.engine.meaning(answer, own, nodes.life_of(folder, 0), self.now)
        status = nodes.shown(status, own, word)
        failure = nodes.failure_of(word, host) if status.state == "failed" else None
        is_final = status.state not in OPEN
        if is_final and self.engine.is_settled(answer, self.now):
            self._add_end(index, status, failure)
        return nodes.EngineNode(0, host, status, failure)

    def _add_end(self, index: int, status: Status, failure: Failure | None) -> None:
        """Record the end of a part that only the engine tells of."""
        end = manifest.end_of(status, failure)
        end.part, end.words = index, expand.part_words(spec_of(self.folder) or FanOutSpec())[index]
        end.ended_at = status.ended_at or self.now
        try:
            manifest.add_in_order(self.run_dir, end)
        except OSError:
            return  # a full disk: the next look tries again
        self.ends[index] = end

    def whole(self) -> EngineNode:
        """Return how the run is."""
        status = nodes.status_of(self.folder, 0, self.own)
        if self.has_ended or self.engine is None:
            if not self.has_ended and self.job is not None and not self.job.job:
                return nodes.unclear(self.folder, self.job, {0: self.own})[0]
            self._set_times(status)
            return nodes.EngineNode(0, nodes.hosts_of(self.folder).get(0, ""), status, None)
        parts = {index: self.part(index) for index in range(self.count)}
        states: dict[str, list[int]] = {}
        for index, node in parts.items():
            states.setdefault(node.status.state, []).append(index)
        starts = [node.status.started_at for node in parts.values()]
        status.started_at = min((at for at in starts if at is not None), default=None)
        state = next((state for state in OPEN if state in states), "")
        if state:
            waits = parts[states[state][0]].status.reason if state != "running" else None
            has_begun = state == "pending" and len(states) > 1
            status.state = "running" if has_begun else state
            status.reason = self._summary(states) + (f": {waits}" if waits else "")
            return nodes.EngineNode(0, "", status, None)
        return self._ended(status, parts)

    def _set_times(self, status: Status) -> None:
        """Let a run that has ended begin with its first part: its own supervisor only merges."""
        rows = [(end.ended_at, end.elapsed) for end in self.ends.values() if end.run is None]
        starts = [at - elapsed for at, elapsed in rows if at is not None and elapsed is not None]
        if starts and status.ended_at is not None:
            status.started_at = min(starts)
            status.elapsed = status.ended_at - status.started_at

    def _summary(self, states: Mapping[str, list[int]]) -> str:
        words = {
            "running": "running",
            "failed": "failed",
            "lost": "lost",
            "stopped": "stopped",
            "pending": "waiting",
            "unknown": "of which the engine says nothing",
        }
        done = len(states.get("succeeded", ()))
        others = [
            f"{len(states[state])} {word}" for state, word in words.items() if state in states
        ]
        return ", ".join([f"{done} of {self.count} parts are done", *others])

    def _ended(self, status: Status, parts: Mapping[int, EngineNode]) -> EngineNode:
        """Return the run once no part is at work."""
        # a task records the end of its part a moment after its supervisor has, and may then merge
        rest = [index for index in parts if index not in self.ends] or list(self.ends)[-1:]
        tasks = [self.engine.task(self.answer, index) for index in rest] if self.engine else []
        for task in tasks:
            if self.engine and self.engine.meaning(task, None, None, self.now).state in OPEN:
                status.state, status.reason = "running", MERGE
                return nodes.EngineNode(0, "", status, None)
        if self.engine and len(self.ends) == self.count:
            self.is_settled = self.engine.is_settled(tasks[-1], self.now)
        failed = [i for i, node in parts.items() if node.status.state in ("failed", "lost")]
        stopped = [i for i, node in parts.items() if node.status.state == "stopped"]
        failure = None
        if failed:
            first = failed[0]
            cause = parts[first].status.reason or parts[first].status.state
            what = f"{len(failed)} of {self.count} parts failed; part {first}: {cause}"
            failure = Failure(version=1, role="root", what=what, time=self.now)
            end = self.ends.get(first)
            if end is not None and end.class_name:
                failure.class_name = end.class_name
            status.state, status.reason = "failed", what
        elif stopped or StopRequest.read(self.run_dir) is not None:
            status.state = "stopped"
            status.reason = parts[stopped[0]].status.reason if stopped else None
        elif (spec_of(self.folder) or FanOutSpec()).merge is None:
            status.state, status.reason, status.exit_code = "succeeded", None, 0
        else:
            status.state, status.reason = "failed", NO_MERGE
            failure = Failure(version=1, role="root", what=NO_MERGE, time=self.now)
        return nodes.EngineNode(0, "", status, failure)

    def record(self, node: EngineNode) -> None:
        """Write down how the run has ended by the engine's word, and remove secrets."""
        try:
            node.status.ended_at = node.status.ended_at or self.now
            if node.failure is not None:
                node.failure.write(self.run_dir)
            node.status.write(self.run_dir)
            self.close()
        except OSError:
            pass  # a full disk: the next look tries again

    def close(self) -> None:
        """Remove what may be secret, and write down that nothing more comes. Raises OSError."""
        json_files.remove(os.path.join(self.run_dir, JobEnvironment.FILE))
        if self.job is not None:
            self.job.is_over = True
            self.job.write(self.run_dir)

    # -- stopping ----------------------------------------------------------------------------------

    def request_stop(self, grace: float) -> None:
        """Write a request to stop for the supervisor of each part, and of the merge."""
        request = StopRequest(grace=grace, origin=run_state.caller())
        folders = [preparation.folder(self.run_dir, i) for i in self._missing()]
        for node_dir in (self.run_dir, *(os.path.join(folder, "node-0") for folder in folders)):
            try:
                request.write(node_dir)
            except OSError:
                pass  # a full disk: the engine ends them

    def _missing(self) -> list[int]:
        ends = manifest.read(self.run_dir)
        return [index for index in range(self.count) if index not in ends]

    def has_running(self) -> bool:
        """Whether a supervisor of a part, or of the merge, has recorded no end of its own."""
        folders = [preparation.folder(self.run_dir, i) for i in self._missing()]
        places = (self.run_dir, *(os.path.join(folder, "node-0") for folder in folders))
        records = [Status.read(place) for place in places]
        return any(s is not None and s.state not in run_state.ENDED for s in records)

    def record_stop(self, note: str) -> None:
        """Write down the stop of the run, and of the parts without a recorded end."""
        origin = f"`safelaunch stop` ({run_state.caller()})"
        missing = self._missing()
        for index in missing:
            folder = preparation.folder(self.run_dir, index)
            own = Status.read(os.path.join(folder, "node-0"))
            status = nodes.status_of(folder, 0, own)
            if own is None or own.state not in run_state.ENDED:
                status.state = "stopped"
                status.reason = f"stopped by {origin}" if own else "cancelled before it started"
            self._add_end(index, status, Failure.read(os.path.join(folder, "node-0")))
        try:
            own = Status.read(self.run_dir)
            if own is None or own.state not in run_state.ENDED:
                status = nodes.status_of(self.folder, 0, own)
                status.state, status.stopped_by, status.ended_at = "stopped", "SIGTERM", self.now
                has_begun = len(missing) < self.count or self._has_begun()
                words = ["" if has_begun else "cancelled before it started", note]
                status.reason = "; ".join(word for word in words if word) or None
                status.stop_origin, status.proof = origin, self.job.name if self.job else None
                status.write(self.run_dir)
            self.close()
        except OSError:
            pass  # a full disk: the engine's word stands for it

    def _has_begun(self) -> bool:
        ends = manifest.read(self.run_dir).values()
        return any(end.elapsed is not None for end in ends)


def stop(folder: str, grace: float) -> bool:
    """Stop a run: what waits is cancelled first, then the supervisors end, then the engine's job.

    Returns whether it had ended before.
    """
    if run_nodes(folder)[0].status.state in run_state.ENDED:
        return True
    array = Array(folder)
    array.request_stop(grace)
    job = array.job
    if job is None or not job.job:
        if job is not None and table.load(job.name).find(job, folder, os.environ) is not None:
            array.record_stop("")
        return False
    engine = table.load(job.name)
    engine.cancel_waiting(job)
    if engine.is_begun(job, folder):
        deadline = time.monotonic() + grace + nodes.STOP_PATIENCE
        while time.monotonic() < deadline and array.has_running():
            time.sleep(nodes.POLL)
    is_over, note = engine.end(job, folder)
    if is_over:
        array.record_stop(note)
    return False
