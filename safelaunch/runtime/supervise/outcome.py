"""Says how an attempt ended: its launcher, its ranks and what the job calls success, together.

The launcher's exit status alone lies in both directions: `| tee`, `wait`, Fire and accelerate's
`--debug` hide failures, and a job may end with 0 before it has done its work.
"""

from __future__ import annotations

import glob
import math
import os
import time

from safelaunch.runtime.failure import analyse, blame
from safelaunch.runtime.records import Failure, HangReport, Status
from safelaunch.runtime.signatures import classes
from safelaunch.runtime.supervise import recovery
from safelaunch.runtime.units import job_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.runtime.records import AttemptRecord, RunRecord
    from safelaunch.runtime.supervise.attempt import Attempt
    from safelaunch.runtime.supervise.observer import Observer

SLACK = 2.0  # seconds: file systems round times down to whole ones, FAT to even ones
SIGNALS = ("SIGTERM", "SIGINT")
LOSSES = ("loss", "actor_loss", "vf_loss")
# what to do where `success` is not met
NO_STEPS = "give the form of your log's steps under `progress:`, or take `min_steps` away"
FEW_STEPS = "find in the log why it ended early, or correct `success.min_steps`"
GONE = "look at that host: its power, its network, `journalctl -b -1 -e`, `dmesg`"
ALONE = "let the launcher make the ranks: no `distributed_type: NO`, no `--standalone`"
NO_FILES = "look where the program saved, and correct `success.artifacts` (globs begin at %s)"


class Outcome(object):
    """How an attempt ended, as it goes into status.json, its attempts and failure.json."""

    def __init__(self, run: RunRecord, attempts: list[AttemptRecord], began: float) -> None:
        self.run = run
        self.began = began  # of the run, monotonic: a clock that is set must not use up the budget
        self.attempts = attempts
        self.failure: Failure | None = None
        self.warnings: list[str] = []
        self.status = Status()  # what changes in status.json

    def decide(self) -> recovery.Decision:
        """Return what comes next."""
        return self._decide(self.failure or Failure())

    def decide_for_all(self, ends: dict[int, recovery.NodeEnd]) -> recovery.Decision:
        """Return what comes next on all nodes, from how the attempt has ended on each."""
        lost = [node for node, end in ends.items() if end.state == "lost"]
        stops = [e for e in ends.values() if e.state == "stopped" and e.stopped_by != "node"]
        failed = [end for end in ends.values() if end.state == "failed"]
        if lost or stops or not failed:
            why = "no restart: node %d is gone" % lost[0] if lost else "no restart: it was stopped"
            return recovery.Decision(action="stop", delay=0.0, rung=0, why=why)
        first = min(failed, key=lambda end: blame.blame(end.role, end.time))
        last = self.attempts[-1]
        last.class_name, last.rank, last.what = first.class_name, first.rank, first.what
        failure = Failure(class_name=first.class_name, exit_code=first.exit_code)
        failure.unmet = first.unmet or ()
        return self._decide(failure)

    def _decide(self, failure: Failure) -> recovery.Decision:
        scripts = self.run.again.scripts if self.run.again else ()
        action = self.run.hang.action if self.run.hang else None
        if failure.class_name == "hang" and action != "restart":
            return recovery.Decision(action="stop", why="`hang.action` is %s" % action)
        return recovery.decide(
            self.run.recovery,
            self.attempts,
            failure,
            time.monotonic(),
            self.began,
            rungs=max(0, len(scripts) - 1),
        )

    def advice(self) -> str | None:
        """Return what the attempts have taught about the NCCL ladder."""
        rungs = self.run.again.rungs if self.run.again else ()
        return recovery.advice(self.attempts, rungs, self.status.state == "succeeded")


def determine(
    node_dir: str,
    run: RunRecord,
    attempt: Attempt,
    observer: Observer,
    attempts: list[AttemptRecord],
) -> Outcome:
    """Return the outcome of an attempt of which nothing is left; its last record is completed."""
    outcome = Outcome(run, attempts, observer.began)
    launcher = attempt.outcome()
    outcome.status = Status(exit_code=launcher["exit_code"], state="succeeded")
    if launcher["signal"]:
        outcome.status.signal = launcher["signal"]
    if attempt.ended_by:
        _ended_early(outcome, attempt, observer)
    else:
        _ended_itself(outcome, node_dir, attempt, observer, launcher)
    progress = observer.progress.snapshot()
    if progress is not None:
        outcome.status.progress = progress
    warning = _not_finite(outcome, observer)
    if warning:
        outcome.warnings.append(warning)
    _complete(attempts[-1], outcome, attempt, observer)
    advice = outcome.advice()
    if advice:
        outcome.status.advice = advice
    return outcome


def _ended_early(outcome: Outcome, attempt: Attempt, observer: Observer) -> None:
    cause, status = attempt.ended_by, outcome.status
    if cause in SIGNALS:
        status.state, status.stopped_by = "stopped", cause
        return
    status.signal = None  # that signal was our own
    if cause == "min_steps":
        _is_smoke(outcome, observer)
    elif cause == "node":
        assert observer.nodes is not None  # noqa: S101 - it said so
        why = observer.nodes.why()
        if observer.nodes.cause.state == "lost":
            outcome.failure = _failure(attempt, "peer-lost", why)
            outcome.failure.role, outcome.failure.advice = "cascade", GONE
            status.state = "failed"
        else:
            status.state, status.stopped_by, status.reason = "stopped", "node", why
    elif cause == "max_duration":
        status.state, status.stopped_by = "stopped", "max_duration"
        status.reason = "its max_duration of %s had passed" % job_duration(
            outcome.run.max_duration or 0.0
        )
    else:
        outcome.failure = _hang(attempt, observer.journal.status.hang or HangReport())
        status.state, status.reason = "failed", "ended because it hung"


def _is_smoke(outcome: Outcome, observer: Observer) -> None:
    steps = observer.steps()  # on the node that has seen them
    outcome.status.state, outcome.status.signal = "succeeded", None
    outcome.status.reason = "smoke run, ended %sas asked" % (
        "after %d steps " % steps if steps else ""
    )


def _failure(attempt: Attempt, name: str | None, what: str) -> Failure:
    """Return a failure that no rank and no exit status tells."""
    return Failure(
        version=1,
        attempt=attempt.number,
        class_name=name,
        meaning=classes.meaning(name or "") or None,
        role="root" if name else "unknown",
        rank=None,
        host=os.uname().nodename,
        pid=None,
        time=time.time(),
        what=what,
        exception=None,
        frame=None,
        exit_code=None,
        signal="",
        last_lines=[],
        log=os.path.join(attempt.journal.logs, "combined.log"),
        proof=None,
        others=[],
        advice="",
    )


def _hang(attempt: Attempt, hang: HangReport) -> Failure:
    failure = _failure(attempt, "hang", "no output and no step for %d s" % hang.silent)
    failure.proof = "; ".join(hang.summary.splitlines()) or None
    failure.rank, failure.frame = hang.rank, hang.frame
    failure.advice = hang.advice or "read the stacks of all ranks"
    return failure


def _ended_itself(
    outcome: Outcome,
    node_dir: str,
    attempt: Attempt,
    observer: Observer,
    launcher: dict[str, Any],
) -> None:
    status = outcome.status
    outcome.failure, outcome.warnings = analyse.find(
        node_dir,
        outcome.run,
        attempt.number,
        attempt.exits.newest,
        launcher,
        [source.path for source in attempt.merger.sources.values() if source.is_extra],
        observer.memory.kills(),
    )
    nodes = observer.nodes
    if outcome.failure is not None:
        status.state = "failed"
        if outcome.failure.role == "cascade" and nodes and nodes.is_stopped(attempt.number):
            outcome.failure = None
            if nodes.cause.stopped_by == recovery.SMOKE:
                _is_smoke(outcome, observer)
            else:
                status.state, status.stopped_by, status.reason = "stopped", "node", nodes.why()
        return
    alone = observer.journal.missing_ranks(attempt.number)
    if alone and nodes is not None:
        what = "%s: each node has trained alone" % alone
        outcome.failure = _failure(attempt, "rendezvous-timeout", what)
        outcome.failure.exit_code, outcome.failure.advice = launcher["exit_code"], ALONE
        status.state, status.reason = "failed", what
        return
    missing, advice = _missing(outcome.run, observer)
    if missing:
        what = "`success` wants " + "; and ".join(missing)
        outcome.failure = _failure(attempt, None, what)
        outcome.failure.unmet, outcome.failure.advice = missing, "; and ".join(advice)
        outcome.failure.exit_code = launcher["exit_code"]
        status.state, status.reason = "failed", what


def _missing(run: RunRecord, observer: Observer) -> tuple[list[str], list[str]]:
    """Return what `success:` asks for and is not there, and what to do about it.

    Of several nodes the first one counts: there rank 0 says its steps, and saves.
    """
    if run.node or run.success is None:
        return [], []
    missing, advice = [], []
    min_steps, steps = run.success.min_steps, observer.steps()
    if min_steps and steps < min_steps:
        what = "%d were seen in the log" % steps if steps else "none was seen in the log"
        missing.append("%d steps, %s" % (min_steps, what))
        advice.append(FEW_STEPS if steps else NO_STEPS)
    cwd = run.cwd or "/"
    since = time.time() - (time.monotonic() - observer.began) - SLACK
    files = [_missing_file(cwd, pattern, since) for pattern in run.success.artifacts]
    if any(files):
        missing += [file for file in files if file]
        advice.append(NO_FILES % cwd)
    return missing, advice


def _missing_file(cwd: str, pattern: str, since: float) -> str:
    """Say that no file of this run fits a glob; nothing where one does."""
    files = glob.glob(os.path.join(cwd, pattern), recursive=True)
    if not files:
        return "a file `%s`, there is none" % pattern
    if not any(_is_new(file, since) for file in files):
        return "a file `%s`, what is there is older than this run" % pattern
    return ""


def _is_new(path: str, since: float) -> bool:
    try:
        return os.stat(path).st_mtime >= since
    except OSError:
        return False


def _not_finite(outcome: Outcome, observer: Observer) -> str:
    """Return that the loss was no number to the end, whatever the exit code; "" where it was."""
    spell, metrics = observer.not_finite, observer.progress.metrics
    failure = outcome.failure
    if spell is None or (failure is not None and failure.class_name == "nan-loss"):
        return ""
    names = (*LOSSES, "grad_norm") if spell["what"] == "grad_norm" else LOSSES
    bad = [name for name in names if not math.isfinite(metrics.get(name, 0.0))]
    if not bad:
        return ""
    step = spell.get("step")
    since = "" if step is None else " since about step %s" % step
    warning = "%s was not finite (NaN or infinite)%s: weights trained after that are useless"
    return warning % (", ".join(bad), since)


def _complete(
    record: AttemptRecord, outcome: Outcome, attempt: Attempt, observer: Observer
) -> None:
    """Complete the record of an attempt in status.json."""
    run, progress = outcome.run, observer.progress
    checkpoint = run.recovery.checkpoint if run.recovery else None
    record.ended_at = time.time()
    record.elapsed = round(time.monotonic() - attempt.began, 3)
    record.state, record.exit_code = outcome.status.state, outcome.status.exit_code
    record.steps = observer.steps() or None
    record.checkpoint = recovery.newest(checkpoint, run.cwd or "/") if checkpoint else None
    record.progressed = observer.progressed or progress.last_checkpoint_at is not None
    failure = outcome.failure
    if failure is not None:
        record.class_name, record.rank, record.what = failure.class_name, failure.rank, failure.what
