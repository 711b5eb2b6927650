"""Turns a rented machine off after a run: only once the results are safe and nobody works there.

Safe: every command at the end and the upload have succeeded, and a client has fetched the files of
`pull`, or has not come in time. A person who has stopped the run keeps the machine on.
"""

from __future__ import annotations

import os
import time

from safelaunch.runtime import processes, run_state
from safelaunch.runtime.plain_text import shortened
from safelaunch.runtime.records import PulledFiles
from safelaunch.runtime.supervise.ending import logins
from safelaunch.runtime.supervise.ending.words import DONE, FAILED, GRACE, RUNNING, WAITING
from safelaunch.runtime.units import job_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import EndPlan, ShutdownSpec
    from safelaunch.runtime.supervise.ending.run_command import Commands

LOOK_EVERY = 2.0  # seconds between two looks for other runs and people
PAUSE = 0.25
TIMEOUT = 600.0  # seconds that the command may take
SIGNALS = ("SIGTERM", "SIGINT")


def run(runner: Commands, spec: ShutdownSpec, plan: EndPlan) -> None:
    """Wait until nothing needs the machine, then for the grace, and turn it off."""
    report, journal = runner.report, runner.journal
    why = refusal(runner)
    if why:
        report.state, report.what = FAILED, f"the machine stays on: {why}"
        journal.notify(report.what)
        return
    if journal.status.stopped_by in SIGNALS:
        journal.notify("the machine stays on: a person has stopped the run")
        return
    wait = _Wait(runner, spec, plan)
    while not wait.is_over():
        if runner.is_stopped:
            journal.notify("the machine stays on: stopped by a person")
            return
        runner.rest(PAUSE)
    # still in the state of the grace: who waits for the run must not wait for a machine that is off
    report.shutdown_at = time.time()
    step = runner.run("shutdown", spec.command, TIMEOUT)
    if step.state == "succeeded":
        report.state, report.what = DONE, ""


def refusal(runner: Commands) -> str:
    """Return why the results are not safe, "" where they are."""
    bad = [step.name for step in runner.report.steps if step.state != "succeeded"]
    if bad:
        return f"{shortened(bad)} failed, and the results may be on it alone"
    if runner.journal.dropped:
        return "its disk has refused output"
    return ""


class _Wait:
    """The wait for a client, for other runs and people, and then the grace."""

    def __init__(self, runner: Commands, spec: ShutdownSpec, plan: EndPlan) -> None:
        self.runner, self.spec = runner, spec
        self.dir = runner.journal.dir
        # what was started on this machine has its results here
        waits = bool(plan.pull) and runner.journal.run.client is not None
        self.pull_until = time.monotonic() + spec.pull_wait if waits else 0.0
        self.off_at: float | None = None  # monotonic
        self.next_look = 0.0

    def is_over(self) -> bool:
        """Whether the machine is to be turned off now."""
        now = time.monotonic()
        if now >= self.next_look or (self.off_at is not None and now >= self.off_at):
            self.next_look = now + LOOK_EVERY
            why = self._reason(now)
            if why:
                self.off_at = None
                self._show(WAITING, why, None)
            elif self.off_at is None:
                self.off_at = now + self.spec.grace
                at = time.time() + self.spec.grace
                self._show(GRACE, f"in {job_duration(self.spec.grace)}", at)
        return self.off_at is not None and now >= self.off_at

    def _show(self, state: str, what: str, at: float | None) -> None:
        report, journal = self.runner.report, self.runner.journal
        if (report.state, report.what) == (state, what):
            return
        report.state, report.what, report.shutdown_at = state, what, at
        journal.save()
        journal.event("shutdown", state=state, what=what, at=at)
        stop = f"safelaunch stop {journal.run.id} keeps the machine on"
        text = f"the machine shuts down {what}: {stop}" if at else f"the machine stays on: {what}"
        journal.notify(text)

    def _reason(self, now: float) -> str:
        """Return why the machine has to stay on for now, or ""."""
        if now < self.pull_until and PulledFiles.read(self.dir) is None:
            wait = job_duration(self.spec.pull_wait)
            return f"no client has fetched the files of `pull` yet (at most {wait})"
        runs = other_runs(self.dir)
        if runs:
            return f"{shortened(runs)} is not over"
        if self.spec.others == "ignore":
            return ""
        runs = foreign_runs(self.dir)
        if runs:
            return f"{shortened(runs)}, of another home on this machine, is not over"
        people = logins.logins()
        return f"{shortened(people)} is logged in" if people else ""


def other_runs(node_dir: str) -> list[str]:
    """Return the other runs of this home on this machine that are not over."""
    own = os.path.dirname(node_dir)
    folder = os.path.dirname(own)
    names = []
    for name in sorted(os.listdir(folder)):
        run_dir = os.path.join(folder, name)
        if run_dir == own or not os.path.isdir(run_dir):
            continue
        nodes = [node for node in os.listdir(run_dir) if node.startswith("node-")]
        if any(_is_busy(os.path.join(run_dir, node)) for node in nodes):
            names.append(name)
    return names


def foreign_runs(node_dir: str) -> list[str]:
    """Return the ids of the runs of other homes on this machine that are not over."""
    own = os.path.dirname(os.path.dirname(node_dir))
    paths = {path for _, _, path in processes.all_supervisors() if not _is_below(path, own)}
    return sorted(os.path.basename(os.path.dirname(path)) for path in paths if _is_busy(path))


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(os.path.realpath(folder) + "/")


def _is_busy(node_dir: str) -> bool:
    if os.path.exists(os.path.join(node_dir, run_state.MIRROR)):
        return False  # of a run on another machine
    status = run_state.current_status(node_dir)
    if status.state in run_state.ENDED:
        # one that waits to turn the machine off too does not keep it on
        return status.has_live_end and status.ending is not None and status.ending.state == RUNNING
    return status.state in ("pending", "running") or bool(status.alive)
