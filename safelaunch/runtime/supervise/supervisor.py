"""Owns one node of a run: starts launch.sh, follows its logs, ends it, and records how it ended.

    python -I -S -B supervisor.py NODE_DIR

A child subreaper: whatever the run starts, also detached, becomes its child, and wait() -> ECHILD
proves that none is left. TERM or INT stops the job, HUP is ignored. It reads run.json; journal.py
does all writing; attempt.py knows the processes; outcome.py says how an attempt ended.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time

# in a run directory the package lies below runtime/, and nothing else is on the path
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from safelaunch.runtime import claim, processes
from safelaunch.runtime.records import AttemptRecord, Process, RunRecord, Waiting
from safelaunch.runtime.supervise import attempt, journal, launch, own_files
from safelaunch.runtime.supervise import control as supervise_control
from safelaunch.runtime.units import job_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import Failure
    from safelaunch.runtime.supervise.observer import Observer
    from safelaunch.runtime.supervise.outcome import Outcome
    from safelaunch.runtime.supervise.peers import Peers
    from safelaunch.runtime.supervise.recovery import Decision, NodeEnd

SAVE_PATIENCE = 3600  # seconds in which the end is written again and again to a disk that is full
# in small steps: between two of them ranks that live for milliseconds are looked for
OBSERVERS = (
    *("monitor.oom_kills", "monitor.gpu_load", "monitor.sampler", "logs.size_cap"),
    *("progress.flood_filter", "progress.tracker", "progress.watchdog", "hang.flight_recorder"),
    *("hang.proc_stack", "hang.stacks", "hang.evidence", "supervise.recovery"),
    *("progress.checkpoint_line", "supervise.observer", "backends", "run_state"),
)
# rank_exits.py asks for fcntl: it must be there before descriptors run out
LATE = ("fcntl", *("safelaunch.runtime." + part for part in OBSERVERS))
LOOK = 5.0  # seconds between two looks at the run directory while there is nothing to follow
AGAIN = "launch.%d.sh"  # the script of attempt n, beside launch.sh


class Supervisor(object):
    """One node's run from start to end, over all its attempts."""

    def __init__(
        self,
        node_dir: str,
        run: RunRecord,
        umask: int,
        limits: tuple[int, int] | None,
        *,
        subreaper: bool,
    ) -> None:
        self.dir = node_dir
        self.run = run
        self.umask = umask  # the caller's, as the limits of open files where we have raised ours
        self.limits = limits
        self.subreaper = subreaper
        self.control = supervise_control.Control(node_dir)
        self.journal = journal.Journal(node_dir, run)
        if not subreaper:
            note = "detached processes are found by their mark only"
            self.journal.event("no-subreaper", note=note)
        self.attempts: list[AttemptRecord] = []
        self.began = time.monotonic()
        self.observer: Observer | None = None
        self.nodes: Peers | None = None  # the others, where there are several
        self.journal.start_attempt(1)
        self.current = self._attempt(1)

    def _attempt(self, number: int) -> attempt.Attempt:
        return attempt.Attempt(
            number, self.dir, self.run, self.journal, self.control, subreaper=self.subreaper
        )

    # -- start ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start launch.sh. Raises OSError, with nothing started."""
        self.journal.open()
        self._begin(os.path.join(self.dir, "launch.sh"), AttemptRecord())
        hint = "[safelaunch] %s: Ctrl-B D leaves it running, Ctrl-C stops it\r\n" % self.run.id
        self.journal.show(hint.encode())

    def _begin(self, script: str, record: AttemptRecord) -> None:
        """Start the script of the current attempt; `record` is completed. Raises OSError."""
        self.current.start(script, self.umask, self.limits)
        record.attempt, record.started_at = self.current.number, time.time()
        self.attempts.append(record)
        status = self.journal.status
        status.state, status.attempts = "running", self.attempts
        status.launcher = Process(pid=self.current.launcher, start=self.current.launcher_start)
        status.started_at = status.started_at or record.started_at
        status.waiting = None
        self.journal.save()
        self.journal.event("started", attempt=record.attempt, launcher=self.current.launcher)

    # -- attempts ------------------------------------------------------------------------------

    def run_attempts(self, wakeup: int) -> None:
        """Follow the attempts until one ends for good."""
        self.current.exits.update()
        self._hold()
        for part in LATE:  # once the job is on its way; meanwhile ranks may come and go
            self.current.exits.update()
            importlib.import_module(part)
        self.current.exits.update()
        from safelaunch.runtime.supervise import observer  # noqa: PLC0415 - as above

        if len(self.run.hosts) > 1:
            from safelaunch.runtime.supervise import peers  # noqa: PLC0415 - most runs have one node

            self.nodes = peers.open_peers(self.dir, self.run, self.journal)
        self.observer = observer.Observer(self.dir, self.run, self.journal, self.nodes)
        while True:
            self.observer.start_attempt(self.current)
            self.current.follow(wakeup, self.observer)
            decision = self._judge(wakeup)
            if decision is None:
                return
            stopped = self._wait(decision, wakeup)
            if stopped:
                self._stopped_waiting(stopped)
                return
            if not self._again(decision):
                return

    def _hold(self) -> None:
        """Take what a removed run directory would take away into memory."""
        try:
            self.journal.keep(own_files.hold().files)
        except OSError as e:
            self.journal.broken("memory of its own files", e)

    def _judge(self, wakeup: int) -> Decision | None:
        """Record how the attempt ended; return what comes next, None for the end of the run."""
        assert self.observer is not None  # noqa: S101 - begin() made it
        try:
            from safelaunch.runtime.supervise import outcome  # noqa: PLC0415 - as observe

            result = outcome.determine(
                self.dir, self.run, self.current, self.observer, self.attempts
            )
        except Exception as e:  # noqa: BLE001 - as in _judge
            self.journal.broken("judgement", e)
            code = self.current.outcome()["exit_code"]
            ended = "stopped" if self.control.signals else "succeeded" if code == 0 else "failed"
            self.journal.status.state, self.journal.status.exit_code = ended, code
            self._tell_nodes(None)
            return None
        for warning in result.warnings:
            self.journal.warn(warning)
        status = self.journal.status
        status.update(result.status)
        failure = result.failure
        if failure is not None:
            self.journal.fail(failure)
            brief = {"class": failure.class_name, "rank": failure.rank, "what": failure.what}
            self.journal.event("failed", attempt=self.current.number, **brief)
        self._tell_nodes(failure)
        if self.nodes is not None and self.run.recovery:
            decision = self._agreed(result, wakeup)
        elif len(self.run.hosts) > 1:
            decision = None  # alone it would wait for the others
        else:
            decision = result.decide() if status.state == "failed" else None
        if decision is None:
            return None
        self.attempts[-1].next = decision.why
        if decision.action != "restart":
            if self.run.recovery:
                self.journal.event("no-restart", why=decision.why)
                status.recovery = decision.why
            return None
        return decision

    def _tell_nodes(self, failure: Failure | None) -> None:
        """Tell the other nodes how this one's attempt has ended."""
        if self.nodes is None:
            return
        from safelaunch.runtime.supervise import recovery  # noqa: PLC0415 - the peers have it by now

        status = self.journal.status
        end = recovery.NodeEnd(state=status.state, stopped_by=status.stopped_by)
        if failure is not None:
            end.class_name, end.rank, end.what = failure.class_name, failure.rank, failure.what
            end.role, end.time, end.exit_code = failure.role, failure.time, failure.exit_code
            end.unmet = failure.unmet or None
        try:
            self.nodes.ended(self.current.number, end)
        except Exception as e:  # noqa: BLE001 - as in _judge
            self.journal.broken("word to the other nodes", e)
            self.nodes = None

    def _tell_not_started(self, number: int, **end: str) -> None:
        """Tell the other nodes that this one takes no part in an attempt, and why."""
        if self.nodes is not None:
            from safelaunch.runtime.supervise import recovery  # noqa: PLC0415 - the peers have it

            try:
                self.nodes.ended(number, recovery.NodeEnd.from_json(end))
            except Exception as e:  # noqa: BLE001 - as in _judge
                self.journal.broken("word to the other nodes", e)

    def _agreed(self, result: Outcome, wakeup: int) -> Decision | None:
        """Return what comes next on all nodes; None for the end of the run."""
        assert self.nodes is not None  # noqa: S101 - asked before

        def decide(ends: dict[int, NodeEnd]) -> Decision:
            decision = result.decide_for_all(ends)
            decision.port = _free_port(self.current.number + 1)
            return decision

        try:
            decision = self.nodes.agree(self.current.number, decide, wakeup, self.control)
        except Exception as e:  # noqa: BLE001 - as in _judge
            self.journal.broken("agreement of the nodes", e)
            return None
        is_over = decision is not None and decision.action != "restart"
        return None if is_over and self.journal.status.state == "succeeded" else decision

    def _wait(self, decision: Decision, wakeup: int) -> str:
        """Wait before a restart; return why the run was stopped meanwhile, or nothing."""
        until = time.monotonic() + decision.delay
        limit = self.run.max_duration
        assert self.observer is not None  # noqa: S101 - begin() made it
        last = self.observer.began + limit if limit is not None else until
        status = self.journal.status
        status.state = "running"
        status.waiting = Waiting(until=time.time() + decision.delay, why=decision.why)
        status.reason = None  # of the attempt, which failure.json tells
        self.journal.save()
        details = {"delay": decision.delay, "rung": decision.rung, "why": decision.why}
        self.journal.event("restarting", **details)
        number = self.current.number + 1
        self.journal.tell("%s; attempt %d in %.0f s" % (decision.why, number, decision.delay))
        while not self.control.signals:
            now = time.monotonic()
            if now >= min(until, last):
                return "" if until <= last else "max_duration"
            pause = min(until - now, last - now, LOOK)
            if self.nodes is not None:
                if self.nodes.tick(number, 0.0):
                    return "node"
                pause = min(pause, 1.0)
            if supervise_control.ready([wakeup], pause):
                os.read(wakeup, 4096)
            self.journal.restore({})
        return self.control.signals[0]

    def _again(self, decision: Decision) -> bool:
        """Start the next attempt; False, with the run ended, where that fails."""
        number = self.current.number + 1
        self.journal.restore({})
        try:
            script, port = self._script(number, decision)
            self.journal.start_attempt(number)
            self.current = self._attempt(number)
            self._begin(script, AttemptRecord(rung=decision.rung, port=port))
        except (OSError, ValueError) as e:
            self.journal.warn("attempt %d cannot be started: %s" % (number, e))
            self.journal.status.state = "failed"
            self._tell_not_started(number, state="failed", what=str(e))
            return False
        status = self.journal.status
        status.ended_at = status.elapsed = None
        status.exit_code = status.signal = status.reason = None
        status.leftovers = status.hang = None
        self.journal.save()
        return True

    def _script(self, number: int, decision: Decision) -> tuple[str, int | None]:
        """Write the script of a later attempt, with a fresh port. Raises OSError, ValueError.

        Of several nodes the first has chosen the port, which is its own.
        """
        again = self.run.again
        if again is None or not again.scripts:
            raise ValueError("run.json has no script for it")
        name = again.scripts[min(decision.rung, len(again.scripts) - 1)]
        with open(os.path.join(self.dir, name), "rb") as file:
            text = file.read()
        token, port = again.token.encode(), None
        if token in text:
            port = decision.port if "port" in decision else _free_port(number)
            if port is None:
                raise ValueError("no free port")
            text = text.replace(token, b"%d" % port)
        path = os.path.join(self.dir, AGAIN % number)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
        with os.fdopen(fd, "wb") as out:
            out.write(text)
        return path, port

    # -- end -----------------------------------------------------------------------------------

    def _stopped_waiting(self, name: str) -> None:
        """Record a stop between two attempts."""
        number = self.current.number + 1
        where = "while waiting for attempt %d" % number
        nodes = self.nodes if name == "node" else None
        why = self.control.in_words(name, self.run) if nodes is None else nodes.why()
        self.journal.tell("%s %s" % (why, where))
        status = self.journal.status
        status.state, status.stopped_by = "stopped", name
        status.reason = where if nodes is None else "%s %s" % (why, where)
        if name == "max_duration":
            limit = self.run.max_duration or 0.0
            status.reason = "its max_duration of %s had passed %s" % (job_duration(limit), where)
        status.signal = None  # that one ended the attempt
        if nodes is None:
            self._tell_not_started(number, state="stopped", stopped_by=name)

    def finish(self) -> None:
        """Write the last lines and the end."""
        status = self.journal.status
        told = len(self.control.signals)
        if self.current.children_left and not status.unkillable:
            # another user's, under hidepid: wait() says that there is one, /proc does not show it
            self.journal.warn("a process is left that this user cannot see")
        if status.state == "succeeded":  # any other end has a cause of its own
            self.journal.count_ranks(self.current.number)
        status.waiting = None
        # the clock may have been set meanwhile: how long it ran is counted, not subtracted
        status.ended_at, status.elapsed = time.time(), round(time.monotonic() - self.began, 3)
        self.journal.restore(self.current.seen)
        self.journal.event("ended", state=status.state, exit_code=status.exit_code)
        self.journal.show(("\r\n[safelaunch] %s: %s\r\n" % (self.run.id, status.state)).encode())
        self.journal.pane.finish()
        self._save_end()
        _clean_up(self.run)
        if self.nodes is not None:
            is_bad = status.state != "succeeded"
            self.nodes.close(
                lambda: len(self.control.signals) > told,
                is_bad=is_bad,
                attempt=self.current.number,
            )

    def _save_end(self) -> None:
        told = len(self.control.signals)
        for _ in range(SAVE_PATIENCE):
            # a signal now asks again to stop, and there is nothing else left to do
            if self.journal.save_end() or len(self.control.signals) > told:
                return
            time.sleep(1.0)


def _clean_up(run: RunRecord) -> None:
    """Remove what the backend leaves behind."""
    from safelaunch.runtime import backends  # noqa: PLC0415 - at the end only

    backends.clean_up(run)


def _free_port(number: int) -> int | None:
    """Return a port for attempt `number`."""
    from safelaunch.runtime.start import start_probe  # noqa: PLC0415 - only here

    return start_probe.free_port(os.getpid() * 31 + number * 997)


def _signals(control: supervise_control.Control) -> int:
    """Install the handlers; return a descriptor that becomes readable with each signal."""
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def stop(signum: int, frame: object) -> None:
        del frame
        control.signals.append(signal.Signals(signum).name)

    def ignore(signum: int, frame: object) -> None:
        """Do nothing."""

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # TSTP: Ctrl-Z in the pane would stop the supervisor, and nobody could wake it
    for name in ("SIGHUP", "SIGPIPE", "SIGQUIT", "SIGCHLD", "SIGTSTP"):
        signal.signal(getattr(signal, name), ignore)
    return reader


def main(node_dir: str, umask: int) -> int:
    """Run one node to its end. Exit 0: the end was recorded, whatever it was."""
    log = os.open(os.path.join(node_dir, "supervisor.log"), journal.LOG_FLAGS, 0o600)
    os.dup2(log, 2)
    os.close(log)
    run = RunRecord.read(node_dir)
    if run is None:
        sys.stderr.write("run.json cannot be read\n")
        return 1
    parent = run.foreground
    dies_with = launch.PR_SET_PDEATHSIG
    if parent and launch.prctl(dies_with, signal.SIGTERM) and os.getppid() != parent:
        return 1  # the client died before we could ask to be told
    if not claim.acquire(node_dir):
        sys.stderr.write("the start was called off\n")
        _clean_up(run)
        return 1
    subreaper = launch.prctl(launch.PR_SET_CHILD_SUBREAPER, 1)
    limits = processes.more_descriptors()
    try:
        supervisor = Supervisor(node_dir, run, umask, limits, subreaper=subreaper)
        wakeup = _signals(supervisor.control)
        supervisor.start()
    except OSError as e:
        sys.stderr.write("the job cannot be started: %s\n" % e)
        _clean_up(run)
        return 1
    supervisor.run_attempts(wakeup)
    supervisor.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), os.umask(0o077)))
