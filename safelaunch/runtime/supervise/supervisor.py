"""Owns one node of a run: starts launch.sh, follows its logs, ends it, and records how it ended.

    python -I -S -B supervisor.py NODE_DIR

A child subreaper: whatever the run starts, also detached, becomes its child, and wait() -> ECHILD
proves that none is left. TERM or INT stops the job, HUP is ignored. It reads run.json; journal.py
does all writing; turn.py waits for what must come first; attempts/ handles the processes, and
decides how an attempt ended and what follows; ending/ does what is left once the last one is over.
"""

# ruff: noqa: PLC0415 - what a job's start does not need is imported beside the job, or at its end

from __future__ import annotations

import importlib
import os
import signal
import sys
import time

# the package is three folders up, and nothing else is on the path
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from safelaunch.runtime import cgroup, claim, processes
from safelaunch.runtime.engines import exit_codes
from safelaunch.runtime.monitor import limits
from safelaunch.runtime.preconditions import PreconditionFailed
from safelaunch.runtime.records import AttemptRecord, Failure, Process, RunRecord, Waiting
from safelaunch.runtime.start import own_files
from safelaunch.runtime.supervise import journal, launch, stop_signals
from safelaunch.runtime.supervise.attempts import next_attempt, next_script
from safelaunch.runtime.supervise.attempts.attempt import Attempt
from safelaunch.runtime.supervise.control import TIME_LIMIT, Control, readable
from safelaunch.runtime.supervise.node_run import NodeRun
from safelaunch.runtime.supervise.turn import Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.messages.ends import Decision
    from safelaunch.runtime.progress.artifacts import EarlierFiles
    from safelaunch.runtime.supervise.attempts.observer import Observer

# in small steps: between two of them the markers of ranks that live for milliseconds are read
OBSERVERS = (
    *("monitor.oom_kills", "monitor.gpu_load", "monitor.sampler", "monitor.leftovers"),
    "logs.size_cap",
    *("progress.flood_filter", "progress.tracker", "progress.watchdog", "hang.flight_recorder"),
    *("collectives.dumps", "collectives.nccl_log"),
    *("hang.proc_stack", "hang.stacks", "hang.evidence", "supervise.attempts.recovery"),
    *("progress.checkpoint_line", "supervise.attempts.observer", "backends", "run_state"),
    "supervise.ending.finish",
)
# rank_exits.py needs fcntl, which cannot be imported once descriptors have run out
LATE = ("fcntl", *("safelaunch.runtime." + part for part in OBSERVERS))
RESTORE_EVERY = 5.0  # seconds between two checks of the run directory before a restart


class Supervisor:
    """One node's run from start to end, over all its attempts. Raises OSError."""

    def __init__(self, node: NodeRun, limits: tuple[int, int] | None) -> None:
        self.node = node
        self.dir, self.run = node.dir, node.run
        self.control, self.journal = node.control, node.journal
        self.limits = limits  # those of open files, where ours were raised
        self.artifacts: EarlierFiles | None = None
        self.turn = Turn(node)
        self.journal.open()
        number = node.engine.attempt
        self.journal.start_attempt(number)
        self.current = self._attempt(number)
        if node.engine.life:
            self.journal.event("requeued", life=node.engine.life, nodes=list(self.run.hosts))

    def _attempt(self, number: int) -> Attempt:
        return Attempt(number, self.journal, self.control, subreaper=self.node.subreaper)

    # -- start ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start launch.sh, or begin to wait for what must come first.

        Raises OSError, with nothing started.
        """
        success = self.run.success
        # without any it is made beside the job
        if success is not None and success.artifacts and not self.run.node:
            self._note_artifacts()
        group = cgroup.create(self.run.id, self.run.node)
        if group:
            self.journal.status.cgroup = group
        if len(self.run.hosts) > 1:  # before the job: the others see at once that this node starts
            self.node.open_peers()
        if self.turn.preconditions:
            self.journal.status.waits_for = self.turn.preconditions[0].subject()
            self.journal.save()
        else:
            self._start_first()
        hint = f"[safelaunch] {self.run.id}: Ctrl-B D leaves it running, Ctrl-C stops it\r\n"
        self.journal.pane.show(hint.encode())

    def _start_first(self) -> None:
        """Start the first attempt. Raises OSError, with nothing started."""
        if self.run.cards is not None:
            from safelaunch.runtime.card_claims import named

            self.node.cards = named.claim(self.run, self.run.cards)
        first = AttemptRecord(resume_checkpoint=self.run.resume_checkpoint)
        script = os.path.join(self.dir, "launch.sh")
        try:
            if self.node.engine.life and self.run.again is not None:
                script = next_script.write_for_life(self.node, self.current.number, first)
            self._start_current(script, first)
        except OSError:
            cgroup.remove(self.journal.status.cgroup or "")
            raise

    def _wait_for_preconditions(self, wakeup: int) -> bool:
        """Start the first attempt once all preconditions are met; False where the run has ended."""
        number = self.current.number
        try:
            self.journal.remember(own_files.load())  # the folder may be removed meanwhile
            stop_reason = self.turn.wait(lambda pause: self._rest(wakeup, pause, number), number)
            if stop_reason:
                self._record_stop(stop_reason, number)
                return False
            self.turn.fill_placeholders(number)
            self.node.began = time.monotonic()
            self.current.watch.close()
            self.current = self._attempt(number)
            self._start_first()
            next_script.say_changes(self.node, number, self.node.attempts[-1])
        except PreconditionFailed as e:
            self._fail_before_start(e.failure, number)
        except (OSError, ValueError) as e:
            what = f"the job cannot be started: {e}"
            self._fail_before_start(Failure(version=1, what=what), number)
        else:
            return True
        return False

    def _renew(self, wakeup: int) -> bool:
        """Meet again what a later attempt needs; False where the run has ended meanwhile."""
        waits = self.turn.renew()
        if not waits:
            return True
        number = self.current.number + 1
        try:
            stop_reason = self.turn.wait(
                lambda pause: self._rest(wakeup, pause, number), number, waits
            )
        except PreconditionFailed as e:
            self.journal.warn(f"attempt {number} cannot be started: {e}")
            self._fail_before_start(e.failure, number)
            return False
        self.journal.status.waits_for = None
        if stop_reason:
            self._record_stop(stop_reason, number)
        return not stop_reason

    def _rest(self, wakeup: int, seconds: float, number: int) -> str:
        """Wait before an attempt; return why the run was stopped meanwhile, or ""."""
        if readable([wakeup], seconds):
            self.control.clear()
        self.journal.restore({})
        if self.control.signals:
            return self.control.signals[0]
        if self.node.nodes is not None:
            # no rank writes yet: a node on which services are waited for is lost by its silence
            quiet = self.node.nodes.LONG_QUIET if self.run.services else 0.0
            if self.node.nodes.tick(number, quiet):
                return "node"
        return TIME_LIMIT if self.control.is_time_up else ""

    def _fail_before_start(self, failure: Failure, number: int) -> None:
        """Record the end of a run that has waited in vain for attempt `number`."""
        self.journal.status.state = "failed"
        self.journal.status.reason = failure.what
        self.journal.notify(f"not started: {failure.what}")
        self.journal.fail(failure)
        next_attempt.send_end(self.node, number, failure)

    def _note_artifacts(self) -> EarlierFiles:
        """Record which files of `success.artifacts` are there before the job."""
        from safelaunch.runtime.progress import artifacts

        patterns = self.run.success.artifacts if self.run.success else ()
        self.artifacts = artifacts.EarlierFiles(patterns, self.run.cwd or "/")
        return self.artifacts

    def _start_current(self, script: str, record: AttemptRecord) -> None:
        """Start the script of the current attempt, and complete its record. Raises OSError."""
        self.current.start(script, self.node.umask, self.limits)
        record.attempt, record.started_at = self.current.number, time.time()
        self.node.attempts.append(record)
        status = self.journal.status
        status.state, status.attempts = "running", self.node.attempts
        status.launcher = Process(pid=self.current.launcher, start=self.current.launcher_start)
        status.started_at = status.started_at or record.started_at
        status.waiting = status.waits_for = None
        self.journal.save()
        self.journal.event("started", attempt=record.attempt, launcher=self.current.launcher)

    # -- attempts ------------------------------------------------------------------------------

    def run_attempts(self, wakeup: int) -> None:
        """Follow the attempts until one ends for good."""
        if self.turn.preconditions and not self._wait_for_preconditions(wakeup):
            return
        self.current.exits.update()
        try:
            self.journal.remember(own_files.load())
        except OSError as e:
            self.journal.broken("memory of its own files", e)
        for part in LATE:  # once the job is starting; meanwhile ranks may come and go
            self.current.exits.update()
            importlib.import_module(part)
        self.current.exits.update()
        from safelaunch.runtime.supervise.attempts.observer import Observer

        if self.run.manual_node is not None:  # nobody waits for nodes that were started by hand
            self.node.open_peers()
        if self.run.ending is not None:
            from safelaunch.runtime.supervise.ending import sequence

            sequence.warn_of_missing(self.journal)
        artifacts = self.artifacts or self._note_artifacts()
        observer = Observer(
            self.journal, self.node.nodes, artifacts, self.node.began, self.turn.preconditions
        )
        while True:
            observer.start_attempt(self.current)
            self.current.follow(wakeup, observer)
            decision = self._finish_attempt(wakeup, observer)
            if decision is None:
                return
            stop_reason = self._wait(decision, wakeup)
            if stop_reason:
                self._record_stop(stop_reason, self.current.number + 1)
                return
            if not self._renew(wakeup) or not self._restart(decision):
                return

    def _finish_attempt(self, wakeup: int, observer: Observer) -> Decision | None:
        """Record how the attempt ended; return what follows, None for the end of the run."""
        next_script.record_imports(self.node)
        try:
            from safelaunch.runtime.supervise.attempts import outcome

            result = outcome.determine(self.current, observer, self.node.attempts)
        except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
            self.journal.broken("analysis of the end", e)
            code = self.current.outcome()["exit_code"]
            state = "stopped" if self.control.signals else "succeeded" if code == 0 else "failed"
            self.journal.status.state, self.journal.status.exit_code = state, code
            next_attempt.send_end(self.node, self.current.number, None)
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
        next_attempt.send_end(self.node, self.current.number, failure)
        is_expired = failure is not None and failure.class_name == outcome.TIME_LIMIT_CLASS
        if self.run.engine is not None and is_expired:
            next_attempt.end_allocation(self.node)
            return None
        decision = next_attempt.decide(self.node, self.current.number, result, failure, wakeup)
        if decision is None:
            return None
        self.node.attempts[-1].next = decision.why
        if decision.action != "restart":
            if self.run.recovery:
                self.journal.event("no-restart", why=decision.why)
                status.recovery = decision.why
            return None
        return decision

    def _wait(self, decision: Decision, wakeup: int) -> str:
        """Wait before a restart; return why the run was stopped meanwhile, or ""."""
        now = time.monotonic()
        until, (limit, limit_name) = now + decision.delay, limits.first(self.run)
        end = self.node.began + limit  # of the whole run
        status = self.journal.status
        status.state = "running"
        status.waiting = Waiting(until=time.time() + decision.delay, why=decision.why)
        status.reason = None  # of the attempt, which is in failure.json
        self.journal.save()
        details = {"delay": decision.delay, "rung": decision.rung, "why": decision.why}
        self.journal.event("restarting", **details)
        number = self.current.number + 1
        self.journal.notify(f"{decision.why}; attempt {number} in {decision.delay:.0f} s")
        while not self.control.signals:
            if self.control.is_time_up:
                return TIME_LIMIT
            now = time.monotonic()
            if now >= min(until, end):
                return "" if until <= end else limit_name
            pause = min(until - now, end - now, RESTORE_EVERY)
            if self.node.nodes is not None:
                if self.node.nodes.tick(number, 0.0):
                    return "node"
                pause = min(pause, 1.0)
            if readable([wakeup], pause):
                self.control.clear()
            self.journal.restore({})
        return self.control.signals[0]

    def _restart(self, decision: Decision) -> bool:
        """Start the next attempt; False, with the run ended, where that fails."""
        number = self.current.number + 1
        self.journal.restore({})
        try:
            script, port = next_script.write(self.node, number, decision)
            # not at each attempt's end: the kernel takes 10 ms, and the last one can do without
            self.current.watch.close()
            self.journal.start_attempt(number)
            self.current = self._attempt(number)
            record = AttemptRecord(rung=decision.rung, port=port)
            record.resume_checkpoint = decision.checkpoint
            next_script.say_checkpoint(self.node, number, decision.checkpoint)
            next_script.say_changes(self.node, number, record)
            self._start_current(script, record)
        except (OSError, ValueError) as e:
            self.journal.warn(f"attempt {number} cannot be started: {e}")
            self.journal.status.state = "failed"
            self.node.send(number, state="failed", what=str(e))
            return False
        status = self.journal.status
        status.ended_at = status.elapsed = None
        status.exit_code = status.signal = status.reason = None
        status.leftovers = status.hang = status.nccl = None
        if status.leftover_processes:
            status.leftover_processes = ()
        self.journal.save()
        return True

    # -- end -----------------------------------------------------------------------------------

    def _record_stop(self, name: str, number: int) -> None:
        """Record a stop before an attempt."""
        waits_for = self.journal.status.waits_for
        where = f"while waiting for {waits_for or f'attempt {number}'}"
        nodes = self.node.nodes if name == "node" else None
        why = self.control.describe(name, self.run) if nodes is None else nodes.why()
        self.journal.notify(f"{why} {where}")
        status = self.journal.status
        status.state, status.stopped_by = "stopped", name
        if self.control.signals:
            status.stop_origin = self.control.stop_origin() or None
        status.reason = where if nodes is None else f"{why} {where}"
        if name == TIME_LIMIT:
            next_attempt.end_allocation(self.node)
        if name in limits.LIMITS:
            status.reason = f"{limits.reason(name, self.run)} {where}"
        status.signal = None  # that one ended the attempt
        self.node.send(number, state="stopped", stopped_by=name)

    def finish(self) -> None:
        """Write the last lines and the end, and do what follows it."""
        from safelaunch.runtime.supervise.ending.finish import Finish

        Finish(self.node, self.current, self.turn).execute()


def _clean_up(run: RunRecord) -> None:
    """Remove what the backend leaves behind."""
    from safelaunch.runtime import backends

    backends.clean_up(run)


def _install_handlers(control: Control, run: RunRecord) -> int:
    """Handle signals from now on; return a descriptor that becomes readable with each."""
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def stop(signum: int, frame: object) -> None:
        del frame
        control.received.append(signal.Signals(signum).name)

    def ignore(signum: int, frame: object) -> None:
        """Do nothing."""

    # for where there is no signalfd
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # TSTP: Ctrl-Z in the pane would stop the supervisor, and nothing could continue it
    for name in ("SIGHUP", "SIGPIPE", "SIGQUIT", "SIGCHLD", "SIGTSTP"):
        signal.signal(getattr(signal, name), ignore)
    control.pipe = reader
    control.source = stop_signals.StopSignals(run.foreground)
    return stop_signals.joined(reader, control.source.fd) if control.source.fd >= 0 else reader


def main(node_dir: str, umask: int, *, is_forked: bool = False) -> int:
    """Run one node to its end. Exit 0: the end was recorded, whatever it was.

    `is_forked`: as a fork of a process that has read this program for many.
    An engine judges a job by its exit code: under one it says how the run has ended.
    """
    log = os.open(os.path.join(node_dir, "supervisor.log"), journal.LOG_FLAGS, 0o600)
    os.dup2(log, 2)
    os.close(log)
    run = RunRecord.read(node_dir)
    if run is None:
        sys.stderr.write("run.json cannot be read\n")
        return 1
    # a container's parent is its engine; what runs it on the machine ends with the client
    client = run.foreground if run.container is None else None
    if client and launch.prctl(launch.PR_SET_PDEATHSIG, signal.SIGTERM) and os.getppid() != client:
        return 1  # the client died before the signal of its death was set up
    if not claim.acquire(node_dir, run.engine.life if run.engine else 0):
        sys.stderr.write("the start was cancelled\n")
        _clean_up(run)
        return 1
    subreaper = launch.prctl(launch.PR_SET_CHILD_SUBREAPER, 1)
    limits = processes.more_descriptors()
    try:
        node = NodeRun(node_dir, run, umask, subreaper=subreaper, is_forked=is_forked)
        supervisor = Supervisor(node, limits)
        wakeup = _install_handlers(supervisor.control, run)
        supervisor.start()
    except OSError as e:
        sys.stderr.write(f"the job cannot be started: {e}\n")
        _clean_up(run)
        return 1
    try:
        supervisor.run_attempts(wakeup)
        supervisor.finish()
    except BaseException:
        from safelaunch.runtime import run_state

        sys.stderr.write(f"{run_state.OWN_ERROR}\n")  # and the traceback below it
        raise
    return 0 if run.engine is None else exit_codes.of_state(supervisor.journal.status.state)


if __name__ == "__main__":
    code = main(os.path.abspath(sys.argv[1]), os.umask(0o077))
    if sys.stderr is not None:
        sys.stderr.flush()  # Python 3.8 keeps it in a buffer
    # Python's own end takes all modules apart: a fifth of what a short run costs its supervisor
    os._exit(code)
