"""Runs the commands at the end of a run: each owned, logged, limited in time, ended with proof."""

from __future__ import annotations

import os
import time

from safelaunch.runtime import processes
from safelaunch.runtime.logs import reader, size_cap
from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.rank_exits import decode
from safelaunch.runtime.records import EndStep
from safelaunch.runtime.supervise import journal as journals
from safelaunch.runtime.supervise import launch
from safelaunch.runtime.supervise.control import readable
from safelaunch.runtime.supervise.ending.words import SCRIPT
from safelaunch.runtime.units import job_duration, quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.runtime.records import EndReport
    from safelaunch.runtime.supervise.control import Control
    from safelaunch.runtime.supervise.journal import Journal

LOG_LIMIT = 64 << 20  # bytes of the log: its head and its tail
GRACE = 5.0  # seconds between TERM and KILL
PAUSE = 0.25  # seconds between two looks; a child's end and a signal come at once
STOPPED = "stopped by a person"


class Commands:
    """What runs commands after the run; a signal ends them, and all that would follow."""

    def __init__(
        self, journal: Journal, control: Control, facts: Mapping[str, str], umask: int
    ) -> None:
        self.journal = journal
        self.control = control
        self.umask = umask  # the caller's
        self.environment = _environment(journal, facts)
        self.signals = len(control.signals)  # those that have ended the run itself
        self.cap = size_cap.LogSizeCap(launch.libc(), LOG_LIMIT)
        self.path = reader.log_path(journal.dir, reader.END, 0)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has come since the end of the run."""
        return len(self.control.signals) > self.signals

    @property
    def report(self) -> EndReport:
        """What is recorded of it."""
        assert self.journal.status.ending is not None  # noqa: S101 - set before the end is written
        return self.journal.status.ending

    def rest(self, seconds: float) -> None:
        """Wait until a child ends or a signal comes, at most so long."""
        source = self.control.source
        fds = [self.control.pipe, source.fd if source is not None else -1]
        readable([fd for fd in fds if fd >= 0], seconds)
        self.control.clear()
        self.journal.restore({})

    def run(
        self, name: str, words: Sequence[str], limit: float, *, shown: str = "", plain: bool = False
    ) -> EndStep:
        """Run a command to its end, at most `limit` seconds; return how it ended.

        It runs in the job's directory with its variables, or if `plain` in the supervisor's.
        """
        step = EndStep(name=name, command=shown or show(words), started_at=time.time())
        self.report.steps = [*self.report.steps, step]
        self.report.what = f"{name} runs: {step.command}"
        self.journal.save()
        began = time.monotonic()
        try:
            self._run(step, words, limit, plain=plain)
        except OSError as e:
            step.state, step.what = "failed", f"it cannot be started: {e}"
        step.elapsed = round(time.monotonic() - began, 3)
        self.journal.save()
        self.journal.event("end-command", **step.to_json())
        if step.state != "succeeded":
            self.journal.notify(f"{name} {step.state}: {step.what} ({printable(step.command)})")
        return step

    def _run(self, step: EndStep, words: Sequence[str], limit: float, *, plain: bool) -> None:
        os.makedirs(os.path.dirname(self.path), 0o700, exist_ok=True)
        log = os.open(self.path, journals.LOG_FLAGS, 0o600)
        try:
            os.write(log, f"[safelaunch] {step.name}: {printable(step.command)}\n".encode())
            script = os.path.join(self.journal.dir, SCRIPT)
            is_alone = plain or not os.path.isfile(script)
            argv = list(words) if is_alone else ["bash", script, *words]
            pid = launch.fork_words(argv, log, self.environment, self.umask)
            self.journal.processes({pid: processes.start_time(pid) or 0})
            self._follow(step, pid, log, time.monotonic() + limit, limit)
        finally:
            os.close(log)

    def _follow(self, step: EndStep, pid: int, log: int, late: float, limit: float) -> None:
        status: int | None = None
        while status is None:
            status = self._reaped(pid)
            if status is None and (self.is_stopped or time.monotonic() >= late):
                break
            if status is None:
                self.rest(PAUSE)
                self.cap.tick({}, [log])
        left = self._end_rest()
        self.cap.tick({}, [log])
        if status is None:
            step.state = "stopped" if self.is_stopped else "failed"
            step.what = STOPPED if self.is_stopped else f"ended after {job_duration(limit)}"
            return
        step.exit_code, signal = decode(status)
        step.state = "succeeded" if status == 0 else "failed"
        step.what = f"ended by {signal}" if signal else f"exit code {step.exit_code}"
        if left:
            step.what += f"; {quantity(left, 'process')} in the background ended too"

    def _reaped(self, pid: int) -> int | None:
        """Return the wait status of a child, None while it runs; others are reaped beside it."""
        result = None
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return result
            if child == 0:
                return result
            if child == pid:
                result = status

    def _end_rest(self) -> int:
        """End what a command leaves behind; return how many processes that were."""
        ended: set[int] = set()

        def find() -> dict[int, int]:
            self._reaped(0)
            left = processes.descendants(os.getpid())
            left.update(processes.marked(self.journal.run.id))
            ended.update(left)
            return left

        until = time.monotonic() + GRACE
        stuck = processes.end_all(find, lambda: time.monotonic() >= until)
        self._reaped(0)
        if stuck:
            self.journal.status.unkillable = sorted(stuck)
        return len(ended)


def show(words: Sequence[str]) -> str:
    """Return a command for people: a line of shell as it is, words with blanks between them."""
    if list(words[:2]) == ["bash", "-c"] and len(words) == 3:  # noqa: PLR2004 - and its line
        return words[2]
    return " ".join(words)


def _environment(journal: Journal, facts: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: the supervisor's, the mark, and the run's facts."""
    run = journal.run
    own = {k: v for k, v in os.environ.items() if not k.startswith("SAFELAUNCH_")}
    for name in launch.TERMINAL:
        own.pop(name, None)
    own.update(run.terminal)
    return {**own, **facts, processes.MARK: run.id, "SPT_NOENV": "1"}
