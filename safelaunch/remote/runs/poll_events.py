"""The changes of runs on hosts: each host is asked for all of its runs at once.

A question whose answer does not arrive is asked again: no change is lost or comes twice.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import HostError
from safelaunch.remote.host_pool import RETRY_DELAYS
from safelaunch.remote.runs import query_status
from safelaunch.runs import mirror, store
from safelaunch.runs.events.changes import Notice, RunView
from safelaunch.runtime.agent.runs import NodeView
from safelaunch.sync.answers import checked

if TYPE_CHECKING:
    import queue
    from collections.abc import Callable, Collection, Mapping, Sequence

    from safelaunch.remote.host_pool import HostPool
    from safelaunch.remote.runs.remote_run import RemoteRun
    from safelaunch.runs.events.cursor import Mark

WAIT = 2.0  # seconds in which a host waits for a change; a new run is asked for after that
PAUSE = 0.2  # seconds between two questions at least


class NodeChange(NamedTuple):
    """What a host answers of a node that has changed."""

    view: NodeView | None
    stamp: str
    position: int
    events: Sequence[tuple[int, dict[str, Any]]]
    has_more: bool


class HostChanges(NamedTuple):
    """What has changed on a host, or why it does not answer, for the `tries`-th time in a row."""

    feed: HostFeed
    ids: Collection[str]  # ids of the runs that it was asked for
    runs: Mapping[str, Mapping[int, NodeChange]]
    error: HostError | None = None
    tries: int = 0
    has_more: bool = False


class HostFeed:
    """Asks a host again and again, in a thread of its own."""

    def __init__(
        self, pool: HostPool, host: str, arrived: queue.Queue[HostChanges | Exception]
    ) -> None:
        self.host = host
        self._pool, self._arrived = pool, arrived
        self._marks: dict[str, dict[int, tuple[int, str]]] = {}  # by run and node
        self._lock = threading.Lock()
        self._is_started = False
        self._has_more = False  # whether the last answer was not all

    def add(self, run_id: str, node: int, position: int) -> None:
        """Ask for a node of a run too, from a position in its events on."""
        with self._lock:
            self._marks.setdefault(run_id, {})[node] = position, ""

    def remove(self, run_id: str) -> None:
        """Ask for a run no more."""
        with self._lock:
            self._marks.pop(run_id, None)

    def start(self, *, follows: bool) -> None:
        """Begin to ask; without `follows` once."""
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run, args=(follows,), daemon=True).start()

    def _run(self, follows: bool) -> None:
        try:
            tries = 0
            while not self._pool.is_closed:
                with self._lock:
                    marks = {run: dict(nodes) for run, nodes in self._marks.items()}
                if marks or not follows:
                    is_waiting = follows and not self._has_more
                    tries = self._ask(marks, WAIT if is_waiting else 0.0, tries)
                if not (follows or self._has_more):
                    return
                time.sleep(RETRY_DELAYS[min(tries, len(RETRY_DELAYS)) - 1] if tries else PAUSE)
        except Exception as e:  # noqa: BLE001 - raised by who reads the queue
            self._arrived.put(e)

    def _ask(
        self, marks: Mapping[str, Mapping[int, tuple[int, str]]], wait: float, tries: int
    ) -> int:
        """Ask once; return how often the host has not answered since it last did."""
        try:
            answer = self._pool.call(self.host, "events.poll", runs=marks, wait=wait)
            runs = self._read(answer, marks)
            self._has_more = any(c.has_more for nodes in runs.values() for c in nodes.values())
        except HostError as e:
            self._has_more = False
            self._pool.discard(self.host)
            with self._lock:  # its next answer says how all of them are
                for nodes in self._marks.values():
                    nodes |= {node: (position, "") for node, (position, _) in nodes.items()}
            self._arrived.put(HostChanges(self, marks, {}, e, tries + 1))
            return tries + 1
        with self._lock:
            for run_id, changes in runs.items():
                if run_id in self._marks:
                    marks_then = {n: (c.position, c.stamp) for n, c in changes.items()}
                    self._marks[run_id].update(marks_then)
        if runs or tries or not wait:
            self._arrived.put(HostChanges(self, marks, runs, has_more=self._has_more))
        return 0

    def _read(
        self, answer: Any, marks: Mapping[str, Mapping[int, object]]
    ) -> dict[str, dict[int, NodeChange]]:
        """Return what a host has answered of what it was asked. Raises HostError."""
        with checked(self.host):
            runs: dict[str, dict[int, NodeChange]] = {}
            for run_id, nodes in answer["runs"].items():
                for node, change in nodes.items():
                    if int(node) in marks.get(run_id, {}):
                        runs.setdefault(run_id, {})[int(node)] = _node_change(change)
            return runs


def _node_change(change: Any) -> NodeChange:
    view = None if change["view"] is None else NodeView.from_json(change["view"])
    if view is not None and view.now is not None:
        view.ahead = view.now - time.time()
    events = [(int(position), dict(event)) for position, event in change["events"]]
    return NodeChange(
        view, str(change["stamp"]), int(change["position"]), events, bool(change["more"])
    )


class RemoteSource:
    """Puts together what the hosts of a run have answered."""

    def __init__(self, run: RemoteRun, mark: Mark, feed: Callable[[str], HostFeed]) -> None:
        """`feed` returns what asks a host."""
        self.run = run
        self._notices: list[Notice] = []  # of hosts that have answered before the others
        self._feeds = {place.host: feed(place.host) for place in run.places()}
        self._answers: dict[str, query_status.Views | HostError] = {}
        self._has_more: dict[int, bool] = {}
        for place in run.places():
            self._feeds[place.host].add(run.id, place.node, mark.position(place.node))

    def serves(self, feed: HostFeed) -> bool:
        """Whether a node of the run is on that host."""
        return feed in self._feeds.values()

    def close(self) -> None:
        """Ask for the run no more."""
        for feed in self._feeds.values():
            feed.remove(self.run.id)

    def update(self, changes: HostChanges) -> RunView | None:
        """Return the run as it is with that answer; None where not all hosts have answered yet."""
        host, nodes = changes.feed.host, changes.runs.get(self.run.id, {})
        if self.run.id not in changes.ids or not (nodes or changes.error):
            return None
        if changes.error is not None:
            self._answers[host] = changes.error
        else:
            earlier = self._answers.get(host, {})
            own = {} if isinstance(earlier, HostError) else dict(earlier.get(self.run.id, {}))
            own |= {node: change.view for node, change in nodes.items() if change.view is not None}
            self._answers[host] = {self.run.id: own}
        self._has_more |= {node: change.has_more for node, change in nodes.items()}
        self._notices += [
            Notice(node, position, event)
            for node, change in nodes.items()
            for position, event in change.events
        ]
        return self.view()

    def view(self) -> RunView | None:
        """Return the run as its hosts have last answered; None where not all have."""
        if self._answers.keys() != self._feeds.keys():
            return None
        record, is_starting = self.run.record, mirror.is_starting(self.run.record)
        status = query_status.node_statuses(
            record, self.run.places(), self._answers, is_starting=is_starting
        )
        notices, self._notices = self._notices, []
        return RunView(
            status,
            notices,
            is_over=self.run.is_over(status) and not any(self._has_more.values()),
            failure=lambda: store.failure(record, status),  # its hosts have just said it
            now=time.time(),
            ahead=store.clock_offset(record),
        )
