"""Owns one node of a run: starts launch.sh, follows its logs, ends it, and records how it ended.

    python -I -S -B supervisor.py NODE_DIR

A child subreaper: whatever the run starts, also detached, becomes its child, and wait() -> ECHILD
proves that none is left. TERM or INT stops the job, HUP is ignored. It reads run.json; journal.py
does all writing; attempt.py handles the processes; outcome.py decides how an attempt ended.
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

from safelaunch.runtime import cgroup, claim, json_files, preconditions, processes
from safelaunch.runtime.engines import exit_codes
from safelaunch.runtime.monitor import limits
from safelaunch.runtime.plain_text import printable, shortened
from safelaunch.runtime.ranks import fork_servers
from safelaunch.runtime.records import (
    AttemptRecord,
    EngineStart,
    Failure,
    JobEnvironment,
    Process,
    Provenance,
    RunRecord,
    ServiceStatus,
    Status,
    StopRequest,
    Waiting,
)
from safelaunch.runtime.start import own_files, placeholders
from safelaunch.runtime.supervise import journal, launch, stop_signals
from safelaunch.runtime.supervise.attempt import Attempt
from safelaunch.runtime.supervise.control import TIME_LIMIT, Control, readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.runtime.card_claims.claims import OwnClaim
    from safelaunch.runtime.messages.ends import Decision, NodeEnd
    from safelaunch.runtime.progress.artifacts import EarlierFiles
    from safelaunch.runtime.supervise.observer import Observer
    from safelaunch.runtime.supervise.outcome import Outcome
    from safelaunch.runtime.supervise.peers import Peers

SAVE_PATIENCE = 3600  # seconds in which the end is written again and again to a disk that is full
# in small steps: between two of them the markers of ranks that live for milliseconds are read
OBSERVERS = (
    *("monitor.oom_kills", "monitor.gpu_load", "monitor.sampler", "monitor.leftovers"),
    "logs.size_cap",
    *("progress.flood_filter", "progress.tracker", "progress.watchdog", "hang.flight_recorder"),
    *("collectives.dumps", "collectives.nccl_log"),
    *("hang.proc_stack", "hang.stacks", "hang.evidence", "supervise.recovery"),
    *("progress.checkpoint_line", "supervise.observer", "backends", "run_state"),
)
# rank_exits.py needs fcntl, which cannot be imported once descriptors have run out
LATE = ("fcntl", *("safelaunch.runtime." + part for part in OBSERVERS))
SERVER_PATIENCE = 5.0  # seconds for a process that was killed
RESTORE_EVERY = 5.0  # seconds between two checks of the run directory before a restart


class Supervisor:
    """One node's run from start to end, over all its attempts. Raises OSError."""

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
        self.umask = umask  # the caller's; `limits` are those of open files, where ours were raised
        self.limits = limits
        self.subreaper = subreaper
        self.control = Control(node_dir, run.engine, run.preemption)
        self.engine = run.engine or EngineStart()
        earlier = Status.read(node_dir) if self.engine.life else None
        self.journal = journal.Journal(node_dir, run)
        if not subreaper:
            note = "detached processes are recognised by their mark only"
            self.journal.event("no-subreaper", note=note)
        self.attempts: list[AttemptRecord] = []
        self.began = time.monotonic()  # earlier by what the earlier lives of the run have taken
        if earlier is not None:
            self._go_on(earlier)
        self.nodes: Peers | None = None  # the others, where there are several
        self.sent = 1  # the last attempt whose end was sent to them
        self.artifacts: EarlierFiles | None = None
        self.flaw = ""  # of a checkpoint that is newer than the whole ones
        self.preconditions = preconditions.load(run, node_dir, umask)  # of the first attempt
        self.cards: OwnClaim | None = None  # those that it has named, without a queue
        self.journal.open()
        number = self.engine.attempt
        self.journal.start_attempt(number)
        self.current = Attempt(number, self.journal, self.control, subreaper=subreaper)
        if self.engine.life:
            self.journal.event("requeued", life=self.engine.life, nodes=list(run.hosts))

    def _go_on(self, earlier: Status) -> None:
        """Take over the attempts of the run before its engine started it again."""
        self.attempts = list(earlier.attempts)
        status, last = self.journal.status, self.attempts[-1] if self.attempts else None
        status.started_at = earlier.started_at
        if last is not None and last.state is None:  # its machine was lost, or taken away
            last.state = "lost"
        if last is not None:
            last.next = f"{self.engine.title} has started the run again"
            status.attempts = self.attempts
        self.began -= sum(attempt.elapsed or 0.0 for attempt in self.attempts)

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
            self._open_peers()
        if self.preconditions:
            self.journal.status.waits_for = "its turn"
            self.journal.save()
        else:
            self._start_first()
        hint = f"[safelaunch] {self.run.id}: Ctrl-B D leaves it running, Ctrl-C stops it\r\n"
        self.journal.pane.show(hint.encode())

    def _start_first(self) -> None:
        """Start the first attempt. Raises OSError, with nothing started."""
        if self.run.cards is not None:
            from safelaunch.runtime.card_claims import named

            self.cards = named.claim(self.run, self.run.cards)
        first = AttemptRecord(resume_checkpoint=self.run.resume_checkpoint)
        script = os.path.join(self.dir, "launch.sh")
        try:
            if self.engine.life and self.run.again is not None:
                script = self._script_of_life(first)
            self._start_current(script, first)
        except OSError:
            cgroup.remove(self.journal.status.cgroup or "")
            raise

    def _wait_for_preconditions(self, wakeup: int) -> bool:
        """Start the first attempt once all preconditions are met; False where the run has ended."""
        number = self.current.number
        try:
            self.journal.remember(own_files.load())  # the folder may be removed meanwhile
            stop_reason = self._await(self.preconditions, wakeup)
            if stop_reason:
                self._record_stop(stop_reason, number)
                return False
            self._fill_placeholders()
            self.began = time.monotonic()
            self.current.watch.close()
            self.current = Attempt(number, self.journal, self.control, subreaper=self.subreaper)
            self._start_first()
            self._say_changes(self.attempts[-1])
        except preconditions.PreconditionFailed as e:
            self._fail_before_start(e.failure)
        except (OSError, ValueError) as e:
            self._fail_before_start(Failure(version=1, what=f"the job cannot be started: {e}"))
        else:
            return True
        return False

    def _await(self, waits: Sequence[preconditions.Precondition], wakeup: int) -> str:
        """Wait for preconditions; return why the run was stopped meanwhile, or "".

        Raises PreconditionFailed.
        """
        from safelaunch.runtime.preconditions import wait

        def show(reason: str) -> None:
            self._note_services()
            self.journal.show_wait(reason)

        stop_reason = wait.await_all(waits, show, lambda pause: self._rest(wakeup, pause))
        self._note_services()
        return stop_reason

    def _service_statuses(self) -> list[ServiceStatus]:
        return [status for waits in self.preconditions for status in waits.statuses()]

    def _note_services(self) -> None:
        """Record how the services of the job are."""
        statuses = self._service_statuses()
        shown = [status.to_json() for status in statuses]
        if shown != [status.to_json() for status in self.journal.status.services]:
            self.journal.status.services = statuses
            self.journal.save()

    def _renew(self, wakeup: int) -> bool:
        """Meet again what a later attempt needs; False where the run has ended meanwhile."""
        waits = [again for again in self.preconditions if again.renew()]
        if not waits:
            return True
        number = self.current.number + 1
        try:
            stop_reason = self._await(waits, wakeup)
        except preconditions.PreconditionFailed as e:
            self.journal.warn(f"attempt {number} cannot be started: {e}")
            self._fail_before_start(e.failure)
            return False
        self.journal.status.waits_for = None
        if stop_reason:
            self._record_stop(stop_reason, number)
        return not stop_reason

    def _rest(self, wakeup: int, seconds: float) -> str:
        """Wait before the first attempt; return why the run was stopped meanwhile, or ""."""
        if readable([wakeup], seconds):
            self.control.clear()
        self.journal.restore({})
        if self.control.signals:
            return self.control.signals[0]
        if self.nodes is not None and self.nodes.tick(self.current.number, 0.0):
            return "node"
        return TIME_LIMIT if self.control.is_time_up else ""

    def _fill_placeholders(self) -> None:
        """Write the scripts with the values that are known only now. Raises OSError, ValueError."""
        values = {"port": str(_free_port(self.current.number) or "")}
        for precondition in self.preconditions:
            values.update(precondition.values())
        if self.run.placeholders:
            placeholders.fill(self.dir, self.run.placeholders, values)

    def _fail_before_start(self, failure: Failure) -> None:
        """Record the end of a run that has waited in vain."""
        self.journal.status.state = "failed"
        self.journal.status.reason = failure.what
        self.journal.notify(f"not started: {failure.what}")
        self.journal.fail(failure)
        self._send_end(failure)

    def _script_of_life(self, record: AttemptRecord) -> str:
        """Write the script of the first attempt of a later life. Raises OSError."""
        from safelaunch.runtime.messages.ends import Decision

        record.rung = self.attempts[-1].rung if self.attempts else 0
        decision = Decision(rung=record.rung)
        if self.engine.port is not None:  # of several nodes one has chosen it
            decision.port = self.engine.port
        decision.checkpoint = record.resume_checkpoint = self.engine.checkpoint
        try:
            script, record.port = self._script(self.current.number, decision)
        except ValueError as e:
            raise OSError(str(e)) from e
        self._say_checkpoint(decision.checkpoint)
        return script

    def _open_peers(self) -> None:
        from safelaunch.runtime.supervise import peers

        self.nodes = peers.open_peers(self.dir, self.run, self.journal)

    def _note_artifacts(self) -> EarlierFiles:
        """Record which files of `success.artifacts` are there before the job."""
        from safelaunch.runtime.progress import artifacts

        patterns = self.run.success.artifacts if self.run.success else ()
        self.artifacts = artifacts.EarlierFiles(patterns, self.run.cwd or "/")
        return self.artifacts

    def _start_current(self, script: str, record: AttemptRecord) -> None:
        """Start the script of the current attempt, and complete its record. Raises OSError."""
        self.current.start(script, self.umask, self.limits)
        record.attempt, record.started_at = self.current.number, time.time()
        self.attempts.append(record)
        status = self.journal.status
        status.state, status.attempts = "running", self.attempts
        status.launcher = Process(pid=self.current.launcher, start=self.current.launcher_start)
        status.started_at = status.started_at or record.started_at
        status.waiting = status.waits_for = None
        self.journal.save()
        self.journal.event("started", attempt=record.attempt, launcher=self.current.launcher)

    # -- attempts ------------------------------------------------------------------------------

    def run_attempts(self, wakeup: int) -> None:
        """Follow the attempts until one ends for good."""
        if self.preconditions and not self._wait_for_preconditions(wakeup):
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
        from safelaunch.runtime.supervise.observer import Observer

        if self.run.manual_node is not None:  # nobody waits for nodes that were started by hand
            self._open_peers()
        if self.run.ending is not None:
            from safelaunch.runtime.supervise.ending import sequence

            sequence.warn_of_missing(self.journal)
        artifacts = self.artifacts or self._note_artifacts()
        observer = Observer(self.journal, self.nodes, artifacts, self.began, self.preconditions)
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
        self._record_imports()
        try:
            from safelaunch.runtime.supervise import outcome

            result = outcome.determine(self.current, observer, self.attempts)
        except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
            self.journal.broken("analysis of the end", e)
            code = self.current.outcome()["exit_code"]
            state = "stopped" if self.control.signals else "succeeded" if code == 0 else "failed"
            self.journal.status.state, self.journal.status.exit_code = state, code
            self._send_end(None)
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
        self._send_end(failure)
        is_expired = failure is not None and failure.class_name == outcome.TIME_LIMIT_CLASS
        if self.run.engine is not None and is_expired:
            self._end_allocation()
            return None
        decision = self._decide(result, failure, wakeup)
        if decision is None:
            return None
        self.attempts[-1].next = decision.why
        if decision.action != "restart":
            if self.run.recovery:
                self.journal.event("no-restart", why=decision.why)
                status.recovery = decision.why
            return None
        return decision

    def _decide(self, result: Outcome, failure: Failure | None, wakeup: int) -> Decision | None:
        """Return what follows an attempt, None for the end of the run."""
        if self.nodes is not None and not self.nodes.is_alone and self.run.recovery:
            decision = self._agreed(result, self.nodes, wakeup)
            if decision is not None or not self.control.signals:
                return decision
            if self.journal.status.state != "failed":
                return None
            # stopped before all agreed: as for one node, a restart that was due is called off
            return result.decide(failure or Failure())
        if len(self.run.hosts) > 1:
            return None  # its ranks would wait for the others
        if self.journal.status.state != "failed":
            return None
        decision = result.decide(failure or Failure())
        decision.checkpoint = self._newest_checkpoint([self._whole_checkpoints()])
        return decision

    def _end_allocation(self) -> None:
        """Let the engine start the run again, where that brings it further."""
        status, last = self.journal.status, self.attempts[-1]
        if not self.engine.can_resume:
            last.next = "no requeue: the job does not resume from checkpoints"
        elif not self._has_progressed():
            last.next = "no requeue: the attempt made no progress that it could resume from"
        else:
            last.next = status.reason = f"goes on once {self.engine.title} starts it again"
            status.state = "pending"
        self.journal.event("time-limit", why=last.next)

    def _has_progressed(self) -> bool:
        """Whether the last attempt has come further than those before it."""
        from safelaunch.runtime.supervise import recovery

        return recovery.progressed(self.attempts)[-1]

    def _send_end(self, failure: Failure | None) -> None:
        """Send to the other nodes how this one's attempt has ended."""
        status = self.journal.status
        end: dict[str, object] = {"state": status.state, "stopped_by": status.stopped_by}
        if failure is not None:
            end.update(rank=failure.rank, what=failure.what, role=failure.role)
            end.update(class_name=failure.class_name, time=failure.time)
            end.update(exit_code=failure.exit_code, unmet=failure.unmet or None)
            if self.run.manual_node is not None:  # no client asks each node for its own
                end.update(failure=failure)
        if status.state != "succeeded":
            end.update(checkpoints=self._whole_checkpoints())
        if not self._send(self.current.number, **end):
            self.nodes = None

    def _send(self, number: int, **end: object) -> bool:
        """Send to the other nodes how an attempt ended on this one; False after a fault."""
        self.sent = number
        if self.nodes is not None:
            from safelaunch.runtime.messages.ends import NodeEnd

            try:
                self.nodes.ended(number, NodeEnd(**end))  # type: ignore[arg-type]
            except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
                self.journal.broken("message to the other nodes", e)
                return False
        return True

    def _agreed(self, result: Outcome, nodes: Peers, wakeup: int) -> Decision | None:
        """Return what follows on all nodes; None for the end of the run."""

        def decide(ends: dict[int, NodeEnd]) -> Decision:
            decision = result.decide_for_all(ends)
            decision.port = _free_port(self.current.number + 1)
            by_node = [end.checkpoints or () for _, end in sorted(ends.items())]
            decision.checkpoint = self._newest_checkpoint(by_node)
            return decision

        try:
            decision = nodes.agree(self.current.number, decide, wakeup, self.control)
        except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
            self.journal.broken("agreement of the nodes", e)
            return None
        is_over = decision is not None and decision.action != "restart"
        return None if is_over and self.journal.status.state == "succeeded" else decision

    def _whole_checkpoints(self) -> Sequence[str]:
        """Return the whole checkpoints of a job that resumes from one, the newest first."""
        again, policy = self.run.again, self.run.recovery
        if again is None or again.checkpoint is None or policy is None or policy.checkpoint is None:
            return ()
        from safelaunch.runtime.progress import checkpoints

        try:
            paths, self.flaw = checkpoints.whole(policy.checkpoint, self.run.cwd or "/")
        except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
            self.journal.broken("search for checkpoints", e)
            return ()
        return paths

    def _newest_checkpoint(self, by_node: Sequence[Sequence[str]]) -> str | None:
        """Return the checkpoint that the nodes resume from, None for the beginning."""
        from safelaunch.runtime.progress import checkpoints

        return checkpoints.common(by_node)

    def _wait(self, decision: Decision, wakeup: int) -> str:
        """Wait before a restart; return why the run was stopped meanwhile, or ""."""
        now = time.monotonic()
        until, (limit, limit_name) = now + decision.delay, limits.first(self.run)
        end = self.began + limit  # of the whole run
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
            if self.nodes is not None:
                if self.nodes.tick(number, 0.0):
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
            script, port = self._script(number, decision)
            # not at each attempt's end: the kernel takes 10 ms, and the last one can do without
            self.current.watch.close()
            self.journal.start_attempt(number)
            self.current = Attempt(number, self.journal, self.control, subreaper=self.subreaper)
            record = AttemptRecord(rung=decision.rung, port=port)
            record.resume_checkpoint = decision.checkpoint
            self._say_checkpoint(decision.checkpoint)
            self._say_changes(record)
            self._start_current(script, record)
        except (OSError, ValueError) as e:
            self.journal.warn(f"attempt {number} cannot be started: {e}")
            self.journal.status.state = "failed"
            self._send(number, state="failed", what=str(e))
            return False
        status = self.journal.status
        status.ended_at = status.elapsed = None
        status.exit_code = status.signal = status.reason = None
        status.leftovers = status.hang = status.nccl = None
        if status.leftover_processes:
            status.leftover_processes = ()
        self.journal.save()
        return True

    def _script(self, number: int, decision: Decision) -> tuple[str, int | None]:
        """Write the script of a later attempt, with a fresh port. Raises OSError, ValueError.

        Of several nodes the first has chosen the port, which is its own.
        """
        again = self.run.again
        if again is None or not again.scripts:
            raise ValueError("run.json has no script for it")
        is_fresh = again.checkpoint is not None and decision.checkpoint is None
        names = again.fresh if is_fresh else again.scripts
        name = names[min(decision.rung, len(names) - 1)]
        with open(os.path.join(self.dir, name), "rb") as file:
            text = file.read()
        token, port = again.token.encode(), None
        if token in text:
            port = decision.port if "port" in decision else _free_port(number)
            if port is None:
                raise ValueError("no free port")
            text = text.replace(token, b"%d" % port)
        if again.checkpoint is not None and decision.checkpoint is not None:
            checkpoint = os.path.join(self.run.cwd, decision.checkpoint)
            word = os.fsencode(checkpoint.replace("'", again.quote))
            text = text.replace(again.checkpoint.encode(), word)
        path = os.path.join(self.dir, f"launch.{number}.sh")
        json_files.write(path, text, 0o700)
        return path, port

    def _say_checkpoint(self, checkpoint: str | None) -> None:
        """Write into the log what an attempt resumes from, where the job has a say in it."""
        again, policy = self.run.again, self.run.recovery
        if again is None or again.checkpoint is None or policy is None:
            return
        newer = f" ({printable(self.flaw)})" if self.flaw else ""
        if checkpoint is not None:
            what = f"resumes from {printable(checkpoint)}{newer}"
        else:
            what = f"starts from the beginning: no whole checkpoint matches `{policy.checkpoint}`"
            what += f"{newer}, so `resume_args` are left out"
        self.journal.notify(f"attempt {self.current.number} {what}")
        self.journal.event("resumes", attempt=self.current.number, checkpoint=checkpoint)

    def _say_changes(self, record: AttemptRecord) -> None:
        """Record which files of the code have changed since the start, and say so in the log."""
        from safelaunch.runtime.start import code_files

        try:
            record_ = Provenance.read(self.dir) or Provenance()
            files = code_files.used(record_.files or {}, record_.imported)
            names = code_files.changed(files, self.run.cwd)
        except Exception as e:  # noqa: BLE001 - no fault of ours may keep an attempt from starting
            self.journal.broken("comparison of the code", e)
            return
        if names:
            record.changed_files = names
            number = self.current.number
            self.journal.event("code-changed", attempt=number, files=names)
            text = f"attempt {number}: the code has changed since the start: {shortened(names)}"
            if record_.imported is None:
                text += " (files on disk: which of them the job imports is not known)"
            self.journal.notify(printable(text))

    def _record_imports(self) -> None:
        """Record which files of the code the ranks have imported so far."""
        try:
            record = Provenance.read(self.dir)  # None: its writer adds them itself
            if record is not None:
                from safelaunch.runtime.start import code_files

                imported = code_files.imported(self.dir, record.files or {}, self.run.cwd)
                if imported != record.imported:
                    record.imported = imported
                    record.write(self.dir)
        except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
            self.journal.broken("record of the imported files", e)

    # -- end -----------------------------------------------------------------------------------

    def _record_stop(self, name: str, number: int) -> None:
        """Record a stop before an attempt."""
        waits_for = self.journal.status.waits_for
        where = f"while waiting for {waits_for or f'attempt {number}'}"
        nodes = self.nodes if name == "node" else None
        why = self.control.describe(name, self.run) if nodes is None else nodes.why()
        self.journal.notify(f"{why} {where}")
        status = self.journal.status
        status.state, status.stopped_by = "stopped", name
        if self.control.signals:
            status.stop_origin = self.control.stop_origin() or None
        status.reason = where if nodes is None else f"{why} {where}"
        if name == TIME_LIMIT:
            self._end_allocation()
        if name in limits.LIMITS:
            status.reason = f"{limits.reason(name, self.run)} {where}"
        status.signal = None  # that one ended the attempt
        self._send(number, state="stopped", stopped_by=name)

    def finish(self) -> None:
        """Write the last lines and the end."""
        self._end_fork_servers()
        signals = len(self.control.signals)
        self._close_preconditions()
        self._record_proof()
        self._release()
        self._join_ends(lambda: len(self.control.signals) > signals)
        has_more = self._announce_ending(lambda: len(self.control.signals) > signals)
        self._write_end()
        if not has_more:
            self.clean_up()
        self._remove_environment()
        if self.nodes is not None:
            if self.nodes.record_ends(self.sent, lambda: len(self.control.signals) > signals):
                self.journal.save_end()
            self.nodes.close(
                lambda: len(self.control.signals) > signals,
                is_bad=self.journal.status.state != "succeeded",
                attempt=self.sent,
            )
        if has_more:
            self._follow_end()

    def _announce_ending(self, is_asked: Callable[[], bool]) -> bool:
        """Whether commands follow the end of the run, which is that of all its nodes."""
        if self.run.ending is None:
            return False
        from safelaunch.runtime.supervise.ending import sequence

        if self.nodes is not None and not self.nodes.is_alone and not self.run.node:
            self.nodes.await_ends(self.sent, is_asked)
        return sequence.announce(self.journal)

    def _follow_end(self) -> None:
        """Run what follows the end; no fault in it changes how the run has ended."""
        from safelaunch.runtime.supervise.ending import sequence

        try:
            sequence.execute(self.journal, self.control, self.umask)
        except Exception as e:  # noqa: BLE001 - of any kind: the end is recorded
            self.journal.broken("running of the commands at the end", e)
            sequence.abandon(self.journal, e)
        self.clean_up()

    def _close_preconditions(self) -> None:
        """End what runs beside the job, and look again whether anything is left."""
        if not self.preconditions:
            return
        for precondition in reversed(self.preconditions):
            precondition.close()
        # not saved: the status has the state of the end, which is not recorded yet
        self.journal.status.services = self._service_statuses() or self.journal.status.services
        deadline = time.monotonic() + SERVER_PATIENCE
        try:  # what writes the log of a service ends a moment after its supervisor
            while time.monotonic() < deadline:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    time.sleep(0.002)
        except ChildProcessError:
            self.current.has_children = False

    def _record_proof(self) -> None:
        """Record whether nothing is left, and which ranks were not seen."""
        status = self.journal.status
        if self.current.has_children and not status.unkillable:
            # another user's, under hidepid: wait() shows that there is one, /proc does not
            self.journal.warn("a process is left that this user cannot see")
        if self.subreaper and not self.current.has_children and not status.unkillable:
            status.proof = "wait"
        if status.state == "succeeded":  # any other end has a cause of its own
            missing = self.journal.missing_ranks(self.current.number)
            if missing:
                self.journal.warn(f"{missing}: did a process train alone?")

    def _release(self) -> None:
        """Give back what the run has taken of the machine, but its processes."""
        status = self.journal.status
        # where another node or life may still write into it, the next sync does this
        is_last = status.state != "pending" and not self.run.tree_shared
        if self.run.tree and is_last and not status.unkillable:
            self._settle_tree(self.run.tree)
        status.waiting = status.waits_for = None
        if self.cards is not None:
            self.cards.close()

    def _write_end(self) -> None:
        """Write the end, on a full disk again and again."""
        status = self.journal.status
        # the clock may have been set meanwhile: the elapsed time is of a monotonic one
        if status.state != "pending":
            status.ended_at = time.time()
        status.elapsed = round(time.monotonic() - self.began, 3)
        self.journal.restore(self.current.living)
        self.journal.event("ended", state=status.state, exit_code=status.exit_code)
        self.journal.pane.show(f"\r\n[safelaunch] {self.run.id}: {status.state}\r\n".encode())
        self.journal.pane.finish()
        before_save = len(self.control.signals)
        for _ in range(SAVE_PATIENCE):
            # a signal now asks again to stop, and nothing else is left to do
            if self.journal.save_end() or len(self.control.signals) > before_save:
                break
            time.sleep(1.0)

    def _remove_environment(self) -> None:
        """Remove the job's environment, which may hold secrets, once no life can follow.

        After a signal without a request to stop, the engine may start the run again.
        """
        status = self.journal.status
        is_final = status.state in ("succeeded", "failed") or not self.engine.may_restart
        if self.run.engine and (is_final or StopRequest.read(self.dir) is not None):
            json_files.remove(os.path.join(self.dir, JobEnvironment.FILE))

    def _end_fork_servers(self) -> None:
        """End what has waited for a next attempt, and look again whether anything is left."""
        left, deadline = fork_servers.end(self.dir), time.monotonic() + SERVER_PATIENCE
        if not left:
            return
        self.current.has_children = True
        while time.monotonic() < deadline:
            try:
                pid = os.waitpid(-1, os.WNOHANG)[0]
            except ChildProcessError:
                self.current.has_children = False
                return
            if pid in left:
                left.remove(pid)
            elif not pid and not left:
                return
            elif not pid:
                time.sleep(0.002)
        self.journal.status.unkillable = left  # in a file system that does not answer

    def _join_ends(self, is_asked: Callable[[], bool]) -> None:
        """Record how the run has ended on all nodes, where those were started by hand.

        It goes on until the last one has ended, does not answer, or `is_asked`.
        """
        nodes, status = self.nodes, self.journal.status
        if nodes is None or nodes.is_alone or not nodes.members.can_join:
            return
        ended = status.copy()
        try:
            from safelaunch.runtime.nodes import joint_end

            others = [nodes.name(n) for n in nodes.members.hosts if n != nodes.members.own]
            status.node_end = nodes.summary(nodes.members.own, ended.state, ended.exit_code)
            status.state, status.exit_code = "running", None
            status.reason = f"this node has ended ({ended.state}), not yet {', '.join(others)}"
            self.journal.save()
            ends = nodes.await_ends(self.sent, is_asked)
            failure = Failure.read(self.dir) if ended.state == "failed" else None
            run_failure = joint_end.complete(ended, failure, nodes.members, ends)
            if run_failure is not None:
                self.journal.fail(run_failure)
        except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
            self.journal.broken("agreement of the nodes", e)
        ended.nodes, ended.warning = status.nodes, ended.warning or status.warning
        self.journal.status = ended

    def _settle_tree(self, tree: str) -> None:
        """Move what the run has made in its own copy of the project into the project's folder."""
        try:
            from safelaunch.runtime.transfer import tree_links

            base = os.path.abspath(os.path.join(self.dir, *[os.pardir] * 3))
            tree_links.settle(os.fsencode(tree), base)
        except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
            self.journal.broken("moving its outputs into the project's folder", e)

    def clean_up(self) -> None:
        """Remove the control group, and what the backend leaves behind."""
        if self.journal.status.cgroup:
            cgroup.remove(self.journal.status.cgroup)
        _clean_up(self.run)


def _clean_up(run: RunRecord) -> None:
    """Remove what the backend leaves behind."""
    from safelaunch.runtime import backends

    backends.clean_up(run)


def _free_port(number: int) -> int | None:
    """Return a port for attempt `number`."""
    from safelaunch.runtime.start import start_probe

    return start_probe.free_port(os.getpid() * 31 + number * 997)


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


def main(node_dir: str, umask: int) -> int:
    """Run one node to its end. Exit 0: the end was recorded, whatever it was.

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
        supervisor = Supervisor(node_dir, run, umask, limits, subreaper=subreaper)
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
