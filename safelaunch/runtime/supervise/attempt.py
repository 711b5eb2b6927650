"""One attempt of a run: its launcher, its ranks and whatever they start, from start to ECHILD.

It knows processes and logs, not policy: why an attempt is ended early it is told by `Control`,
and what comes after it the supervisor decides.
"""

from __future__ import annotations

import os
import time

from safelaunch.runtime import processes as runtime_processes
from safelaunch.runtime import rank_exits
from safelaunch.runtime.logs import merger
from safelaunch.runtime.supervise import launch
from safelaunch.runtime.supervise.control import DEFAULT_GRACE, Control, ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from safelaunch.runtime.records import RunRecord
    from safelaunch.runtime.supervise.journal import Journal
    from safelaunch.runtime.supervise.peers import Peers

    class Observer(Protocol):
        """Who watches an attempt; observer.py."""

        nodes: Peers | None

        def started(self, processes: dict[int, int]) -> None:
            """Take note of new processes {pid: start time}."""

        def feed(self, data: bytes) -> None:
            """Read what the job has written."""

        def tick(self, attempt: Attempt) -> str:
            """Return why the attempt has to end now, or nothing."""

        def keep_up(self) -> None:
            """Go on while the attempt is being ended."""

        def is_stopping(self, attempt: int, why: str) -> None:
            """Take note that the attempt is being stopped."""

        def pids(self) -> list[int]:
            """Return the pids of the observer's own programs."""

        def reaped(self, pid: int, status: int) -> bool:
            """Return whether a child that has ended was the observer's own."""

        def cancel(self) -> None:
            """End the observer's own programs."""

        def close(self, attempt: Attempt) -> None:
            """Look a last time: the rest of the logs has been merged."""


TICK = 0.05  # seconds between two looks at the logs where inotify does not tell
IDLE = 0.25  # and where it does: a file system that tells nothing is still followed
COALESCE = 0.01  # seconds in which many small writes become one look
LEFTOVER_PATIENCE = 10.0  # seconds that processes may outlive the launcher before they are ended
ORPHAN_PATIENCE = 2.0  # where a signal ended the launcher: nobody will collect its ranks
LEFTOVER_GRACE = 5.0
SCAN_SHARE = 200  # a walk through /proc may cost 1/200 of the time: it is long on big machines


class Attempt(object):
    """The processes and logs of one attempt."""

    def __init__(
        self,
        number: int,
        node_dir: str,
        run: RunRecord,
        journal: Journal,
        control: Control,
        *,
        subreaper: bool,
    ) -> None:
        self.number = number
        self.dir = node_dir
        self.run = run
        self.journal = journal
        self.control = control
        self.subreaper = subreaper
        self.observer: Observer | None = None
        self.launcher = 0
        self.launcher_start = 0
        self.wait_status = None  # type: int | None
        self.ended_ns = 0
        self.children_left = False  # before the start there is none
        self.ended_by = ""  # why it was ended early: a signal's name, or the observer's reason
        self.began = time.monotonic()
        self.seen: dict[int, int] = {}
        self.next_scan = 0.0
        self.scan_every = 0.5
        self.is_blind = False  # whether a look at the processes has failed
        self.last_look = 0.0
        libc = launch.libc()
        self.exits = rank_exits.Exits(node_dir, number)
        self.merger = merger.Merger(
            journal.logs,
            run.rank_logs,
            extra=run.logs,
            cwd=run.cwd,
            since=time.time(),
            skip=[run.log] if run.log else [],
        )
        self.watch = merger.Watch(libc)

    def start(self, script: str, umask: int, limits: tuple[int, int] | None = None) -> None:
        """Start the launch script, with these limits of open files where they were raised.

        Raises OSError, with nothing started.
        """
        path = os.path.join(self.journal.logs, "launcher.log")
        out = os.open(path, self.journal.flags, 0o600)
        try:
            self.watch.add(self.journal.logs)
            self.watch.add(os.path.join(self.dir, "ranks"))
            environment = launch.job_environment(self.run, self.dir, self.number)
            self.launcher = launch.fork(script, out, environment, umask, limits)
            self.children_left = True
        finally:
            os.close(out)
        found = runtime_processes.stat_of(self.launcher)
        self.launcher_start = found[2] if found else 0

    # -- loop ----------------------------------------------------------------------------------

    def follow(self, wakeup: int, observer: Observer) -> None:
        """Follow the attempt until nothing of it is left, or it has been ended."""
        self.observer = observer
        if not self.control.signals:
            self.control.kill_at = float("inf")
        ended_at = 0.0
        while self.children_left:
            self._sleep(wakeup)
            self._turn()
            self._scan()
            verdict = observer.tick(self)
            if self.control.signals or verdict:
                self.end(self.control.signals[0] if self.control.signals else verdict)
                break
            if self.wait_status is not None and self.children_left:
                observer.cancel()  # our own helpers are no leftovers
                ended_at = ended_at or time.monotonic()
                orphaned = os.WIFSIGNALED(self.wait_status)
                patience = ORPHAN_PATIENCE if orphaned else LEFTOVER_PATIENCE
                if time.monotonic() - ended_at > patience:
                    self._end_leftovers()
                    break
        observer.cancel()
        if not self.subreaper:
            self._end_rest(lambda: runtime_processes.marked(self.run.id), LEFTOVER_GRACE)
        self._note_ends(ready(self.exits.fds, 0.0))  # who died just before the last look
        self.exits.close()
        for piece in self.merger.remaining():
            self._pass(piece)
        observer.close(self)
        self.merger.close()
        self.watch.close()

    def _sleep(self, wakeup: int) -> None:
        """Wait until something happens: a signal, a child's or a rank's end, more in a log.

        Where there is more to read nothing is waited for, but all that has happened is heard: in a
        flood of output ranks die too, and the order of their deaths tells the cause.
        """
        behind, blind = self.merger.is_behind(), self.watch.fd < 0
        watched = [wakeup, *self.exits.fds] if blind else [wakeup, self.watch.fd, *self.exits.fds]
        found = ready(watched, 0.0 if behind else TICK if blind else IDLE)
        self.exits.update()  # at once: a rank may live for some milliseconds only
        self._note_ends(found)
        if wakeup in found:
            try:
                os.read(wakeup, 4096)
            except OSError:
                pass
        if self.watch.fd in found:
            if not behind:
                time.sleep(max(0.0, min(COALESCE, self.last_look + COALESCE - time.monotonic())))
            self.watch.clear()

    def _note_ends(self, found: list[int]) -> None:
        now = time.time_ns()  # of all of them: nobody knows which of two seen at once was first
        for fd in found:
            if fd in self.exits.fds:
                self.exits.on_readable(fd, now)

    def _turn(self) -> None:
        self.last_look = time.monotonic()
        self.exits.update()
        self._note_ends(ready(self.exits.fds, 0.0))  # also while an attempt is being ended
        self._reap()
        for piece in self.merger.pieces():
            self._pass(piece)
        self.journal.pane.tick()
        if self.observer is not None:
            self.observer.keep_up()

    def _pass(self, data: bytes) -> None:
        if data:
            self.journal.log(data)
            if self.observer is not None:
                self.observer.feed(data)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.children_left = False
                return
            if pid == 0:
                return
            if self.observer is not None and self.observer.reaped(pid, status):
                continue
            self.exits.on_reaped(pid, status)
            if pid == self.launcher and self.wait_status is None:
                self.wait_status = status
                self.ended_ns = time.time_ns()

    def _descendants(self) -> dict[int, int]:
        """Return what the run has below us, without our own helpers."""
        if not self.children_left:
            return {}
        below: dict[int, int] = runtime_processes.descendants(os.getpid())
        if self.observer is not None:
            for pid in self.observer.pids():
                for helper in (pid, *runtime_processes.descendants(pid)):
                    below.pop(helper, None)
            if self.wait_status is not None and not below and self.observer.pids():
                self.children_left = False  # only a helper is left, stuck in a driver perhaps
        return below

    def _scan(self) -> None:
        """Record each descendant that was ever seen: after our death it is known by identity."""
        if time.monotonic() < self.next_scan:
            return
        try:
            self._look_below()
        except OSError as e:  # no descriptor, no memory: the job goes on, and the next look counts
            self.next_scan = time.monotonic() + self.scan_every
            if not self.is_blind:
                self.is_blind = True
                self.journal.broken("look at the processes", e)

    def _look_below(self) -> None:
        now = time.monotonic()
        living = self._descendants()
        fresh = {p: s for p, s in living.items() if self.seen.get(p) != s}
        self.seen = living
        if fresh:
            self.scan_every = 0.5
            self.journal.processes(fresh)
            if self.observer is not None:
                self.observer.started(fresh)
        took = time.monotonic() - now
        self.next_scan = now + max(self.scan_every, took * SCAN_SHARE)
        self.scan_every = min(self.scan_every * 1.5, 5.0)
        if self.journal.restore(self.seen):
            self.watch.add(self.journal.logs)
            self.watch.add(os.path.join(self.dir, "ranks"))

    # -- ending --------------------------------------------------------------------------------

    def end(self, why: str) -> None:
        """TERM the launcher, then what outlives it; KILL after the grace."""
        if self.wait_status is None:
            # an attempt that had ended by itself keeps its own end; only leftovers are stopped
            self.ended_by = why
            if self.observer is not None:
                self.observer.is_stopping(self.number, why)
        self.journal.event("stopping", why=why)
        for piece in self.merger.pieces():
            self._pass(piece)
        nodes = self.observer.nodes if self.observer is not None else None
        said = nodes.why() if nodes and why == "node" else self.control.in_words(why, self.run)
        self.journal.tell("%s: stopping" % said)
        if not self.control.signals:
            self.control.arm(DEFAULT_GRACE)
        runtime_processes.terminate(self.launcher, self.launcher_start)
        while self.wait_status is None and not self.control.is_late():
            time.sleep(0.02)
            self._turn()
        self._end_rest(self._descendants, None)

    def _end_leftovers(self) -> None:
        left = self._descendants()
        if left:
            self.journal.event("leftovers", processes=len(left), names=_names(left))
            self.journal.status.leftovers = len(left)
            some = "1 process" if len(left) == 1 else "%d processes" % len(left)
            self.journal.tell("%s outlived the launcher: stopping" % some)
            self._end_rest(self._descendants, LEFTOVER_GRACE)

    def _end_rest(self, find: runtime_processes.Find, grace: float | None) -> None:
        if grace is not None:
            self.control.arm(grace)

        def find_now() -> dict[int, int]:
            self._turn()
            found: dict[int, int] = find()
            return found

        left = runtime_processes.end_all(find_now, self.control.is_late)
        self._reap()
        if left:
            self.journal.status.unkillable = sorted(left)
            self.journal.event("unkillable", processes=sorted(left))

    def outcome(self) -> dict[str, Any]:
        """Return how the launcher ended: pid, exit_code (None: not seen), signal, time_ns."""
        if self.wait_status is None:
            return {"pid": self.launcher, "exit_code": None, "signal": "", "time_ns": 0}
        code, name = rank_exits.decode(self.wait_status)
        return {"pid": self.launcher, "exit_code": code, "signal": name, "time_ns": self.ended_ns}


def _names(processes: dict[int, int]) -> list[str]:
    names = []
    for pid in sorted(processes)[:20]:
        try:
            with open("/proc/%d/comm" % pid, errors="replace") as file:
                names.append("%d %s" % (pid, file.read().strip()))
        except OSError:
            pass
    return names
