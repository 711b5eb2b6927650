"""Watches an attempt: progress, samples, log sizes, hangs, the limits of the job.

It never waits. Other programs that it starts (nvidia-smi, py-spy) run beside it; by `pids` they
count neither as part of the run nor as leftovers.
"""

# ruff: noqa: PLC0415 - what few jobs need

from __future__ import annotations

import os
import time

from safelaunch.runtime import processes as runtime_processes
from safelaunch.runtime.collectives import dumps, nccl_log
from safelaunch.runtime.hang import evidence, flight_recorder
from safelaunch.runtime.logs import size_cap
from safelaunch.runtime.messages.ends import NodeEnd
from safelaunch.runtime.monitor import leftovers, limits, oom_kills, sampler
from safelaunch.runtime.progress import checkpoint_line, tracker, watchdog
from safelaunch.runtime.records import HangReport
from safelaunch.runtime.supervise import launch
from safelaunch.runtime.supervise.control import PREEMPTED, SERVICE
from safelaunch.runtime.units import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Protocol

    from safelaunch.runtime.logs.merger import Merger
    from safelaunch.runtime.monitor.preemption import PreemptionWatch
    from safelaunch.runtime.preconditions import Precondition
    from safelaunch.runtime.progress.artifacts import EarlierFiles
    from safelaunch.runtime.rank_exits import Exits
    from safelaunch.runtime.records import Failure, ProgressReport
    from safelaunch.runtime.supervise.journal import Journal
    from safelaunch.runtime.supervise.peers import Peers

    class ObservedAttempt(Protocol):
        """The attributes of an Attempt that are observed."""

        number: int
        launcher: int
        launcher_start: int
        exits: Exits
        merger: Merger
        living: dict[int, int]


PERIOD = 0.25  # seconds between two looks
# seconds for the ranks here to fail of a failure on another node: what they say is evidence
LOSS_GRACE = 0.75
SAVE_EVERY = 2.0  # seconds between two writes of the progress into status.json
PYTHON_LIMIT = 16  # processes: a job of unknown shape may have hundreds of workers
HEARTBEAT = 60.0  # seconds, without progress: a status that was damaged is written anew


class Observer:
    """The progress and health of the attempt that runs."""

    def __init__(
        self,
        journal: Journal,
        nodes: Peers | None,
        artifacts: EarlierFiles,
        began: float,
        preconditions: Sequence[Precondition] = (),
    ) -> None:
        self.journal, self.run = journal, journal.run
        self.nodes = nodes
        self.next_serve = 0.0
        self.began = began  # of the run, monotonic
        self.artifacts = artifacts  # what `success.artifacts` matched before the start
        self.memory = oom_kills.Snapshot()
        self.samples = sampler.Samples(journal.dir, self.run)
        self.cap = size_cap.LogSizeCap(launch.libc(), self.run.log_cap or size_cap.LIMIT)
        self.nccl_cap = size_cap.LogSizeCap(launch.libc(), nccl_log.LIMIT)
        line = self.run.recovery.progress if self.run.recovery else None
        self.pattern = checkpoint_line.ProgressPattern(line)
        self.preconditions = preconditions
        self.lost: Failure | None = None  # how a service ended that this attempt needs
        self.preemption: PreemptionWatch | None = None
        if self.run.preemption is not None:
            from safelaunch.runtime.monitor import preemption

            self.preemption = preemption.PreemptionWatch(journal.dir, self.run.preemption)
        self.hangs = 0
        self.broken: set[str] = set()
        self.next_look = 0.0
        self.saved_at = 0.0
        self.saved: ProgressReport | None = None

    def start_attempt(self, attempt: ObservedAttempt) -> None:
        """Start to observe a new attempt."""
        self.pattern.reset()
        self.lost = None
        self.output = (0, time.monotonic())  # bytes of output, and the time of the last ones
        self.loss_at: float | None = None  # when a failure on another node was first seen
        self.progress = tracker.Progress(list(self.run.progress))
        self.watchdog = watchdog.Watchdog(self.run.hang)
        self.evidence: evidence.Evidence | None = None
        self.nccl: nccl_log.NcclWatch | None = None
        if "nccl" in self.run.evidence:
            self.nccl = nccl_log.NcclWatch(self.journal.dir, attempt.number)
        # a launcher ends the others at once, which leaves no time for one
        self.wants_dumps = self.run.start is not None and "flight" in self.run.evidence
        self.not_finite: dict[str, Any] | None = None  # the event of the last NaN losses
        self.memory.add_processes([os.getpid(), attempt.launcher])
        if self.preemption is not None:
            self._try("preemption", self.preemption.start)

    def started(self, processes: dict[int, int]) -> None:
        """Add processes that are new: each may be in a cgroup of its own."""
        self.memory.add_processes(list(processes))

    def feed(self, data: bytes) -> None:
        """Read the progress in output of the job."""
        self._try("progress", self._read, data)

    def _read(self, data: bytes) -> None:
        self.pattern.feed(data)
        self._record(self.progress.feed(data, time.monotonic()))

    def _record(self, events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            if event["event"] == "nan-loss":
                self.not_finite = event
            details = dict(event)
            self.journal.event(str(details.pop("event")), **details)

    def _try(self, part: str, work: Callable[..., Any], *args: Any) -> Any:
        """Return `work(*args)`; a part that has failed once is left out from then on.

        The supervisor owns the job: no fault in what it merely observes may end it.
        """
        if part in self.broken:
            return None
        try:
            return work(*args)
        except Exception as e:  # noqa: BLE001 - of any kind: a fault of ours ends no job
            self.broken.add(part)
            self.journal.broken(part, e)
            return None

    # -- looking -------------------------------------------------------------------------------

    def tick(self, attempt: ObservedAttempt) -> str:
        """Check all parts; return why the attempt has to end now, or ""."""
        if self.wants_dumps and attempt.exits.has_failed():
            self.wants_dumps = False
            self._try("dumps", self._request_dumps, attempt)
        now = time.monotonic()
        if now < self.next_look:
            return ""
        self.next_look = now + PERIOD
        self._try("samples", self._sample, now)
        self._try("log_cap", self._cap, attempt)
        self._try("nccl", self._read_nccl, now)
        self._try("progress", self._save, now)
        reason = self._limits(now) or self._try("services", self._lost_service)
        reason = reason or self._try("preemption", self._look_for_notice, now)
        reason = reason or self._try("nodes", self._other_nodes, now, attempt)
        return reason or self._try("hang", self._hang, now, attempt) or ""

    def _lost_service(self) -> str:
        return SERVICE if self.loss() is not None else ""

    def loss(self) -> Failure | None:
        """Return how a service ended that the job needs; None where there is no such end."""
        losses = (precondition.loss() for precondition in self.preconditions)
        self.lost = self.lost or next(filter(None, losses), None)
        return self.lost

    def _request_dumps(self, attempt: ObservedAttempt) -> None:
        """Request of the ranks that live on what they wait in, before their grace is over."""
        stem = os.path.join(dumps.folder(self.journal.dir, attempt.number), dumps.PREFIX)
        ranks = flight_recorder.request_dumps(stem, attempt.exits.alive())
        if ranks:
            self.journal.event("dumps-requested", ranks=ranks)

    def _look_for_notice(self, now: float) -> str:
        """Return "preempted" once the machine is taken away."""
        watch = self.preemption
        if watch is None:
            return ""
        notice = watch.tick(now)
        if watch.is_problem_new:
            watch.is_problem_new = False
            self.journal.warn(f"a preemption would not be noticed: {watch.problem}")
            self.journal.save()
        if not notice:
            return ""
        self.journal.event("preempted", what=notice)
        self.journal.notify(f"notice of a preemption: {notice}")
        return PREEMPTED

    def _other_nodes(self, now: float, attempt: ObservedAttempt) -> str:
        """Serve the other nodes; return "node" where one of them ends this one.

        After a failure there the ranks here, which lose their peers, may fail by themselves.
        """
        if self.nodes is None:
            return ""
        if attempt.merger.total != self.output[0]:
            self.output = (attempt.merger.total, now)
        quiet = now - self.output[1]
        if self.nodes.members.rank_nodes:  # it has nothing that could write
            quiet = self.nodes.LONG_QUIET
        reason = self.nodes.tick(attempt.number, quiet)
        if reason == "node" and self.nodes.cause.state == "failed":
            self.loss_at = now if self.loss_at is None else self.loss_at
            return reason if now - self.loss_at >= LOSS_GRACE else ""
        return reason

    def is_stopping(self, attempt: int, why: str) -> None:
        """Notify the other nodes at once of a stop: their ranks will miss ours."""
        if self.nodes is not None and why in ("SIGTERM", "SIGINT", "min_steps", *limits.LIMITS):
            state = "succeeded" if why == "min_steps" else "stopped"
            end = NodeEnd(state=state, stopped_by=why)
            self._try("nodes", self.nodes.ended, attempt, end)

    def on_turn(self) -> None:
        """Serve the other nodes, also while an attempt is being ended."""
        now = time.monotonic()
        if self.nodes is not None and now >= self.next_serve:
            self._try("nodes", self.nodes.serve)
            # while they meet each message waits for an answer
            self.next_serve = now + (0.0 if self.nodes.is_meeting else PERIOD)

    def _sample(self, now: float) -> None:
        self.samples.tick(now)
        self._record(self.samples.take_events())

    def _cap(self, attempt: ObservedAttempt) -> None:
        own = [fd for fd in (self.journal.combined, self.journal.copy) if fd >= 0]
        warning = self.cap.tick(attempt.merger.offsets(), own)
        if warning:
            self.journal.warn(warning)
            self.journal.event("log-cap", note=warning)

    def _read_nccl(self, now: float) -> None:
        """Record what NCCL has chosen, and cut what it writes beyond its start."""
        if self.nccl is None:
            return
        before = self.nccl.next_look
        report = self.nccl.tick(now)
        if report is not None:
            self.journal.status.nccl = report
        if self.nccl.next_look != before:  # the sizes are new
            self.nccl_cap.tick(self.nccl.sizes, [])

    def _save(self, now: float) -> None:
        if now - self.saved_at < SAVE_EVERY:
            return
        progress = self.progress.snapshot()
        if progress != self.saved or now - self.saved_at > HEARTBEAT:
            self.saved, self.saved_at = progress, now
            if progress is not None:
                self.journal.status.progress = progress
            self.journal.save()

    def _limits(self, now: float) -> str:
        limit, name = limits.first(self.run)
        if now - self.began > limit:
            return name
        min_steps = self.run.success.min_steps if self.run.success else None
        if self.run.smoke and min_steps and self.steps() >= min_steps:
            return "min_steps"
        return ""

    def steps(self) -> int:
        """Return the progress of the attempt: its step, or the steps of all epochs."""
        return max(self.progress.step or 0, self.progress.done)

    # -- hangs ---------------------------------------------------------------------------------

    def _hang(self, now: float, attempt: ObservedAttempt) -> str:
        """Follow a hang; return "hang" where the attempt has to end by it."""
        p = self.progress
        total = attempt.merger.total
        if self.nodes is not None:
            total = self.nodes.written(total)  # often only rank 0 writes
        if self.watchdog.observe(now, total, p.steps_seen, p.step_times):
            self._suspect(attempt)
        if self.watchdog.resumed():
            self.journal.event("hang-over", seconds=self.watchdog.silent)
            hang = self.journal.status.hang
            if hang is not None:
                hang.over = True
                self.journal.save()
        report = self.evidence.tick(now) if self.evidence is not None else None
        if report is None:
            return ""
        self.evidence = None
        if self.journal.status.hang is not None:
            self.journal.status.hang.update(report)
        self.journal.event("hang-evidence", **report.to_json())
        self.journal.save()
        action = self.run.hang.action if self.run.hang else None
        return "hang" if action in ("restart", "stop") and not self.watchdog.is_quiet() else ""

    def _suspect(self, attempt: ObservedAttempt) -> None:
        self.hangs += 1
        silent, kind = self.watchdog.silent, self.watchdog.kind
        self.journal.status.hang = HangReport(since=time.time() - silent, silent=silent, kind=kind)
        self.journal.event("hang-suspected", kind=kind, seconds=silent)
        what = "no step" if kind == "stepless" else "no output and no step"
        self.journal.notify(
            f"hang suspected: {what} for {duration(silent)}; safelaunch show {self.run.id}"
        )
        self.journal.save()
        ranks = attempt.exits.alive() or _pythons(attempt.living)
        ranks = ranks or {0: (attempt.launcher, attempt.launcher_start)}
        self.evidence = evidence.Evidence(self.journal.dir, self.run, attempt.number)
        self.evidence.start(self.hangs, ranks)

    def close(self, attempt: ObservedAttempt) -> None:
        """Check a last time: the rest of the logs has been merged."""
        self._try("progress", self._read_rest)
        self._try("nccl", self._read_all_nccl)
        self._try("log_cap", self._cap, attempt)

    def _read_all_nccl(self) -> None:
        """Record what NCCL wrote in a run that ended before it was looked at."""
        if self.nccl is not None:
            paths = nccl_log.paths(self.nccl.folder)
            files = [file for file in map(nccl_log.read, paths) if file is not None]
            report = nccl_log.report(files)
            if report is not None:
                self.journal.status.nccl = report

    def _read_rest(self) -> None:
        """Read what is pending: lines of a flood, a last line without an end."""
        self.pattern.close()
        self._record(self.progress.close(time.monotonic()))

    # -- our own helpers -----------------------------------------------------------------------

    def pids(self) -> list[int]:
        """Return the pids of children of the supervisor that are not the job's."""
        return [*self._helpers(), *(pid for waits in self.preconditions for pid in waits.pids())]

    def _helpers(self) -> list[int]:
        own = [self.samples.pid] if self.samples.pid else []
        own += [self.preemption.pid] if self.preemption is not None and self.preemption.pid else []
        return own + (list(self.evidence.children) if self.evidence is not None else [])

    def reaped(self, pid: int, status: int) -> bool:
        """Whether the child that has ended was one of ours."""
        if self.preemption is not None and self.preemption.reaped(pid):
            return True
        helpers = (self.samples, self.evidence)
        is_helper = any(helper is not None and helper.reaped(pid, status) for helper in helpers)
        return is_helper or any(precondition.reaped(pid) for precondition in self.preconditions)

    def cancel(self) -> None:
        """End the programs that the observer has started."""
        if self.evidence is not None:
            self.evidence.cancel()
        for pid in self._helpers():
            start = runtime_processes.start_time(pid)
            if start is not None:
                runtime_processes.send(pid, start, 9)


def _pythons(processes: dict[int, int]) -> dict[int, tuple[int, int]]:
    """Return the Python processes of a job without ranks, numbered by their pids."""
    pythons = [(pid, processes[pid]) for pid in sorted(processes) if leftovers.is_python(pid)]
    return dict(enumerate(pythons[:PYTHON_LIMIT]))
