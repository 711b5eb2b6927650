"""Names the failure of an attempt: who failed first, what it was, and what the others then did.

The evidence: the records of the ranks, the exits that were seen, the launcher's status, torchrun's
block, tails of logs. Nothing is written here, and nothing raised: no evidence is no failure.
"""

from __future__ import annotations

import os

from safelaunch.runtime import advice, block, classes, ends, tails, verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any


VERSION = 1
LATE = 2 * 10**9  # ns: leftovers are given 10 s; two ends noted at once may change places
THREADS = 3  # exceptions in threads of one rank that are told
OTHERS = 64  # ranks that are told of beside the first


class Attempt(object):
    """What is known of an attempt that is over, as it was given to `find`."""

    def __init__(
        self, node_dir: str, run: Mapping[str, Any], number: int, launcher: Mapping[str, Any]
    ) -> None:
        self.number = number
        self.launcher = launcher
        self.logs = os.path.join(node_dir, "logs", "attempt-%d" % number)
        self.log = os.path.join(self.logs, "launcher.log")
        self.roots = [str(root) for root in run.get("roots") or ()]
        self.alone = run.get("single") == "main"

    @property
    def is_bad(self) -> bool:
        """Whether the launcher's status says failure; one that nobody saw does not."""
        return bool(self.launcher.get("signal")) or self.launcher.get("exit_code") not in (0, None)


def find(  # noqa: PLR0917 - each is another piece of evidence
    node_dir: str,
    run: Mapping[str, Any],
    attempt: int,
    exits: Mapping[Any, Any],
    launcher: Mapping[str, Any],
    logs: Sequence[str] = (),
    kills: Sequence[dict[str, Any]] = (),
) -> tuple[dict[str, Any] | None, list[str]]:
    """Return (failure or None, warnings) of an attempt that is over.

    `exits` and `launcher` are what the supervisor has seen, `logs` the framework's own log files,
    `kills` what `memory.Snapshot.kills` has returned. The shape of a failure: `_told`.
    """
    known = Attempt(node_dir, run, attempt, launcher)
    if run.get("single") == "shell":
        # a command may be the program itself, or a shell that runs it
        only = exits.get(0) or {}
        known.alone = bool(only) and only.get("pid") == launcher.get("pid")
    try:
        told = block.parse(tails.read(known.log))
        found = ends.collect(node_dir, attempt, exits, told)
        return _judged(known, found, logs, list(kills))
    except Exception as e:  # noqa: BLE001 - a supervisor must tell the end whatever the evidence is
        words = "the failure could not be worked out (%s: %s)" % (type(e).__name__, e)
        if not known.is_bad:
            return None, [words]
        finding = verdict.Finding(None, None, known.log)
        finding.what = "the launcher exited with code %s" % launcher.get("exit_code")
        return _told(finding, [], known), [words]


def _judged(
    known: Attempt,
    found: dict[int, ends.End],
    logs: Sequence[str],
    kills: list[dict[str, Any]],
) -> tuple[dict[str, Any] | None, list[str]]:
    if known.alone:
        _is_the_program(found, known)
    failed = list(found.values())
    if not known.is_bad:
        failed = [end for end in failed if not _ended_after(end, known.launcher)]
    ranks = verdict.judge(failed, kills)
    if not ranks and known.is_bad:
        ranks = verdict.silent(found.values())
    warnings = _threads(found.values(), bool(ranks) or known.is_bad)
    if not ranks and not known.is_bad:
        return None, warnings
    if not known.is_bad and known.launcher.get("exit_code") == 0:
        warnings.append("the launcher ended with 0, although a rank failed")
    first = _first(ranks, known, kills)
    others = [finding for finding in ranks if finding is not first]
    if first.role != "root" or first.name in classes.CASCADES:
        _consult(first, logs)
    return _told(first, others, known), warnings


def _first(
    ranks: list[verdict.Finding], known: Attempt, kills: list[dict[str, Any]]
) -> verdict.Finding:
    """Return who is to blame: the launcher where it was ended first, or where no rank failed."""
    if not ranks:
        return verdict.launcher(known.launcher, known.log, kills)
    if not known.alone and verdict.launcher_signal(known.launcher, known.log):
        itself = verdict.launcher(known.launcher, known.log, kills)
        if verdict.to_blame(itself, ranks):
            verdict.taken_along(ranks)
            return itself
    return ranks[0]


def _is_the_program(found: dict[int, ends.End], known: Attempt) -> None:
    """Where one process is launcher and program, its status is that of rank 0."""
    launcher = known.launcher
    if not known.is_bad:
        return
    end = found.get(0)
    if end is None:
        if not verdict.launcher_signal(launcher, ""):
            return  # perhaps it never came to Python: its words tell
        end = found[0] = ends.End(0, known.log)
    if end.code is None and not end.signal:
        code = launcher.get("exit_code")
        end.code = code if isinstance(code, int) else None
        end.signal = verdict.launcher_signal(launcher, "")
        end.died_ns = end.died_ns or int(launcher.get("time_ns") or 0)


def _ended_after(end: ends.End, launcher: Mapping[str, Any]) -> bool:
    """Whether a rank outlived a launcher that ended well, and was ended as a leftover."""
    over = launcher.get("time_ns")
    after = isinstance(over, int) and 0 < over < end.died_ns - LATE
    return end.error is None and after and end.signal in verdict.FROM_AGENT


def _threads(found: Iterable[ends.End], failed: bool) -> list[str]:
    """Return a warning for each exception that did not end its rank."""
    warnings = []
    for end in sorted(found, key=lambda end: end.rank):
        shown = [(end.error or {}, "shown as uncaught")] if end.survived else []
        shown += [(one, "in thread %s" % one["thread"]) for one in end.threads[:THREADS]]
        for record, where in shown:
            kind, message = record.get("type") or "exception", record.get("message") or ""
            what = verdict.one_line("%s: %s" % (kind, message) if message else str(kind), 160)
            rest = "" if failed else "; the rank went on and ended with 0"
            warnings.append("rank %d: exception %s: %s%s" % (end.rank, where, what, rest))
    return warnings


def _consult(first: verdict.Finding, logs: Sequence[str]) -> None:
    """Take the class from the framework's own log files where they name a cause."""
    for path in logs:
        match = classes.classify(tails.read(path, tails.CLASSIFIED))
        if match is not None and match.role == "root":
            first.name, first.role = match.name, "root"
            first.what = verdict.one_line(match.line)
            first.log = path
            first.error = tails.exception(path)
            return


# -- telling ---------------------------------------------------------------------------------------


def _told(first: verdict.Finding, others: list[verdict.Finding], known: Attempt) -> dict[str, Any]:
    """Return the failure as it is written to failure.json."""
    end = first.end
    frame = _frame(first, known.roots)
    return {
        "version": VERSION,
        "attempt": known.number,
        "class": first.name,
        "role": first.role,
        "rank": first.rank,
        "host": (end.host if end is not None else "") or os.uname().nodename,
        "pid": end.pid if end is not None else 0,
        "time": first.time_ns / 1e9,
        "what": first.what,
        "exception": _exception(first.error),
        "frame": frame,
        "exit_code": first.code,
        "signal": first.signal,
        "last_lines": tails.last_lines(tails.read(first.log)),
        "log": first.log,
        "proof": first.proof,
        "others": [_other(finding, first) for finding in others[:OTHERS]],
        "advice": advice.of(first.name, first.signal, frame is not None),
    }


def _exception(error: dict[str, Any] | None) -> dict[str, str] | None:
    if error is None:
        return None
    return {key: str(error.get(key) or "") for key in ("type", "message", "traceback")}


def _frame(first: verdict.Finding, roots: list[str]) -> dict[str, Any] | None:
    """Return the user's own innermost frame."""
    if first.error is not None:
        found = first.error.get("frames")
        if not isinstance(found, list) or not all(isinstance(frame, dict) for frame in found):
            found = tails.frames(str(first.error.get("traceback") or ""))
        return tails.user_frame(found, roots)
    if first.end is None or not first.end.fatal:
        return None
    # faulthandler writes one section a thread, innermost frame first
    text = first.end.fatal
    current = text.find("Current thread")
    section = text[max(0, current) :].split("\n\n", 1)[0]
    frame = tails.user_frame(tails.frames(section)[::-1], roots)
    if frame is not None and not frame["code"]:
        frame["code"] = tails.source_line(frame["file"], frame["line"])
    return frame


def _other(finding: verdict.Finding, first: verdict.Finding) -> dict[str, Any]:
    known = finding.time_ns > 0 and first.time_ns > 0
    return {
        "rank": finding.rank,
        "role": finding.role,
        "class": finding.name,
        "what": finding.what,
        "after": round((finding.time_ns - first.time_ns) / 1e9, 6) if known else None,
        "exit_code": finding.code,
        "signal": finding.signal,
    }
