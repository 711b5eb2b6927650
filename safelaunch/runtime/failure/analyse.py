"""Names the failure of an attempt: who failed first, what it was, and what the others then did.

The evidence: the records of the ranks, the exits that were seen, the launcher's status, torchrun's
block, tails of logs. Nothing is written here, and nothing raised: no evidence is no failure.
"""

from __future__ import annotations

import os

from safelaunch.runtime.failure import blame, elastic_report, log_tails, rank_ends, surroundings
from safelaunch.runtime.monitor import oom_kills
from safelaunch.runtime.records import (
    ExceptionCause,
    ExceptionRecord,
    Failure,
    RankFailure,
    StackFrame,
)
from safelaunch.runtime.signatures import advice, classes, tracebacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from safelaunch.runtime.records import RunRecord

VERSION = 1
LATE = 2 * 10**9  # ns: leftovers are given 10 s; two ends noted at once may change places
THREADS = 3  # exceptions in threads of one rank that are told
OTHERS = 64  # ranks that are told of beside the first
STACK = 8  # frames of a fatal signal's stack
CAUSES = 2  # exceptions behind the one that ended a rank
CAUSE = 500  # characters that are kept of the message of each


class Attempt(object):
    """What is known of an attempt that is over, as it was given to `find`."""

    def __init__(
        self, node_dir: str, run: RunRecord, number: int, launcher: Mapping[str, Any]
    ) -> None:
        self.node_dir = node_dir
        self.run = run
        self.number = number
        self.launcher = launcher
        self.logs = os.path.join(node_dir, "logs", "attempt-%d" % number)
        self.log = os.path.join(self.logs, "launcher.log")
        self.roots = list(run.roots)
        self.alone = run.single == "main"

    @property
    def is_bad(self) -> bool:
        """Whether the launcher's status says failure; one that nobody saw does not."""
        return bool(self.launcher.get("signal")) or self.launcher.get("exit_code") not in (0, None)


def find(  # noqa: PLR0917 - each is another piece of evidence
    node_dir: str,
    run: RunRecord,
    attempt: int,
    exits: Mapping[Any, Any],
    launcher: Mapping[str, Any],
    logs: Sequence[str] = (),
    kills: Sequence[dict[str, Any]] = (),
) -> tuple[Failure | None, list[str]]:
    """Return (failure or None, warnings) of an attempt that is over.

    `exits` and `launcher` are what the supervisor has seen, `logs` the framework's own log files,
    `kills` what `oom_kills.Snapshot.kills` has returned.
    """
    known = Attempt(node_dir, run, attempt, launcher)
    if run.single == "shell":
        # a command may be the program itself, or a shell that runs it
        only = exits.get(0) or {}
        known.alone = bool(only) and only.get("pid") == launcher.get("pid")
    try:
        found, count = _ends(known, exits)
        seen = kills if isinstance(kills, oom_kills.Kills) else oom_kills.Kills(kills)
        return _judged(known, found, logs, seen, alone=count == 1)
    except Exception as e:  # noqa: BLE001 - a supervisor must tell the end whatever the evidence is
        words = "the failure could not be worked out (%s: %s)" % (type(e).__name__, e)
        if not known.is_bad:
            return None, [words]
        finding = blame.Finding(None, None, known.log)
        finding.what = "the launcher exited with code %s" % launcher.get("exit_code")
        return _to_failure(finding, [], known, oom_kills.Kills()), [words]


def _ends(known: Attempt, exits: Mapping[Any, Any]) -> tuple[list[rank_ends.End], int]:
    """Return the ends that count, and how many there are in all."""
    started = rank_ends.starts(known.node_dir, known.number, exits)
    text = log_tails.read(known.log)
    told = elastic_report.parse(text)
    if known.run.single in ("main", "child"):
        # one rank is planned: what else calls itself so, also in a block, is started by that one
        started = [end for end in started if end.rank == 0]
        told = {}
    for end in started:
        end.well = known.launcher.get("exit_code") == 0
    found = rank_ends.last_step(started, failed=known.is_bad)
    rank_ends.add_block(found, started, told, known.logs, failed=known.is_bad)
    over = int(known.launcher.get("time_ns") or 0)
    rank_ends.mark_signals(found, told, elastic_report.asked(text), over)
    return found, len(started)


def _judged(
    known: Attempt,
    found: list[rank_ends.End],
    logs: Sequence[str],
    kills: oom_kills.Kills,
    *,
    alone: bool,
) -> tuple[Failure | None, list[str]]:
    if known.alone:
        _is_the_program(found, known)
    failed, warnings = list(found), []  # type: list[rank_ends.End], list[str]
    if not known.is_bad:
        failed, warnings = _without_ended(found, known, kills)
    ranks = blame.rank_failures(failed, kills, alone)
    if not blame.launcher_signal(known.launcher, known.log):  # else they were asked to leave
        ranks = blame.left_early(found, ranks) + ranks
    if not ranks and known.is_bad:
        ranks = blame.silent(found)
    warnings += _threads(found, bool(ranks) or known.is_bad) + _gaps(found)
    if not ranks and not known.is_bad:
        return None, warnings
    if not known.is_bad and known.launcher.get("exit_code") == 0:
        warnings.append("the launcher ended with 0, although a rank failed")
    first = _first(ranks, known, kills)
    others = [finding for finding in ranks if finding is not first]
    if not first.left and (first.role != "root" or first.name in classes.CASCADES):
        _consult(first, logs)
    return _to_failure(first, others, known, kills), warnings


def _without_ended(
    found: list[rank_ends.End], known: Attempt, kills: oom_kills.Kills
) -> tuple[list[rank_ends.End], list[str]]:
    """Return the ends but for those that a job which ended well brought about itself.

    And a warning for each where no other has worked to its end: it may be something else. torchrun
    and the like say themselves whom they end, and why.
    """
    kept, warnings = [], []
    worked = any(end.left_ns for end in found)
    for end in found:
        if _ended_after(end, known.launcher):
            continue
        own = end.failed and not known.run.rank_logs
        if not (own and blame.ended_by_job(end, worked, kills)):
            kept.append(end)
        elif not worked:
            how = blame.in_words(end.signal) if end.signal else "ended from outside"
            warnings.append("rank %d was %s; the job itself ended with 0" % (end.rank, how))
    return kept, warnings


def _first(
    ranks: list[blame.Finding], known: Attempt, kills: list[dict[str, Any]]
) -> blame.Finding:
    """Return who is to blame: the launcher where it was ended first, or where no rank failed."""
    if not ranks:
        return blame.launcher(known.launcher, known.log, kills)
    if not known.alone and blame.launcher_signal(known.launcher, known.log):
        itself = blame.launcher(known.launcher, known.log, kills)
        if blame.to_blame(itself, ranks):
            blame.taken_along(ranks)
            return itself
    return ranks[0]


def _is_the_program(found: list[rank_ends.End], known: Attempt) -> None:
    """Where one process is launcher and program, its status is that of rank 0."""
    launcher = known.launcher
    if not known.is_bad:
        return
    own = [end for end in found if end.rank == 0]
    end = next((end for end in own if end.pid == launcher.get("pid")), own[-1] if own else None)
    if end is None:
        if not blame.launcher_signal(launcher, ""):
            return  # perhaps it never came to Python: its words tell
        end = rank_ends.End(0, known.log)
        found.append(end)
    if end.code is None and not end.signal:
        code = launcher.get("exit_code")
        end.code = code if isinstance(code, int) else None
        end.signal = blame.launcher_signal(launcher, "")
        end.died_ns = end.died_ns or int(launcher.get("time_ns") or 0)


def _ended_after(end: rank_ends.End, launcher: Mapping[str, Any]) -> bool:
    """Whether a rank outlived a launcher that ended well, and was ended as a leftover."""
    over = launcher.get("time_ns")
    after = isinstance(over, int) and 0 < over < end.died_ns - LATE
    return end.error is None and after and end.signal in blame.FROM_AGENT


def _threads(found: Iterable[rank_ends.End], failed: bool) -> list[str]:
    """Return a warning for each exception that did not end its rank."""
    warnings = []
    for end in sorted(found, key=lambda end: end.rank):
        shown = [(end.error or {}, "shown as uncaught")] if end.survived else []
        shown += [(one, "in thread %s" % one["thread"]) for one in end.threads[:THREADS]]
        for record, where in shown:
            what = blame.in_short(log_tails.unwrapped(record), 160)
            rest = "" if failed else "; the rank went on and ended with 0"
            warnings.append("rank %d: exception %s: %s%s" % (end.rank, where, what, rest))
    return warnings


def _gaps(found: Iterable[rank_ends.End]) -> list[str]:
    """Return a warning for each rank of whose output a full disk has swallowed some."""
    warnings = []
    for end in found:
        if end.has_gaps:
            size = " (%d bytes)" % end.dropped if end.dropped else ""
            said = "the log of rank %d has gaps%s: the disk of the run directory was full"
            warnings.append(said % (end.rank, size))
    return warnings


def _consult(first: blame.Finding, logs: Sequence[str]) -> None:
    """Take the class from the framework's own log files where they name a cause."""
    for path in logs:
        match = classes.classify(log_tails.read(path, log_tails.CLASSIFIED))
        if match is not None and match.role == "root":
            first.add_match(match)
            first.role = "root"
            first.what = blame.one_line(match.line)
            first.log = path
            first.error = log_tails.exception(path)
            return


# -- the record ------------------------------------------------------------------------------------


def _to_failure(
    first: blame.Finding, others: list[blame.Finding], known: Attempt, kills: oom_kills.Kills
) -> Failure:
    """Return the failure as it is written to failure.json."""
    end = first.end
    frames = _frames(first)
    frame = _frame(frames, known.roots)
    around = surroundings.Setting(known.node_dir, known.run)
    disk = around.full_disk(first.error, first.what) if first.name == "disk-full" else None
    failure = Failure(
        version=VERSION,
        attempt=known.number,
        class_name=first.name,
        meaning=classes.meaning(first.name, first.signal) or None,
        role=first.role,
        rank=first.rank,
        host=(end.host if end is not None else "") or os.uname().nodename,
        pid=end.pid if end is not None else 0,
        time=first.time_ns / 1e9,
        what=first.what,
        exception=_exception(first.error),
        frame=frame,
        exit_code=first.code,
        signal=first.signal,
        last_lines=log_tails.last_lines(log_tails.read(first.log)),
        log=first.log,
        printed=_has_output(first.log),
        causes=_causes(first.error, known.roots),
        stack=_stack(frames, known.roots) if first.error is None else [],
        disk=disk,
        proof=first.proof or (around.disk_words(disk) if disk else None),
        others=[_other(finding, first) for finding in others[:OTHERS]],
    )
    _add_remedy(failure, first, _advice(first, frame, around, kills, disk))
    return failure


def _add_remedy(failure: Failure, first: blame.Finding, specific: str) -> None:
    """Add what to do, and what the signature says that recognised the failure, if one has.

    `specific` is the advice for this very case; it counts more than the steps of the signature.
    """
    signature = first.recognised
    if signature is None:
        failure.advice = specific or classes.TABLE[first.name].advice
        return
    remedy = [specific] if specific else list(signature.remedy)
    failure.advice, failure.remedy = remedy[0], remedy
    failure.signature = signature.id
    failure.why = ("likely: " if signature.likely else "") + signature.cause
    failure.restart = signature.restart
    failure.source = list(signature.source)


def _advice(
    first: blame.Finding,
    frame: StackFrame | None,
    around: surroundings.Setting,
    kills: oom_kills.Kills,
    disk: str | None,
) -> str:
    """Return what to do where more is known than class and signature tell, else ""."""
    if first.left:
        return advice.LEFT_EARLY
    if first.name == "killed":
        return advice.killed(kills.source(first.end.pid if first.end is not None else None))
    if first.name == "port-in-use":
        text = "%s\n%s" % (first.what, (first.error or {}).get("message") or "")
        number, fixed = around.port(text)
        own = first.rank is not None and frame is not None and frame.is_last and frame.own
        return advice.port(number, fixed, own)
    if disk:
        return advice.disk(around.to_look_at(disk), around.is_ours(disk))
    return advice.advice_for(first.name, first.signal, frame is not None, around.has_cuda())


def _exception(error: dict[str, Any] | None) -> ExceptionRecord | None:
    if error is None:
        return None
    return ExceptionRecord(
        type=str(error.get("type") or ""),
        message=str(error.get("message") or ""),
        traceback=str(error.get("traceback") or ""),
    )


def _frames(first: blame.Finding) -> list[dict[str, Any]]:
    """Return the frames of the exception, or of the thread that a signal hit, innermost last."""
    if first.error is not None:
        return log_tails.frames_of(first.error)
    if first.end is None or not first.end.fatal:
        return []
    # faulthandler writes one section a thread, innermost frame first
    text = first.end.fatal
    current = text.find("Current thread")
    section = text[max(0, current) :].split("\n\n", 1)[0]
    return log_tails.frames(section)[::-1]


def _frame(frames: list[dict[str, Any]], roots: list[str]) -> StackFrame | None:
    """Return the user's own innermost frame, with its line of code."""
    innermost = log_tails.user_frame(frames, roots)
    if innermost is None:
        return None
    frame = StackFrame.from_json(innermost)
    frame.code = frame.code or log_tails.source_line(frame.file, frame.line)
    frame.own = log_tails.is_own(frame.file, roots)
    frame.is_last = innermost is frames[-1]
    return frame


def _stack(frames: list[dict[str, Any]], roots: list[str]) -> list[StackFrame]:
    """Return the frames of a fatal signal, innermost first: some, and the user's own above all."""
    stack = [
        StackFrame(
            file=str(frame["file"]),
            line=frame["line"],
            function=str(frame["function"]),
            own=log_tails.is_own(str(frame["file"]), roots),
        )
        for frame in frames[::-1]
    ]
    own = [index for index, frame in enumerate(stack) if frame.own]
    order = [0, *own, *range(len(stack))]
    kept = sorted(list(dict.fromkeys(order))[:STACK])
    return [stack[index] for index in kept if index < len(stack)]


def _causes(error: dict[str, Any] | None, roots: list[str]) -> list[ExceptionCause]:
    """Return the exceptions behind one that help to understand it, those named as causes first."""
    chain = log_tails.causes(error) if error is not None else []
    helpful = [cause for cause in chain if cause["explicit"]]
    helpful += [c for c in chain if not c["explicit"] and not _is_probe(c, roots)]
    return [
        ExceptionCause(
            what=blame.in_short(cause),
            type=cause["type"],
            message=cause["message"][:CAUSE],
            frame=_frame(cause["frames"], roots),
        )
        for cause in helpful[:CAUSES]
    ]


def _is_probe(one: dict[str, Any], roots: list[str]) -> bool:
    """Whether a library had tried something, and was in the midst of going on without it."""
    caught_at = str(one["frames"][0]["file"]) if one["frames"] else ""
    return one["type"].rpartition(".")[2] in tracebacks.PROBES and not log_tails.is_own(
        caught_at, roots
    )


def _has_output(log: str) -> bool:
    """Whether anything stands in a log; True where that cannot be seen."""
    try:
        return os.path.getsize(log) > 0
    except OSError:
        return True


def _other(finding: blame.Finding, first: blame.Finding) -> RankFailure:
    timed = finding.time_ns > 0 and first.time_ns > 0
    return RankFailure(
        rank=finding.rank,
        role=finding.role,
        class_name=finding.name,
        what=finding.what,
        after=round((finding.time_ns - first.time_ns) / 1e9, 6) if timed else None,
        exit_code=finding.code,
        signal=finding.signal,
    )
