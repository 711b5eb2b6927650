"""Finds the failure of an attempt: who failed first, what it was, and what the others then did.

The evidence: the records of the ranks, the exits that were seen, the launcher's status, torchrun's
block, tails of logs. Nothing is written here, and nothing raised: no evidence is no failure.
"""

from __future__ import annotations

import os

from safelaunch.runtime.collectives import dumps, nccl_log, verdict
from safelaunch.runtime.failure import (
    blame,
    elastic_report,
    last_words,
    library_frames,
    log_tails,
    rank_ends,
    ray_end,
)
from safelaunch.runtime.failure.shell_verdict import WAY_OUT, ShellVerdict
from safelaunch.runtime.failure.surroundings import Surroundings
from safelaunch.runtime.monitor import oom_kills
from safelaunch.runtime.records import (
    ExceptionCause,
    ExceptionRecord,
    Failure,
    RankFailure,
    StackFrame,
)
from safelaunch.runtime.signatures import advice, classes, tracebacks
from safelaunch.runtime.units import starter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from safelaunch.runtime.failure.blame import ProcessFailure
    from safelaunch.runtime.failure.log_tails import RaisedException
    from safelaunch.runtime.failure.rank_ends import ProcessEnd
    from safelaunch.runtime.monitor.oom_kills import Kills
    from safelaunch.runtime.rank_exits import RankExit
    from safelaunch.runtime.records import RunRecord

VERSION = 1
LATE = 2 * 10**9  # ns: two ends noted at once may change places
THREADS = 3  # exceptions in threads of one rank that are shown
OTHERS = 64  # ranks that are listed beside the first
STACK = 8  # frames of a fatal signal's stack
CAUSES = 2  # exceptions behind the one that ended a rank
CAUSE = 500  # characters of the message of each


class EndedAttempt:
    """An attempt that is over, and how its launcher ended."""

    def __init__(
        self, node_dir: str, run: RunRecord, number: int, launcher: Mapping[str, Any]
    ) -> None:
        self.node_dir = node_dir
        self.run = run
        self.number = number
        self.logs = os.path.join(node_dir, "logs", f"attempt-{number}")
        self.roots = list(run.roots)
        self.alone = run.single == "main"
        self.launcher = rank_ends.ProcessEnd(
            rank_ends.LAUNCHER, os.path.join(self.logs, "launcher.log")
        )
        self.launcher.code, self.launcher.signal = launcher["exit_code"], launcher["signal"]
        self.launcher.died_ns = launcher.get("time_ns", 0)
        self.launcher.pid = launcher.get("pid", 0)
        self.launcher.start = run.start
        self.leftovers = launcher.get("leftovers", ())  # pids that were ended after it


def find(  # noqa: PLR0917 - each is another piece of evidence
    node_dir: str,
    run: RunRecord,
    number: int,
    exits: Mapping[int, Sequence[RankExit]],
    launcher: Mapping[str, Any],
    logs: Sequence[str],
    kills: Kills,
) -> tuple[Failure | None, list[str]]:
    """Return (failure or None, warnings) of an attempt that is over.

    `exits` and `launcher` are what the supervisor has seen (`leftovers` in it: pids that were ended
    after it), `logs` the framework's own log files, `kills` what `oom_kills.Snapshot.kills` has
    returned.
    """
    attempt = EndedAttempt(node_dir, run, number, launcher)
    if run.single == "shell":
        # a command may be the program itself, or a shell that runs it
        attempt.alone = 0 in exits and exits[0][-1].pid == attempt.launcher.pid
    try:
        return _find(attempt, exits, logs, kills)
    except Exception as e:  # noqa: BLE001 - a supervisor must record the end whatever the evidence is
        warning = f"the failure could not be worked out ({type(e).__name__}: {e})"
        if not attempt.launcher.failed:
            return None, [warning]
        first = blame.ProcessFailure(attempt.launcher)
        first.what = f"{starter(run.start)} exited with code {attempt.launcher.code}"
        return _to_failure(first, [], attempt, oom_kills.Kills()), [warning]


def _find(
    attempt: EndedAttempt,
    exits: Mapping[int, Sequence[RankExit]],
    logs: Sequence[str],
    kills: Kills,
) -> tuple[Failure | None, list[str]]:
    launcher, (ends, starts) = attempt.launcher, _ends(attempt, exits)
    if attempt.alone and launcher.failed:
        _take_over_status(ends, launcher)
    warnings: list[str] = []
    failed = ends if launcher.failed else _without_ended(ends, attempt, kills, warnings)
    if not launcher.failed and attempt.run.single == "shell":
        earlier = [
            end
            for end in starts
            if end.failed and end not in ends and not blame.ended_by_job(end, True, kills)
        ]
        verdict = ShellVerdict(attempt.node_dir, attempt.run, attempt.number, starts)
        failed = _without_handled(failed, earlier, verdict, warnings)
    failures = blame.rank_failures(failed, kills, len(starts) == 1)
    if not blame.launcher_signal(launcher):  # otherwise they were asked to end
        failures = blame.left_early(ends, failures) + failures
    if not failures and launcher.failed:
        failures = blame.unseen_end(ends)
    warnings += _thread_warnings(ends, bool(failures) or launcher.failed)
    if not failures and not launcher.failed:
        return None, warnings
    if launcher.code == 0 and not launcher.failed:
        hint = f": {WAY_OUT}" if attempt.run.single == "shell" else ""
        name = starter(attempt.run.start)
        warnings.append(f"{name} ended with 0, although a rank failed{hint}")
    first = ray_end.find(attempt.node_dir, attempt.number, launcher, kills)
    first = first or _first(failures, attempt, kills)
    others = [failure for failure in failures if failure is not first]
    if not first.left_early and (first.role != "root" or first.name in classes.CASCADES):
        _classify_by_framework_logs(first, logs)
    if not first.left_early and first.name in blame.PEER_MISSING:
        _classify_by_nccl(first, dumps.folder(attempt.node_dir, attempt.number))
    return _to_failure(first, others, attempt, kills), warnings


def _ends(
    attempt: EndedAttempt, exits: Mapping[int, Sequence[RankExit]]
) -> tuple[list[ProcessEnd], list[ProcessEnd]]:
    """Return the ends of the last step, and those of all steps."""
    starts = rank_ends.starts(attempt.node_dir, attempt.number, exits)
    launcher = attempt.launcher
    text = log_tails.read(launcher.log)
    block = elastic_report.parse(text)
    if attempt.run.start is not None:
        block = {}  # there is no agent: such a block is of what a rank has started
    if attempt.run.single in ("main", "child"):
        # one rank is planned: that one has started any other rank, also of a block
        starts = [end for end in starts if end.rank == 0]
        block = {}
    for end in starts:
        end.job_succeeded = launcher.code == 0
    ends = rank_ends.last_step(starts, failed=launcher.failed)
    rank_ends.add_block(ends, starts, block, attempt.logs, failed=launcher.failed)
    signalled = elastic_report.signalled_pids(text)
    rank_ends.mark_signals(ends, block, signalled, launcher.died_ns)
    if attempt.run.start is not None and not launcher.signal:
        rank_ends.mark_signals_in_grace(ends, attempt.run.peer_grace or 0.0)
    return ends, starts


def _without_ended(
    ends: list[ProcessEnd], attempt: EndedAttempt, kills: Kills, warnings: list[str]
) -> list[ProcessEnd]:
    """Return the ends without those that a job which ended well has caused itself.

    Adds a warning for each where no other rank succeeded: it may be something else. torchrun and
    the like log themselves whom they end, and why.
    """
    rest = []
    succeeded = any(end.finished_ns for end in ends)
    for end in ends:
        if end.pid in attempt.leftovers:
            continue
        # long after the launcher's end no line of a script has ended it
        is_after = 0 < attempt.launcher.died_ns < end.died_ns - LATE
        by_job = (succeeded or not is_after) and blame.ended_by_job(
            end, succeeded and not is_after, kills
        )
        if not end.failed or attempt.run.rank_logs or not by_job:
            rest.append(end)
        elif not succeeded:
            how = blame.describe_signal(end.signal) if end.signal else "ended from outside"
            warnings.append(f"rank {end.rank} was {how}; the job itself ended with 0")
    return rest


def _without_handled(
    ends: list[ProcessEnd],
    earlier: list[ProcessEnd],
    verdict: ShellVerdict,
    warnings: list[str],
) -> list[ProcessEnd]:
    """Return the ends without those whose failure the shell has handled.

    Adds a warning for these, and for those of earlier steps that nothing in the command looks at.
    """
    rest = []
    for end in ends:
        if not end.failed or not verdict.handles(end):
            rest.append(end)
        else:
            warnings.append(f"the shell handled a failure: {_describe(end)}")
    warnings += [
        f"an earlier step failed: {_describe(end)}; `set -e` or `&&` would end there"
        for end in earlier
        if verdict.handles(end) is False
    ]
    return rest


def _describe(end: ProcessEnd) -> str:
    """Return how a process failed, in a few words."""
    if end.error is not None:
        return f"{end.program}: {blame.describe_exception(log_tails.unwrapped(end.error), 160)}"
    how = blame.describe_signal(end.signal) if end.signal else f"exited with code {end.code}"
    return f"{end.program}: {how}"


def _first(failures: list[ProcessFailure], attempt: EndedAttempt, kills: Kills) -> ProcessFailure:
    """Return the cause: the launcher where it was ended first, or where no rank failed."""
    if not failures:
        return blame.launcher_failure(attempt.launcher, kills)
    if not attempt.alone and blame.launcher_signal(attempt.launcher):
        launcher = blame.launcher_failure(attempt.launcher, kills)
        if blame.is_launcher_first(launcher, failures):
            blame.mark_ended_by_launcher(failures)
            return launcher
    return failures[0]


def _take_over_status(ends: list[ProcessEnd], launcher: ProcessEnd) -> None:
    """Give rank 0 the status of the launcher, where one process is both."""
    own = [end for end in ends if end.rank == 0]
    end = next((end for end in own if end.pid == launcher.pid), own[-1] if own else None)
    signal = blame.exit_signal(launcher)
    if end is None:
        if not signal:
            return  # perhaps Python never started: the launcher's log shows it
        end = rank_ends.ProcessEnd(0, launcher.log)
        ends.append(end)
    if end.code is None and not end.signal:
        end.code, end.signal = launcher.code, signal
        end.died_ns = end.died_ns or launcher.died_ns


def _thread_warnings(ends: Iterable[ProcessEnd], failed: bool) -> list[str]:
    """Return a warning for each exception that did not end its rank."""
    warnings = []
    for end in sorted(ends, key=lambda end: end.rank):
        shown = [(end.error, "shown as uncaught")] if end.survived and end.error else []
        shown += [(error, f"in thread {error.thread}") for error in end.threads[:THREADS]]
        for error, where in shown:
            what = blame.describe_exception(log_tails.unwrapped(error), 160)
            rest = "" if failed else "; the rank went on and ended with 0"
            warnings.append(f"rank {end.rank}: exception {where}: {what}{rest}")
    return warnings


def _classify_by_framework_logs(first: ProcessFailure, logs: Sequence[str]) -> None:
    """Take the class from the framework's own log files where they name a cause."""
    for path in logs:
        lines = last_words.lines_of(log_tails.read(path, log_tails.CLASSIFIED), None)
        match = last_words.cause(last_words.since_last_step(lines))
        if match is not None and match.role == "root":
            first.add_match(match)
            first.role = "root"
            first.what = blame.one_line(match.line)
            first.log = path
            first.error = log_tails.exception(path)
            return


def _classify_by_nccl(first: ProcessFailure, folder: str) -> None:
    """Take the class from a warning of NCCL, which goes into files of its own.

    Only of those after its last start: others were no reason to end.
    """
    for path in nccl_log.paths(folder):
        file = nccl_log.read(path)
        for warning in () if file is None else file.late_warnings:
            match = classes.classify(f"NCCL WARN {warning}")
            if match is None or match.role != "root" or match.name in blame.PEER_MISSING:
                continue
            first.add_match(match)
            first.role, first.log = "root", path
            first.what = blame.one_line(match.line)
            return


# -- the record ------------------------------------------------------------------------------------


def _to_failure(
    first: ProcessFailure, others: list[ProcessFailure], attempt: EndedAttempt, kills: Kills
) -> Failure:
    """Return the failure as it is written to failure.json."""
    error, frames = first.error, _frames(first)
    frame = _frame(frames, attempt.roots)
    around = Surroundings(attempt.node_dir, attempt.run)
    disk = around.full_disk(error, first.what) if first.name == "disk-full" else None
    disk_name = f"the run directory ({disk})" if disk == attempt.node_dir else disk
    failure = Failure(
        version=VERSION,
        attempt=attempt.number,
        class_name=first.name,
        meaning=first.memory_limit or classes.meaning(first.name, first.signal) or None,
        role=first.role,
        rank=first.rank,
        host=first.end.host or os.uname().nodename,
        pid=0 if first.rank is None else first.end.pid,
        time=first.time_ns / 1e9,
        what=first.what,
        exception=None
        if error is None
        else ExceptionRecord(
            type=error.type,
            message=tracebacks.shorten(f"{error.message}\n{error.rest}".rstrip("\n")),
            traceback=error.traceback,
        ),
        frame=frame,
        exit_code=first.code,
        signal=first.signal,
        last_lines=log_tails.last_lines(log_tails.read(first.log)),
        log=first.log,
        printed=_has_output(first.log),
        causes=_causes(error, attempt.roots) if error is not None else [],
        stack=_stack(frames, attempt.roots) if error is None else [],
        disk=disk,
        proof=first.proof or (f"the disk of {disk_name} is full" if disk else None),
        others=[_other(failure, first) for failure in others[:OTHERS]],
    )
    _add_remedy(failure, first, _advice(first, frame, around, kills, disk))
    if failure.is_unrecognised:
        _add_library(failure, frames, around)
    # ranks that went on after a failure were asked for dumps
    has_grace = attempt.run.start is not None
    if has_grace or failure.role != "root" or failure.class_name == verdict.TIMEOUT:
        _add_collectives(failure, attempt)
    if (failure.class_name or "").startswith("nccl-"):
        _add_nccl(failure, attempt)
    return failure


def _add_nccl(failure: Failure, attempt: EndedAttempt) -> None:
    """Say what NCCL had chosen, where the ranks have a log of it."""
    paths = nccl_log.paths(dumps.folder(attempt.node_dir, attempt.number))
    report = nccl_log.report(file for file in map(nccl_log.read, paths) if file is not None)
    if report is not None:
        failure.nccl = "; ".join(nccl_log.lines(report))


def _add_collectives(failure: Failure, attempt: EndedAttempt) -> None:
    """Say which rank was in which collective, where the ranks have left dumps."""
    folder = dumps.folder(attempt.node_dir, attempt.number)
    states = dumps.read_all(
        dumps.paths(folder), lambda frames: log_tails.user_frame(frames, attempt.roots)
    )
    if not states:
        return
    report = verdict.report(states)
    report.folder = folder
    if report.frame is not None:
        report.frame = _frame([report.frame], attempt.roots)
    if len(attempt.run.hosts) < 2 and attempt.run.manual_node is None:  # noqa: PLR2004 - one node
        for state in report.ranks.values():  # only the comparison with other nodes needs them
            state.earlier = state.last = ()
    verdict.explain(failure, report)


def _add_library(failure: Failure, frames: list[StackFrame], around: Surroundings) -> None:
    """Say which library raised an exception that no signature recognises, if one did."""
    raising = library_frames.raising_frame(frames)
    if raising is None:
        return
    library, frame = library_frames.library_frame(raising), failure.frame
    installed = library_frames.installed_version(raising.file, library.library)
    library.version = installed or around.recorded_version(library.library)
    own = frame if frame is not None and frame.own else StackFrame()
    failure.library = library
    failure.why, failure.advice = advice.library_error(library, own.file, own.line)


def _add_remedy(failure: Failure, first: ProcessFailure, specific: str) -> None:
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
    cause = first.memory_limit or signature.cause
    failure.likely = signature.likely or first.is_likely
    failure.why = ("likely: " if failure.likely else "") + cause
    failure.restart = signature.restart
    failure.source = list(signature.source)


def _advice(
    first: ProcessFailure,
    frame: StackFrame | None,
    around: Surroundings,
    kills: Kills,
    disk: str | None,
) -> str:
    """Return what to do where more is known than class and signature, else ""."""
    if first.left_early or first.advice:
        return first.advice or advice.LEFT_EARLY
    if first.memory_limit:
        return advice.memory_limit(first.memory_limit)
    if first.name == "killed":
        return advice.killed(kills.source(None if first.rank is None else first.end.pid))
    if first.name == "port-in-use":
        number, fixed = around.port(f"{first.what}\n{first.error.message if first.error else ''}")
        own = first.rank is not None and frame is not None and frame.is_last and frame.own
        return advice.port(number, fixed, own)
    if disk:
        is_run_directory = disk == around.node_dir  # then `df` gets the folder of all runs
        folder = os.path.dirname(os.path.dirname(disk)) if is_run_directory else disk
        return advice.disk(folder, is_run_directory)
    return advice.advice_for(first.name, first.signal, frame is not None, around.has_cuda())


def _frames(first: ProcessFailure) -> list[StackFrame]:
    """Return the frames of the exception, or of the thread that a signal hit, innermost last."""
    if first.error is not None:
        return log_tails.frames_of(first.error)
    # faulthandler writes one section a thread, innermost frame first
    text = first.end.fatal
    section = text[max(0, text.find("Current thread")) :].split("\n\n", 1)[0]
    return log_tails.frames(section)[::-1]


def _frame(frames: Sequence[StackFrame], roots: list[str]) -> StackFrame | None:
    """Return the user's own innermost frame, with its line of code."""
    innermost = log_tails.user_frame(frames, roots)
    if innermost is None:
        return None
    frame = innermost.copy()
    frame.code = frame.code or log_tails.source_line(frame.file, frame.line)
    frame.own = log_tails.is_own(frame.file, roots)
    frame.is_last = innermost is frames[-1]
    return frame


def _stack(frames: list[StackFrame], roots: list[str]) -> list[StackFrame]:
    """Return the frames of a fatal signal, innermost first: some, and all of the user's own."""
    stack = [
        StackFrame(
            file=frame.file,
            line=frame.line,
            function=frame.function,
            own=log_tails.is_own(frame.file, roots),
        )
        for frame in frames[::-1]
    ]
    own = [index for index, frame in enumerate(stack) if frame.own]
    order = [0, *own, *range(len(stack))]
    shown = sorted(list(dict.fromkeys(order))[:STACK])
    return [stack[index] for index in shown if index < len(stack)]


def _causes(error: RaisedException, roots: list[str]) -> list[ExceptionCause]:
    """Return the exceptions behind one that help to understand it, those named as causes first."""
    chain = log_tails.causes(error)
    helpful = [cause for cause in chain if cause.explicit]
    helpful += [c for c in chain if not c.explicit and not _is_probe(c, roots)]
    return [
        ExceptionCause(
            what=blame.describe_exception(cause),
            type=cause.type,
            message=cause.message[:CAUSE],
            frame=_frame(cause.frames, roots),
        )
        for cause in helpful[:CAUSES]
    ]


def _is_probe(error: RaisedException, roots: list[str]) -> bool:
    """Whether a library had tried something, and was about to go on without it."""
    caught_at = error.frames[0].file if error.frames else ""
    return error.short_type in tracebacks.PROBES and not log_tails.is_own(caught_at, roots)


def _has_output(log: str) -> bool:
    """Whether anything stands in a log; True where that cannot be seen."""
    try:
        return os.path.getsize(log) > 0
    except OSError:
        return True


def _other(failure: ProcessFailure, first: ProcessFailure) -> RankFailure:
    timed = failure.time_ns > 0 and first.time_ns > 0
    return RankFailure(
        rank=failure.rank,
        role=failure.role,
        class_name=failure.name,
        what=failure.what,
        after=round((failure.time_ns - first.time_ns) / 1e9, 6) if timed else None,
        exit_code=failure.code,
        signal=failure.signal,
    )
