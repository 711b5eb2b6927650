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
from safelaunch.runtime.supervise import recovery
from safelaunch.runtime.units import job_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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

    def __init__(self, run: dict[str, Any], attempts: list[dict[str, Any]], began: float) -> None:
        self.run = run
        self.began = began  # of the run, monotonic: a clock that is set must not use up the budget
        self.attempts = attempts
        self.failure: dict[str, Any] | None = None
        self.warnings: list[str] = []
        self.status: dict[str, Any] = {}
        self.record: dict[str, Any] = {}  # what status.json keeps of the attempt

    def decide(self) -> dict[str, Any]:
        """Return what comes next, as recovery.decide says it."""
        return self._decide(self.failure or {})

    def decide_for_all(self, ends: dict[int, dict[str, Any]]) -> dict[str, Any]:
        """Return what comes next on all nodes, from how the attempt has ended on each.

        An end has state, class, rank, what, role and time as failure.json, and `stopped_by`.
        """
        lost = [node for node, end in ends.items() if end["state"] == "lost"]
        asked = [e for e in ends.values() if e["state"] == "stopped" and e["stopped_by"] != "node"]
        failed = [end for end in ends.values() if end["state"] == "failed"]
        if lost or asked or not failed:
            why = "no restart: node %d is gone" % lost[0] if lost else "no restart: it was stopped"
            return {"action": "stop", "delay": 0.0, "rung": 0, "why": why}
        first = min(failed, key=blame.blame)
        self.attempts[-1].update({key: first.get(key) for key in ("class", "rank", "what")})
        return self._decide(first)

    def _decide(self, failure: dict[str, Any]) -> dict[str, Any]:
        again = self.run.get("again") or {}
        rungs = max(0, len(again.get("scripts") or ()) - 1)
        action = (self.run.get("hang") or {}).get("action")
        if failure.get("class") == "hang" and action != "restart":
            return {"action": "stop", "why": "`hang.action` is %s" % action}
        found = recovery.decide(
            self.run.get("recovery"), self.attempts, failure, time.monotonic(), self.began, rungs
        )
        return dict(found)

    def advice(self) -> str | None:
        """Return what the attempts have taught about the NCCL ladder."""
        rungs = list((self.run.get("again") or {}).get("rungs") or ())
        succeeded = self.status["state"] == "succeeded"
        said: str | None = recovery.advice(self.attempts, rungs, succeeded)
        return said


def of(
    node_dir: str,
    run: dict[str, Any],
    attempt: Attempt,
    observer: Observer,
    attempts: list[dict[str, Any]],
) -> Outcome:
    """Return the outcome of an attempt of which nothing is left; its last record is completed."""
    found = Outcome(run, attempts, observer.began)
    launcher = attempt.outcome()
    found.status = {"exit_code": launcher["exit_code"], "state": "succeeded"}
    if launcher["signal"]:
        found.status["signal"] = launcher["signal"]
    if attempt.ended_by:
        _ended_early(found, attempt, observer)
    else:
        _ended_itself(found, node_dir, attempt, observer, launcher)
    if observer.progress.snapshot():
        found.status["progress"] = observer.progress.snapshot()
    lost = _not_finite(found, observer)
    if lost:
        found.warnings.append(lost)
    attempts[-1].update(_record(found, attempt, observer))
    advice = found.advice()
    if advice:
        found.status["advice"] = advice
    return found


def _ended_early(found: Outcome, attempt: Attempt, observer: Observer) -> None:
    why = attempt.ended_by
    if why in SIGNALS:
        found.status.update(state="stopped", stopped_by=why)
    elif why == "min_steps":
        _is_smoke(found, observer)
    elif why == "node":
        assert observer.nodes is not None  # noqa: S101 - it said so
        said = observer.nodes.why()
        if observer.nodes.cause["state"] == "lost":
            found.failure = _failure(attempt, "peer-lost", said)
            found.failure.update(role="cascade", advice=GONE)
            found.status.update(state="failed")
        else:
            found.status.update(state="stopped", stopped_by="node", reason=said)
        found.status.pop("signal", None)
    elif why == "max_duration":
        said = "its max_duration of %s had passed" % job_duration(found.run["max_duration"])
        found.status.update(state="stopped", stopped_by="max_duration", reason=said)
        found.status.pop("signal", None)
    else:
        hang = observer.journal.status.get("hang")
        found.failure = _hang(attempt, hang if isinstance(hang, dict) else {})
        found.status.update(state="failed", reason="ended because it hung")
        found.status.pop("signal", None)


def _is_smoke(found: Outcome, observer: Observer) -> None:
    steps = observer.steps()  # on the node that has seen them
    said = "smoke run, ended %sas asked" % ("after %d steps " % steps if steps else "")
    found.status.update(state="succeeded", reason=said)
    found.status.pop("signal", None)


def _failure(attempt: Attempt, name: str | None, what: str) -> dict[str, Any]:
    """Return a failure that no rank and no exit status tells."""
    return {
        "version": 1,
        "attempt": attempt.number,
        "class": name,
        "role": "root" if name else "unknown",
        "rank": None,
        "host": os.uname().nodename,
        "pid": None,
        "time": time.time(),
        "what": what,
        "exception": None,
        "frame": None,
        "exit_code": None,
        "signal": "",
        "last_lines": [],
        "log": os.path.join(attempt.journal.logs, "combined.log"),
        "proof": None,
        "others": [],
        "advice": "",
    }


def _hang(attempt: Attempt, hang: dict[str, Any]) -> dict[str, Any]:
    what = "no output and no step for %d s" % float(hang.get("silent") or 0)
    found = _failure(attempt, "hang", what)
    found.update(
        proof="; ".join(str(hang.get("summary") or "").splitlines()) or None,
        rank=hang.get("rank"),
        frame=hang.get("frame"),
    )
    found["advice"] = str(hang.get("advice") or "read the stacks of all ranks")
    return found


def _ended_itself(
    found: Outcome,
    node_dir: str,
    attempt: Attempt,
    observer: Observer,
    launcher: dict[str, Any],
) -> None:
    found.failure, found.warnings = analyse.find(
        node_dir,
        found.run,
        attempt.number,
        attempt.exits.found,
        launcher,
        [source.path for source in attempt.merger.sources.values() if source.is_extra],
        observer.memory.kills(),
    )
    nodes = observer.nodes
    if found.failure is not None:
        found.status["state"] = "failed"
        if found.failure["role"] == "cascade" and nodes and nodes.is_stopped(attempt.number):
            found.failure = None
            if nodes.cause.get("stopped_by") == recovery.SMOKE:
                _is_smoke(found, observer)
            else:
                found.status.update(state="stopped", stopped_by="node", reason=nodes.why())
        return
    alone = observer.journal.missing_ranks(attempt.number)
    if alone and nodes is not None:
        what = "%s: each node has trained alone" % alone
        found.failure = _failure(attempt, "rendezvous-timeout", what)
        found.failure.update(exit_code=launcher["exit_code"], advice=ALONE)
        found.status.update(state="failed", reason=what)
        return
    missing, advice = _missing(found.run, observer)
    if missing:
        what = "`success` wants " + "; and ".join(missing)
        found.failure = _failure(attempt, None, what)
        found.failure.update(
            unmet=missing, exit_code=launcher["exit_code"], advice="; and ".join(advice)
        )
        found.status.update(state="failed", reason=what)


def _missing(run: dict[str, Any], observer: Observer) -> tuple[list[str], list[str]]:
    """Return what `success:` asks for and is not there, and what to do about it.

    Of several nodes the first one counts: there rank 0 says its steps, and saves.
    """
    success = {} if run.get("node") else run.get("success") or {}
    missing, advice = [], []
    wanted, seen = success.get("min_steps"), observer.steps()
    if wanted and seen < wanted:
        what = "%d were seen in the log" % seen if seen else "none was seen in the log"
        missing.append("%d steps, %s" % (wanted, what))
        advice.append(FEW_STEPS if seen else NO_STEPS)
    cwd = str(run.get("cwd") or "/")
    since = time.time() - (time.monotonic() - observer.began) - SLACK
    files = [_missing_file(cwd, pattern, since) for pattern in success.get("artifacts") or ()]
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


def _not_finite(found: Outcome, observer: Observer) -> str:
    """Say that the loss was no number to the end, whatever the exit code; nothing where it was."""
    spell, metrics = observer.not_finite, observer.progress.metrics
    known = (found.failure or {}).get("class") == "nan-loss"
    if spell is None or known:
        return ""
    names = (*LOSSES, "grad_norm") if spell["what"] == "grad_norm" else LOSSES
    bad = [name for name in names if not math.isfinite(metrics.get(name, 0.0))]
    if not bad:
        return ""
    step = spell.get("step")
    since = "" if step is None else " since about step %s" % step
    said = "%s was no finite number%s: what was trained from there on is lost"
    return said % (", ".join(bad), since)


def _record(found: Outcome, attempt: Attempt, observer: Observer) -> dict[str, Any]:
    checkpoint = (found.run.get("recovery") or {}).get("checkpoint")
    newest = None
    if checkpoint:
        newest = recovery.newest(checkpoint, str(found.run.get("cwd") or "/"))
    progress = observer.progress
    record = {
        "ended_at": time.time(),
        "elapsed": round(time.monotonic() - attempt.began, 3),
        "state": found.status["state"],
        "exit_code": found.status["exit_code"],
        "steps": observer.steps() or None,
        "checkpoint": newest,
        "progressed": observer.progressed or progress.last_checkpoint_at is not None,
    }
    if found.failure is not None:
        record.update({key: found.failure.get(key) for key in ("class", "rank", "what")})
    return record
