"""One attempt of a run: its launcher, its ranks and whatever they start, from start to ECHILD.

It handles processes and logs; `Control` knows why an attempt is ended early, and the supervisor
decides what follows.
"""

# ruff: noqa: PLC0415 - leftovers: a launcher's start does not need it

from __future__ import annotations

import os
import signal
import time

from safelaunch.runtime import cgroup, processes, rank_exits
from safelaunch.runtime.logs import merger
from safelaunch.runtime.ranks import fork_servers
from safelaunch.runtime.supervise import launch
from safelaunch.runtime.supervise.attempts import log_pipes
from safelaunch.runtime.supervise.control import SMOKE, Control, readable
from safelaunch.runtime.units import duration, quantity, starter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.runtime.monitor.leftovers import LeftoverEnd, Leftovers
    from safelaunch.runtime.supervise.attempts.observer import Observer
    from safelaunch.runtime.supervise.journal import Journal

TICK = 0.05  # seconds between two looks at the logs without inotify
IDLE = 0.25  # and with inotify: a file system without events is still followed
MARKER_TICK = 0.01  # seconds between two looks for new ranks, while the logs are not looked at
LEFTOVER_PATIENCE = 10.0  # seconds without work that processes may outlive the launcher
ORPHAN_PATIENCE = 2.0  # after a signal to the launcher, which cannot collect its ranks then
NOTICE = 1.0  # seconds after the launcher's end: what ends with it needs no word
LEFTOVER_GRACE = 5.0
SIGNAL_SPREAD = 0.5  # seconds within which an engine's signal has come to all processes of a step
COPY_PATIENCE = 5.0  # seconds for the last output to be copied, and to end its copier
SCAN_SHARE = 200  # a walk through /proc may cost 1/200 of the time: it is long on big machines


class Attempt:
    """The processes and logs of one attempt."""

    observer: Observer  # from `follow` on

    def __init__(self, number: int, journal: Journal, control: Control, *, subreaper: bool) -> None:
        self.number = number
        self.dir, self.run = journal.dir, journal.run
        self.journal = journal
        self.control = control
        self.subreaper = subreaper
        self.starter = starter(self.run.start)  # as messages call the launcher
        self.launcher = 0
        self.launcher_start = 0
        self.wait_status: int | None = None
        self.ended_ns = 0
        self.has_children = False  # before the start there are none
        self.ended_by = ""  # why it was ended early: a signal's name, or the observer's reason
        self.ended_leftovers: set[int] = set()  # pids of what outlived the launcher and was ended
        self.leftovers: Leftovers | None = None  # from the launcher's end on
        self.leftover_ends: list[LeftoverEnd] = []  # of programs, in order
        self.working: dict[int, str] = {}  # those that work, with their commands
        self.launcher_end = self.worked_at = 0.0  # monotonic
        self.began = time.monotonic()
        self.living: dict[int, int] = {}  # descendants at the last scan: {pid: start time}
        self.next_scan = self.last_scan = 0.0
        self.scan_every = 0.5
        self.scan_cost = 0.0
        self.is_blind = False  # whether a scan has failed
        self.last_look = 0.0
        self.exits = rank_exits.Exits(self.dir, number)
        self.pipes = log_pipes.LogPipes(journal, number)
        self.merger = merger.Merger(
            journal.logs,
            self.run.rank_logs,
            extra=self.run.logs,
            cwd=self.run.cwd,
            since=time.time(),
            skip=[self.run.log] if self.run.log else [],
        )
        self.watch = merger.Watch(launch.libc())

    def start(self, script: str, umask: int, limits: tuple[int, int] | None) -> None:
        """Start the launch script, with these limits of open files where they were raised.

        Raises OSError, with nothing started.
        """
        out = self.pipes.open()
        group = self.journal.status.cgroup
        try:
            self.pipes.start()  # first: a job must have a reader also if we are killed now
            if group and not cgroup.enter(group):
                group = self.journal.status.cgroup = None
            self._watch_folders()
            environment = launch.job_environment(self.run, self.dir, self.number, out)
            # of a node without ranks nothing is to be saved once its supervisor is gone
            is_bound = self.run.ranks == 0 and self.run.service_nodes > 0
            self.launcher = launch.fork(script, out, environment, umask, limits, is_bound=is_bound)
            self.has_children = True
        finally:
            if group:
                cgroup.leave(group)  # the launcher was born in it
            os.close(out)
        self.launcher_start = (processes.stat_of(self.launcher) or ("", 0, 0))[2]

    def _watch_folders(self) -> None:
        self.watch.add(self.journal.logs)
        self.watch.add(os.path.join(self.dir, "ranks"))
        self.watch.add(self.pipes.folder)

    # -- loop ----------------------------------------------------------------------------------

    def follow(self, wakeup: int, observer: Observer) -> None:
        """Follow the attempt until nothing of it is left, or it has been ended."""
        self.observer = observer
        if not self.control.signals:
            self.control.kill_at = float("inf")
        self.control.is_running = True
        while self.has_children:
            self._sleep(wakeup)
            self._turn()
            self._scan()
            reason = observer.tick(self) or self.control.notice()
            if self.control.signals or reason:
                self.end(self.control.signals[0] if self.control.signals else reason)
                break
            if self.wait_status is not None and self.has_children and self._is_over():
                self._end_leftovers()
                break
        else:
            self._forget_work()  # all have ended by themselves
            self._await_signal(wakeup)
        self.control.is_running = self.control.is_preempted = False
        observer.cancel()
        if not self.subreaper:
            self._end_rest(lambda: processes.marked(self.run.id), LEFTOVER_GRACE)
        self._copy_rest(wakeup)
        self._record_ends(readable(self.exits.fds, 0.0))  # those that died since the last look
        self.exits.close()
        for piece in self.merger.remaining():
            self._pass_on(piece)
        observer.close(self)
        self.merger.close()

    def _copy_rest(self, wakeup: int) -> None:
        """Wait until all output is in the logs; at the latest end the copier."""
        for is_late in (False, True):
            if is_late:
                self.pipes.kill()
            deadline = time.monotonic() + COPY_PATIENCE
            while self.pipes.is_open and time.monotonic() < deadline:
                self._sleep(wakeup)
                self._turn()
        self.pipes.close()

    def _sleep(self, wakeup: int) -> None:
        """Wait until something happens: a signal, a child's or a rank's end, more in a log.

        While the merger is behind there is no wait, but all events are read: in a flood of output
        ranks die too, and the order of their deaths shows the cause.
        """
        pause, blind = self.merger.pause, self.watch.fd < 0
        seconds = 0.0 if not pause else TICK if blind else IDLE
        ready = self._wait([] if blind else [self.watch.fd], wakeup, seconds)
        end = self.last_look + pause
        while ready == [self.watch.fd] and (rest := end - time.monotonic()) > 0:
            ready += self._wait([], wakeup, min(rest, MARKER_TICK))
        if wakeup in ready:
            self.control.clear()
        if self.watch.fd in ready:
            self.watch.clear()

    def _wait(self, others: list[int], wakeup: int, seconds: float) -> list[int]:
        """Wait until one is readable; record the starts and ends of ranks."""
        ready = readable([wakeup, *others, *self.exits.fds], seconds)
        self.exits.update()  # at once: a rank may live for some milliseconds only
        self._record_ends(ready)
        return ready

    def _record_ends(self, ready: list[int]) -> None:
        now = time.time_ns()  # the same for all: which of them was first cannot be known
        for fd in ready:
            if fd in self.exits.fds:
                self.exits.on_readable(fd, now)

    def _turn(self) -> None:
        self.last_look = time.monotonic()
        self.exits.update()
        self._record_ends(readable(self.exits.fds, 0.0))  # also while an attempt is being ended
        self._reap()
        self.pipes.tick()
        for piece in self.merger.pieces():
            self._pass_on(piece)
        self.journal.pane.tick()
        self.observer.on_turn()

    def _pass_on(self, data: bytes) -> None:
        if data:
            self.journal.log(data)
            self.observer.feed(data)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                # without a subreaper what was left behind is not our child: the next scan shows it
                is_unknown = self.next_scan == 0.0 or bool(self.living)
                is_left = not self.subreaper and is_unknown
                self.has_children = is_left or self.pipes.is_waiting
                return
            if pid == 0:
                return
            if self.observer.reaped(pid, status) or self.pipes.reaped(pid, status):
                continue
            self.exits.on_reaped(pid, status)
            if pid in self.working and not self.ended_by:
                self._add_end(pid, status)
            if pid == self.launcher and self.wait_status is None:
                self.wait_status = status
                self.ended_ns = time.time_ns()
                self.launcher_end = self.worked_at = time.monotonic()
                self.next_scan = 0.0  # what else is there may work
            elif fork_servers.discard(self.dir, pid):
                self._say_imports_end(status)
            elif self.wait_status is not None and fork_servers.pids(self.dir):
                self.next_scan = 0.0  # it may have been the last process but for that one
            elif self.working:
                # it may have been the last one that worked
                self.next_scan = min(self.next_scan, self.last_scan + self.scan_cost * SCAN_SHARE)

    def _say_imports_end(self, status: int) -> None:
        code, name = rank_exits.decode(status)
        if code:  # else it said why the modules do not fit
            self.journal.notify(
                f"the process that keeps the preloaded modules has ended ({name or code}): "
                "a restart imports them anew"
            )

    def _descendants(self) -> dict[int, int]:
        """Return {pid: start time} of what the attempt has below us, without our own helpers."""
        if not self.has_children:
            return {}
        below: dict[int, int] = processes.descendants(os.getpid())
        if not self.subreaper:
            below.update(processes.marked(self.run.id))
        below.pop(self.pipes.pid, None)
        helpers = self.observer.pids()
        for pid in helpers:
            for helper in (pid, *processes.descendants(pid)):
                below.pop(helper, None)
        servers = [pid for pid in fork_servers.pids(self.dir) if below.pop(pid, None) is not None]
        if self.wait_status is not None and not below and (helpers or servers):
            # only a helper is left, stuck in a driver perhaps, or what the next attempt forks from
            self.has_children = False
        return below

    def _scan(self) -> None:
        """Record each descendant: after our death it is identified by that."""
        now = time.monotonic()
        if now < self.next_scan:
            return
        try:
            self._scan_descendants(now)
        except OSError as e:  # no descriptor, no memory: the job goes on, the next scan counts
            self.next_scan = time.monotonic() + self.scan_every
            if not self.is_blind:
                self.is_blind = True
                self.journal.broken("scan of the processes", e)

    def _scan_descendants(self, now: float) -> None:
        began = time.process_time()  # on a busy machine the time on the clock is that of others
        living = self._descendants()
        fresh = {p: s for p, s in living.items() if self.living.get(p) != s}
        self.living = living
        if fresh:
            self.scan_every = 0.5
            self.journal.processes(fresh)
            self.observer.started(fresh)
        if self.wait_status is not None:
            self._note_work(now)
        self.last_scan, self.scan_cost = now, time.process_time() - began
        self.next_scan = now + max(self.scan_every, self.scan_cost * SCAN_SHARE)
        notice = self.launcher_end + NOTICE
        if self.working and now < notice:
            self.next_scan = min(self.next_scan, notice)
        self.scan_every = min(self.scan_every * 1.5, 5.0)
        if self.journal.restore(living):
            self._watch_folders()

    # -- what outlives the launcher ------------------------------------------------------------

    def _is_over(self) -> bool:
        """Whether what outlives the launcher has to end now: it has not worked for a while."""
        if self.working:
            return False
        self.observer.cancel()  # our own helpers are no leftovers
        is_orphaned = os.WIFSIGNALED(self.wait_status or 0)
        patience = ORPHAN_PATIENCE if is_orphaned else LEFTOVER_PATIENCE
        if time.monotonic() - self.worked_at <= patience:
            return False
        self.next_scan = 0.0  # since the last one a script may have started its next step
        self._scan()
        return not self.working

    def _note_work(self, now: float) -> None:
        """Record which of the processes that outlive the launcher work."""
        from safelaunch.runtime.monitor import leftovers

        self.leftovers = self.leftovers or leftovers.Leftovers()
        pids: list[int] = []
        if self.living and self._may_outlive():
            pids = self.leftovers.working(self.living, self.exits.running(), now)
        self.working = {pid: self.working.get(pid) or leftovers.command(pid) for pid in pids}
        if pids:
            self.worked_at = now
        status = self.journal.status
        is_same = [process.pid for process in status.leftover_processes] == pids
        if is_same or now - self.launcher_end < NOTICE:
            return
        code, status.exit_code = status.exit_code, self.outcome()["exit_code"]
        status.leftover_processes = leftovers.records(self.working)
        if code is None:
            running = leftovers.describe(status.leftover_processes)
            self.journal.event("launcher-ended", exit_code=status.exit_code, running=running)
            self.journal.notify(
                f"{self.starter} has ended with {status.exit_code}; still running: {running}"
            )
        self.journal.save()

    def _add_end(self, pid: int, status: int) -> None:
        from safelaunch.runtime.monitor import leftovers

        process = leftovers.records({pid: self.working[pid]})[0]
        self.leftover_ends.append(leftovers.LeftoverEnd(process, status))

    def _forget_work(self) -> None:
        if self.journal.status.leftover_processes:
            self.journal.status.leftover_processes = ()

    def _may_outlive(self) -> bool:
        """Whether work of the job may go on: after a good end, or that of a script.

        A script may fail for a reason of its own. Any other launcher, and a failed rank, take the
        rest of the job along.
        """
        if self.wait_status == 0:
            return True
        is_script = self.run.single == "shell" and not os.WIFSIGNALED(self.wait_status or 0)
        return is_script and not self.exits.has_failed()

    # -- ending --------------------------------------------------------------------------------

    def end(self, why: str) -> None:
        """TERM the launcher, then what outlives it; KILL after the grace."""
        if self.wait_status is None or self.working or self._ends_with_step():
            # an attempt that had ended by itself keeps its own end; only leftovers are stopped
            self.ended_by = why
            self.observer.is_stopping(self.number, why)
        self._forget_work()
        self.journal.event("stopping", why=why)
        for piece in self.merger.pieces():
            self._pass_on(piece)
        nodes = self.observer.nodes
        reason = nodes.why() if nodes and why == "node" else self.control.describe(why, self.run)
        self.journal.notify(f"{reason}: stopping")
        if not self.control.signals:
            self.control.arm(self.control.grace(why))
        if why == SMOKE and self.run.rank_logs:
            # torchrun answers TERM with a traceback, in a run that has succeeded; its ranks get the
            # TERM below, which they would have had from it
            processes.send(self.launcher, self.launcher_start, signal.SIGKILL)
        else:
            processes.terminate(self.launcher, self.launcher_start)
        while self.wait_status is None and not self.control.is_late():
            time.sleep(0.02)
            self._turn()
        self._end_rest(self._descendants, None)

    def _ends_with_step(self) -> bool:
        """Whether what has ended the launcher may be the signal that has come to the supervisor.

        An engine signals all processes of a step at once (scancel(1)), and podman all of a
        container: which dies first is chance.
        """
        is_step = self.run.engine is not None or self.run.container is not None
        return is_step and self.wait_status not in (None, 0)

    def _await_signal(self, wakeup: int) -> None:
        """Wait a moment for a signal to this process that the launcher may have had first."""
        if self._ends_with_step() and not self.ended_by:
            deadline = time.monotonic() + SIGNAL_SPREAD
            while not self.control.signals and (left := deadline - time.monotonic()) > 0:
                readable([wakeup], left)
                self.control.clear()
            if self.control.signals:
                self.end(self.control.signals[0])

    def _end_leftovers(self) -> None:
        left = self._descendants()
        if not left:
            return
        from safelaunch.runtime.monitor import leftovers

        waited = time.monotonic() - self.launcher_end
        processes_ = leftovers.records({pid: leftovers.command(pid) for pid in left}, waited)
        ranks = self.exits.running()
        programs = [p for p in processes_ if leftovers.is_program(p.pid, ranks)]
        self.leftover_ends += [leftovers.LeftoverEnd(program) for program in programs]
        names = [f"{process.pid} {process.command}" for process in processes_]
        self.journal.event("leftovers", processes=len(left), names=names[:20], waited=waited)
        self.journal.notify(
            f"{quantity(len(left), 'process')} outlived {self.starter} by {duration(waited)}, "
            f"{leftovers.describe(processes_)}: stopping"
        )
        self._end_rest(self._descendants, LEFTOVER_GRACE)
        self.journal.status.leftovers = len(left)
        self.journal.status.leftover_processes = processes_

    def _end_rest(self, find: processes.Find, grace: float | None) -> None:
        if grace is not None:
            self.control.arm(grace)

        def find_now() -> dict[int, int]:
            self._turn()
            left = find()
            if not self.ended_by:
                self.ended_leftovers.update(left)
            return left

        left = processes.end_all(find_now, self.control.is_late)
        self._reap()
        if left:
            self.journal.status.unkillable = sorted(left)
            self.journal.event("unkillable", processes=sorted(left))

    def outcome(self) -> dict[str, Any]:
        """Return how the launcher ended: pid, exit_code (None: not seen), signal, time_ns.

        And `leftovers`, the pids of those that outlived it and were ended.
        """
        if self.wait_status is None:
            return {"pid": self.launcher, "exit_code": None, "signal": "", "time_ns": 0}
        code, name = rank_exits.decode(self.wait_status)
        return {
            "pid": self.launcher,
            "exit_code": code,
            "signal": name,
            "time_ns": self.ended_ns,
            "leftovers": frozenset(self.ended_leftovers),
        }
