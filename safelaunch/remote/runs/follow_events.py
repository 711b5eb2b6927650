"""The events of a run, or of all runs, here and on hosts, as they come."""

from __future__ import annotations

import heapq
import os
import queue
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import group_start, mirror, store
from safelaunch.runs.events import cursor as cursors
from safelaunch.runs.events.changes import RunView, changes
from safelaunch.runs.events.cursor import Cursor, Mark
from safelaunch.runs.events.local import LocalSource
from safelaunch.runtime import run_state
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.runtime.records import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.errors import HostError
    from safelaunch.remote.runs.catalog import RunCatalog
    from safelaunch.remote.runs.poll_events import HostChanges, HostFeed, RemoteSource
    from safelaunch.runs.groups import RunGroup
    from safelaunch.runs.store import Run

TICK = 0.2  # seconds between two looks at the runs of this machine
REFRESH = 2.0  # seconds between two looks at records that no host says anything of
TRIES = 3  # questions without an answer before the runs of a host are unknown
PROGRESS = 5.0  # seconds between two lines with the progress of one run


class Event(NamedTuple):
    """A line for programs: `data` is a JSON object; `cursor` goes on behind it."""

    data: dict[str, Any]
    cursor: str


class _Watched:
    """A run with what was reported of it."""

    def __init__(self, record: Run, source: LocalSource | RemoteSource, mark: Mark) -> None:
        self.record = record
        self.source = source
        self.mark = mark
        self.last: RunView | None = None  # how it was last seen, where a line for its steps waits
        self.progress_due = 0.0

    @property
    def is_progress_due(self) -> bool:
        return time.monotonic() >= self.progress_due

    def changes(self, views: Sequence[RunView]) -> Iterator[tuple[float, dict[str, Any], Mark]]:
        """Yield time, line and mark of each change, in the order in which they are reported.

        The times never go back, as those of lines about what came after an end may.
        """
        latest = 0.0
        for view in views:
            is_due = self.is_progress_due
            for line, mark in changes(self.mark, view._replace(is_progress_due=is_due)):
                latest = max(latest, line.get("time", latest))
                yield latest, line, mark
            self.last = None if is_due else view._replace(notices=())


class EventFollower:
    """Yields the events of runs; each carries all that was reported until then as its cursor."""

    def __init__(
        self, catalog: RunCatalog, since: str | None, *, follows: bool, interval: float = PROGRESS
    ) -> None:
        """`since` is a cursor; `interval` the seconds between two lines with progress of a run.

        Raises ConfigError.
        """
        self._catalog = catalog
        self._cursor = Cursor({}) if since is None else cursors.read(since)
        self._follows, self._interval = follows, interval
        self._watched: dict[str, _Watched] = {}
        self._reported: dict[str, Mark] = dict(self._cursor.runs)
        self._feeds: dict[tuple[str | None, str], HostFeed] = {}
        self._arrived: queue.Queue[HostChanges | Exception] = queue.Queue()
        self._changed = 0  # when the folder of the runs was
        self._silent: set[str] = set()  # hosts that do not answer
        self._skipped: set[str] = set()  # runs that had ended before
        self._group: RunGroup | None = None
        self._steps: dict[str, str] = {}  # run id -> its step, of a group
        self.errors: list[HostError] = []  # of hosts that do not answer, without `follows`

    def of_run(self, record: Run) -> Iterator[Event]:
        """Yield the events of a run, from its start or the cursor on."""
        self._reported = {record.id: self._reported.get(record.id, Mark())}
        self._cursor = Cursor({})
        if not self._reported[record.id].is_over:
            self._watch(record)
            yield from self._events()

    def of_group(self, group: RunGroup) -> Iterator[Event]:
        """Yield the events of the steps of a file, from their start or the cursor on.

        What has happened before comes in order of time, what happens later as it is seen.
        """
        self._group = group
        self._steps = {member.run.id: member.step for member in group.members}
        self._reported = {name: self._reported.get(name, Mark()) for name in self._steps}
        self._cursor = Cursor({})
        self._watch_steps()
        yield from self._events()

    def _watch_steps(self) -> bool:
        """Watch the steps of a group that have been started; return whether more may be."""
        group = self._group
        if group is None:
            return False
        may_come = group_start.is_starting(group.home, group.id)  # before the look at the folders
        waiting = [m for m in group.members if m.run.id not in self._watched]
        waiting = [m for m in waiting if not self._reported[m.run.id].is_over]
        new = [member.run for member in waiting if member.is_recorded]
        for run in new:
            self._watch(run)
        if new:  # a step before the one that it waits for
            order = [member.run.id for member in reversed(group.members)]
            watched = self._watched
            self._watched = {name: watched[name] for name in order if name in watched}
        return may_come and len(new) < len(waiting)

    def of_all(self) -> Iterator[Event]:
        """Yield the events of all runs: those since the cursor, or of all that have not ended."""
        is_fresh = not self._cursor.horizon
        records = store.all_runs(self._catalog.home)
        names = {record.id for record in records}
        missing = [self._record(name) for name in self._reported if name not in names]
        for record in [*records, *missing]:
            mark = self._reported.get(record.id)
            is_old = cursors.start_time(record.id) < self._cursor.horizon or is_fresh
            if mark is None and is_old and self._has_ended(record):
                self._skipped.add(record.id)
                self._reported[record.id] = Mark(is_over=True)
            elif mark is None or not mark.is_over:
                self._watch(record)
            else:
                self._skipped.add(record.id)
        self._advance()
        yield from self._events(finds_more=True)

    def _has_ended(self, record: Run) -> bool:
        return self._catalog.open(record).last_status().state in run_state.ENDED

    def _advance(self) -> None:
        """Let the cursor of all runs forget those that ended long ago."""
        newest = max(map(cursors.start_time, self._reported), default="")
        self._cursor = Cursor(self._reported, self._cursor.horizon).with_horizon(newest)
        self._reported = dict(self._cursor.runs)

    def _watch(self, record: Run) -> None:
        run, mark = self._catalog.open(record), self._reported.get(record.id, Mark())
        self._reported[record.id] = mark
        source: LocalSource | RemoteSource
        if isinstance(run, RemoteRun):
            from safelaunch.remote.runs.poll_events import RemoteSource  # noqa: PLC0415 - hosts

            path = run.pointer.hosts_file
            source = RemoteSource(run, mark, lambda host: self._feed(path, host))
        else:
            source = LocalSource(run, mark)
        self._watched[record.id] = _Watched(record, source, mark)

    def _feed(self, hosts_path: str | None, host: str) -> HostFeed:
        from safelaunch.remote.runs.poll_events import HostFeed  # noqa: PLC0415 - hosts only

        key = hosts_path, host
        if key not in self._feeds:
            self._feeds[key] = HostFeed(self._catalog.connect(hosts_path), host, self._arrived)
        return self._feeds[key]

    def _events(self, *, finds_more: bool = False) -> Iterator[Event]:
        self._start_feeds()
        silent = set(self._feeds.values())  # that have not answered yet
        pairs: list[tuple[_Watched, RunView]] = []
        due = 0.0
        while True:
            is_refresh, now = time.monotonic() >= due, time.monotonic()
            due = now + REFRESH if is_refresh else due
            if finds_more and self._follows:
                self._find_new(is_refresh=is_refresh)
            may_come = self._watch_steps()
            self._start_feeds()
            for watched in list(self._watched.values()):
                view = self._look(watched, is_refresh=is_refresh)
                pairs += [] if view is None else [(watched, view)]
            if not (self._steps and silent):  # of a group all is sorted by time, once it is known
                yield from self._report(pairs)
                pairs = []
            if not self._follows and not silent:
                return
            if not (finds_more or self._watched or may_come):
                return
            for answer in self._answers(TICK):
                if not answer.has_more:
                    silent.discard(answer.feed)
                yield from self._host_lines(answer)
                pairs += self._receive(answer)

    def _start_feeds(self) -> None:
        for feed in self._feeds.values():
            feed.start(follows=self._follows)

    def _find_new(self, *, is_refresh: bool) -> None:
        """Watch runs that were recorded since the last look."""
        folder = store.folder(self._catalog.home)
        try:
            changed = os.stat(folder).st_mtime_ns
            if changed == self._changed and not is_refresh:
                return
            self._changed, names = changed, os.listdir(folder)
        except OSError:
            return
        new = [n for n in names if n not in self._reported and n not in self._skipped]
        for name in sorted(filter(store.is_run_id, new), key=cursors.start_time):
            self._watch(self._record(name))
            self._advance()

    def _record(self, name: str) -> Run:
        return store.Run(name, os.path.join(store.folder(self._catalog.home), name))

    def _answers(self, timeout: float) -> Iterator[HostChanges]:
        """Yield what hosts have answered, after a wait for the first."""
        try:
            while True:
                answer = self._arrived.get(timeout=timeout)
                if isinstance(answer, Exception):
                    raise answer
                yield answer
                timeout = 0.001
        except queue.Empty:
            return

    def _look(self, watched: _Watched, *, is_refresh: bool) -> RunView | None:
        """Return a run as this machine sees it; None where nothing is new."""
        view: RunView | None = None
        if is_refresh and not os.path.isdir(watched.record.folder):
            reason = "its record was removed, as that of a start which fails is"
            view = RunView(Status(state="lost", reason=reason), is_over=True, now=time.time())
        elif isinstance(watched.source, LocalSource):
            if watched.mark.state in ("", "pending") and self._is_mirror(watched.record):
                return None  # a run on hosts, that is being recorded or is by now
            view = watched.source.poll()
        elif is_refresh and watched.mark.state in ("", "pending"):
            view = watched.source.view()
        if view is None and watched.last is not None and watched.is_progress_due:
            view = watched.last
        return view

    def _is_mirror(self, record: Run) -> bool:
        """Whether what seemed a run of this machine is on hosts: it is watched there then."""
        if not os.path.exists(os.path.join(record.node_dir, agent_runs.MIRROR)):
            return False
        if mirror.pointer(record) is not None:
            self._watch(record)
        return True

    def _report(self, pairs: Sequence[tuple[_Watched, RunView]]) -> Iterator[Event]:
        """Yield the lines of runs as they were seen, in order of time."""
        views: dict[_Watched, list[RunView]] = {}
        for watched, view in pairs:
            views.setdefault(watched, []).append(view)
        for watched, line, mark in _merged(views):
            name = watched.record.id
            if line.get("event") == "progress":
                watched.progress_due = time.monotonic() + self._interval
            watched.mark = self._reported[name] = mark
            if mark.is_over:
                self._close(watched)
            if line:
                step = {"step_name": self._steps[name]} if name in self._steps else {}
                yield self._event({"run": name, **step, **line})

    def _close(self, watched: _Watched) -> None:
        del self._watched[watched.record.id]
        if not isinstance(watched.source, LocalSource):
            watched.source.close()
        if self._cursor.horizon:
            self._advance()
            self._skipped.add(watched.record.id)

    def _host_lines(self, answer: HostChanges) -> Iterator[Event]:
        """Yield that a host does not answer any more, or answers again."""
        host, error = answer.feed.host, answer.error
        if error is not None and host not in self._silent:
            self._silent.add(host)
            yield self._host_event(host, error)
        elif error is None and host in self._silent:
            self._silent.remove(host)
            yield self._host_event(host, None)

    def _receive(self, answer: HostChanges) -> Iterator[tuple[_Watched, RunView]]:
        """Yield the runs of a host with what it has answered of them."""
        if answer.error is not None and not self._follows:
            self.errors.append(answer.error)
        elif answer.error is not None and answer.tries < TRIES:
            return  # most connections that are lost are soon made again
        for watched in list(self._watched.values()):
            source = watched.source
            if not isinstance(source, LocalSource) and source.serves(answer.feed):
                view = source.update(answer)
                if view is not None:
                    yield watched, view

    def _host_event(self, host: str, error: HostError | None) -> Event:
        line: dict[str, Any] = {
            "run": None,
            "time": round(time.time(), 3),
            "event": "host",
            "host": host,
            "answers": error is None,
        }
        return self._event(line if error is None else {**line, "reason": error.message})

    def _event(self, line: dict[str, Any]) -> Event:
        text = Cursor(self._reported, self._cursor.horizon).text()
        return Event({"version": 1, **line, "cursor": text}, text)


def _merged(
    views: dict[_Watched, list[RunView]],
) -> Iterator[tuple[_Watched, dict[str, Any], Mark]]:
    """Yield run, line and mark of all changes of runs, in order of time."""

    def of_run(watched: _Watched) -> Iterator[tuple[float, _Watched, dict[str, Any], Mark]]:
        for moment, line, mark in watched.changes(views[watched]):
            yield moment, watched, line, mark

    for _, watched, line, mark in heapq.merge(*map(of_run, views), key=lambda change: change[0]):
        yield watched, line, mark
