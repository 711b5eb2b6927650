"""Decides how an attempt ended: from its launcher, its ranks and the job's conditions of success.

The launcher's exit status alone is wrong in both directions: `| tee`, `wait`, Fire and accelerate's
`--debug` hide failures, and a job may end with 0 before it has done its work.
"""

# ruff: noqa: PLC0415 - code_files: only after a failed import

from __future__ import annotations

import math
import os
import re
import time

from safelaunch.runtime import rank_exits
from safelaunch.runtime.failure import analyse, blame, log_tails
from safelaunch.runtime.messages.ends import Decision
from safelaunch.runtime.monitor import limits
from safelaunch.runtime.monitor.leftovers import IDLE_AFTER, describe
from safelaunch.runtime.progress import artifacts, checkpoints
from safelaunch.runtime.records import Failure, HangReport, PartFailure, RankFailure, Status
from safelaunch.runtime.signatures import classes
from safelaunch.runtime.signatures.advice import ADVICE
from safelaunch.runtime.supervise.attempts import recovery
from safelaunch.runtime.supervise.control import PREEMPTED, RANKS_END, SERVICE, SMOKE, TIME_LIMIT
from safelaunch.runtime.units import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from safelaunch.runtime.messages.ends import NodeEnd
    from safelaunch.runtime.monitor.leftovers import LeftoverEnd
    from safelaunch.runtime.rank_exits import RankExit
    from safelaunch.runtime.records import AttemptRecord, RunRecord
    from safelaunch.runtime.supervise.attempts.attempt import Attempt
    from safelaunch.runtime.supervise.attempts.observer import Observer
    from safelaunch.runtime.supervise.peers import Peers

SIGNALS = ("SIGTERM", "SIGINT")
LOSSES = ("loss", "actor_loss", "vf_loss")
# what to do where `success` is not met
NO_STEPS = "describe your log's step lines under `progress:`, or remove `min_steps`"
FEW_STEPS = "find in the log why it ended early, or correct `success.min_steps`"
NO_FILES = (
    "check where the program saved, and correct `success.artifacts` (globs are relative to %s)"
)
# where another node is lost, and where each node trained alone
LOST_NODE = "check that host: its power, its network, `journalctl -b -1 -e`, `dmesg`"
TIME_LIMIT_CLASS = "time-limit"
LONGER = (
    "ask for more time (`slurm: {time: ...}`), or let the job resume from its checkpoints"
    " (`recovery: {checkpoint: ...}` and `resume_args`): then it goes on in another allocation"
)
# failure class and advice of an attempt that had to make room
NOTICES = {
    TIME_LIMIT: (TIME_LIMIT_CLASS, LONGER),
    PREEMPTED: (PREEMPTED, ADVICE[PREEMPTED]),
}
ALONE = "let the launcher start the ranks: no `distributed_type: NO`, no `--standalone`"
# where a program that a script or a rank has left in the background did not end well
WAIT = "let the script `wait` for what it starts in the background, or end it there"
READ = "find in the log why it failed, or let what started it wait for its end"


class Outcome:
    """How an attempt ended, as it goes into status.json, its attempts and failure.json."""

    def __init__(self, run: RunRecord, attempts: list[AttemptRecord], began: float) -> None:
        self.run = run
        self.began = began  # of the run, monotonic: setting the clock must not use up the budget
        self.attempts = attempts
        self.failure: Failure | None = None
        self.warnings: list[str] = []
        self.status = Status()  # the changes of status.json

    def decide(self, failure: Failure) -> Decision:
        """Return what follows a failure."""
        run, now = self.run, time.monotonic()
        action = run.hang.action if run.hang else None
        if failure.class_name == "hang" and action != "restart":
            return Decision(why=f"`hang.action` is {action}")
        rungs = max(0, len(run.again.scripts) - 1) if run.again else 0
        return recovery.decide(run.recovery, self.attempts, failure, now, self.began, rungs)

    def decide_for_all(self, ends: dict[int, NodeEnd]) -> Decision:
        """Return what follows on all nodes, from how the attempt has ended on each."""
        lost = [node for node, end in ends.items() if end.state == "lost"]
        stops = [e for e in ends.values() if e.state == "stopped" and e.stopped_by != "node"]
        failed = [end for end in ends.values() if end.state == "failed"]
        if lost or stops or not failed:
            why = f"node {lost[0]} is gone" if lost else "it was stopped"
            return Decision(why=f"no restart: {why}")
        first = min(failed, key=lambda end: blame.blame(end.role, end.time))
        last = self.attempts[-1]
        last.class_name, last.rank, last.what = first.class_name, first.rank, first.what
        failure = Failure(class_name=first.class_name, exit_code=first.exit_code)
        failure.unmet = first.unmet or ()
        return self.decide(failure)


def determine(attempt: Attempt, observer: Observer, attempts: list[AttemptRecord]) -> Outcome:
    """Return the outcome of an attempt that has ended, and complete the last of `attempts`."""
    run, launcher = attempt.run, attempt.outcome()
    outcome = Outcome(run, attempts, observer.began)
    outcome.status = Status(exit_code=launcher["exit_code"], state="succeeded")
    if launcher["signal"]:
        outcome.status.signal = launcher["signal"]
    if attempt.ended_by == SERVICE:
        outcome.status.state, outcome.status.signal = "failed", None
    elif attempt.ended_by:
        _ended_early(outcome, attempt, observer)
    else:
        _ended_itself(outcome, attempt, observer, launcher)
    if outcome.status.state == "failed":
        _blame_service(outcome, attempt, observer)
        _blame_part(outcome, attempt)
    if outcome.failure is not None and run.engine is not None:
        outcome.failure.host = run.hosts[run.node]  # as the engine's own commands name it
    progress = observer.progress.snapshot()
    if progress is not None:
        outcome.status.progress = progress
    warning = _not_finite(outcome, observer)
    if warning:
        outcome.warnings.append(warning)
    _complete(attempts[-1], outcome, attempt, observer)
    rungs = run.again.rungs if run.again else ()
    advice = recovery.advice(attempts, rungs, outcome.status.state == "succeeded")
    if advice:
        outcome.status.advice = advice
    return outcome


def _blame_part(outcome: Outcome, attempt: Attempt) -> None:
    """Take the failure of a part for that of the run, where its coordinator names one."""
    record = PartFailure.read(attempt.dir)
    if record is not None and not attempt.ended_by:
        outcome.failure = Failure.from_json(record.to_json())
        outcome.failure.attempt = attempt.number


def _blame_service(outcome: Outcome, attempt: Attempt, observer: Observer) -> None:
    """Name a service as the cause, where one has ended that the job needs."""
    lost, own = observer.loss(), outcome.failure
    if lost is None or (own and own.time and lost.time and own.time < lost.time):
        return
    lost.attempt = attempt.number
    if own is not None:
        cascade = RankFailure(rank=own.rank, role="cascade", class_name=own.class_name)
        cascade.what, cascade.time, cascade.exit_code = own.what, own.time, own.exit_code
        lost.others = [cascade, *own.others]
        lost.what += "; then the job lost it"
    outcome.failure = lost


def _ended_early(outcome: Outcome, attempt: Attempt, observer: Observer) -> None:
    cause, status = attempt.ended_by, outcome.status
    if cause in SIGNALS:
        status.state, status.stopped_by = "stopped", cause
        status.stop_origin = attempt.control.stop_origin() or None
        return
    status.signal = None  # that signal was our own
    if cause == SMOKE:
        _end_smoke(outcome, observer)
    elif cause == RANKS_END:
        status.exit_code = 0
    elif cause == "node" and observer.nodes is not None:
        _end_by_node(outcome, attempt, observer.nodes)
    elif cause in NOTICES:
        _end_by_notice(outcome, attempt, cause)
    elif cause in limits.LIMITS:
        status.state, status.stopped_by = "stopped", cause
        status.reason = limits.reason(cause, outcome.run)
    else:
        hang = observer.journal.status.hang or HangReport()
        what = f"no output and no step for {int(hang.silent)} s"
        failure = outcome.failure = _failure(attempt, "hang", what)
        failure.proof = "; ".join(hang.summary.splitlines()) or None
        failure.rank, failure.frame = hang.rank, hang.frame
        if hang.collectives is not None:
            failure.collectives = hang.collectives
            if hang.collectives.what:
                failure.why = f"{hang.collectives.kind}: {hang.collectives.what}"
        failure.advice = hang.advice or "read the stacks of all ranks"
        status.state, status.reason = "failed", "ended because it hung"


def _end_by_node(outcome: Outcome, attempt: Attempt, nodes: Peers) -> None:
    why, other, status = nodes.why(), nodes.cause, outcome.status
    if other.class_name == TIME_LIMIT_CLASS:  # it was warned a moment before this one
        _end_by_notice(outcome, attempt, TIME_LIMIT)
    elif other.state == "lost":
        outcome.failure = _failure(attempt, "peer-lost", why)
        outcome.failure.role, outcome.failure.advice = "cascade", LOST_NODE
        status.state = "failed"
    else:
        status.state, status.stopped_by, status.reason = "stopped", "node", why


def _end_by_notice(outcome: Outcome, attempt: Attempt, cause: str) -> None:
    what = attempt.control.describe(cause, outcome.run)
    name, advice = NOTICES[cause]
    outcome.failure = _failure(attempt, name, what)
    outcome.failure.advice = advice
    outcome.status.state, outcome.status.reason = "failed", what


def _end_smoke(outcome: Outcome, observer: Observer) -> None:
    steps = observer.steps()  # 0 on a node whose log has none
    outcome.status.state, outcome.status.signal = "succeeded", None
    after = f" after {steps} steps" if steps else ""
    outcome.status.reason = f"smoke run, ended{after} as asked"


def _failure(attempt: Attempt, name: str | None, what: str) -> Failure:
    """Return a failure that neither a rank nor an exit status shows."""
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


def _ended_itself(
    outcome: Outcome, attempt: Attempt, observer: Observer, launcher: dict[str, Any]
) -> None:
    status = outcome.status
    outcome.failure, outcome.warnings = analyse.find(
        attempt.dir,
        outcome.run,
        attempt.number,
        attempt.exits.by_rank,
        launcher,
        [source.path for source in attempt.merger.sources.values() if source.is_extra],
        observer.memory.kills(),
    )
    nodes = observer.nodes
    if outcome.failure is not None:
        status.state = "failed"
        if outcome.failure.class_name == "module-not-found":
            own = _own_module(outcome.failure, outcome.run)
            if own:
                outcome.failure.advice, outcome.failure.remedy = own, [own]
        if outcome.failure.role == "cascade" and nodes and nodes.is_stopped(attempt.number):
            outcome.failure = None
            if nodes.cause.stopped_by == SMOKE:
                _end_smoke(outcome, observer)
            else:
                status.state, status.stopped_by, status.reason = "stopped", "node", nodes.why()
        return
    if _set_leftover_failure(outcome, attempt):
        return
    alone = observer.journal.missing_ranks(attempt.number) if nodes is not None else ""
    unmet, advice = ([], [ALONE]) if alone else _unmet(outcome.run, observer)
    if alone:
        what = f"{alone}: each node has trained alone"
    elif unmet:
        what = "`success` wants " + "; and ".join(unmet)
    else:
        return
    outcome.failure = _failure(attempt, "rendezvous-timeout" if alone else None, what)
    outcome.failure.exit_code = launcher["exit_code"]
    outcome.failure.advice = "; and ".join(advice)
    if unmet:
        outcome.failure.unmet = unmet
    status.state, status.reason = "failed", what


def leftover_failure(
    ends: Sequence[LeftoverEnd],
    ranks: Sequence[RankExit],
    single: str | None,
    name: str = "the launcher",
) -> Failure | None:
    """Return how what outlived the launcher failed the run, None where it did not.

    How a rank ended is judged with its record. A program that was idle and had to be ended counts
    where no rank has ended by itself: it may be a server of the others. `name` is the launcher's.
    """
    pids = {start.pid for start in ranks}
    has_finished = single != "shell" or any(start.code == 0 for start in ranks)
    for end in ends:
        program, pid = describe([end.process]), end.process.pid
        if end.wait_status is None and not has_finished:
            what = f"{program} outlived {name}, and was ended after {duration(IDLE_AFTER)} "
            what += "without CPU time and output"
            return Failure(pid=pid, what=what, advice=WAIT)
        code, signal = rank_exits.decode(end.wait_status or 0)
        if pid not in pids and code and signal not in blame.AT_ONCE:
            how = blame.describe_signal(signal) if signal else f"exited with code {code}"
            what = f"{program}, which had outlived {name}, {how}"
            return Failure(pid=pid, what=what, exit_code=code, signal=signal, advice=READ)
    return None


def _set_leftover_failure(outcome: Outcome, attempt: Attempt) -> bool:
    """Let the run fail by a program that outlived the launcher; return whether one failed."""
    ranks = [start for starts in attempt.exits.by_rank.values() for start in starts]
    end = leftover_failure(attempt.leftover_ends, ranks, outcome.run.single, attempt.starter)
    if end is None:
        return False
    failure = outcome.failure = _failure(attempt, None, end.what)
    failure.update(end)
    failure.log = os.path.join(attempt.journal.logs, "launcher.log")
    failure.last_lines = log_tails.last_lines(log_tails.read(failure.log))
    outcome.status.state, outcome.status.reason = "failed", end.what
    return True


def _own_module(failure: Failure, run: RunRecord) -> str:
    """Return what to do about a module that lies in a folder of the project; "" for others."""
    from safelaunch.runtime.start import code_files

    match = re.search(r"No module named '?([A-Za-z_]\w*)", failure.what or "")
    folder = code_files.module_folder(match.group(1), run.roots) if match else None
    if match is None or folder is None or folder in run.roots:
        return ""
    file = run.job_file or ""
    # the job file of a run on a host is on another machine
    base = os.path.dirname(file) if os.path.isfile(file) else run.cwd
    paths = [os.path.relpath(path, base) for path in (*run.roots, folder)]
    return (
        f"name the folder of `{match.group(1)}` in the job: `pythonpath: [{', '.join(paths)}]`"
        " (relative to the job file)"
    )


def _unmet(run: RunRecord, observer: Observer) -> tuple[list[str], list[str]]:
    """Return which conditions of `success:` are not met, and what to do about it.

    Of several nodes the first one counts: rank 0 is there, which logs its steps, and saves.
    """
    if run.node or run.success is None:
        return [], []
    missing, advice = [], []
    min_steps, steps = run.success.min_steps, observer.steps()
    if min_steps and steps < min_steps:
        count = f"{steps} were" if steps else "none was"
        missing.append(f"{min_steps} steps, {count} seen in the log")
        advice.append(FEW_STEPS if steps else NO_STEPS)
    cwd = run.cwd or "/"
    for pattern in run.success.artifacts:
        why = artifacts.missing(pattern, cwd, observer.artifacts)
        if not why:
            continue
        missing.append(f"a file `{pattern}`, {why}")
        if advice[-1:] != [NO_FILES % cwd]:
            advice.append(NO_FILES % cwd)
    return missing, advice


def _not_finite(outcome: Outcome, observer: Observer) -> str:
    """Return the warning that the loss was NaN or infinite to the end; "" where it was not."""
    event, metrics = observer.not_finite, observer.progress.metrics
    failure = outcome.failure
    if event is None or (failure is not None and failure.class_name == "nan-loss"):
        return ""
    names = (*LOSSES, "grad_norm") if event["what"] == "grad_norm" else LOSSES
    bad = [name for name in names if not math.isfinite(metrics.get(name, 0.0))]
    if not bad:
        return ""
    step = event.get("step")
    since = "" if step is None else f" since about step {step}"
    what = f"{', '.join(bad)} was not finite (NaN or infinite){since}"
    return f"{what}: weights trained after that are useless"


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
    record.checkpoint = checkpoints.newest_time(checkpoint, run.cwd or "/") if checkpoint else None
    record.progressed = observer.pattern.is_found or progress.last_checkpoint_at is not None
    failure = outcome.failure
    if failure is not None:
        record.class_name, record.rank, record.what = failure.class_name, failure.rank, failure.what
