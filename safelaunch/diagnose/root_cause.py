"""Finds the root cause in logs: collects candidate lines of all ranks and ranks them.

Order: root causes, possible consequences, exceptions without a signature, certain consequences; of
equal ones the earliest over all ranks. An error after which the job went on is a false alarm
(log_progress.py); of several runs in one log the last one counts. A rank that stopped printing
after an exception comes before the timeouts of the ranks that waited for it.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from safelaunch.diagnose import evidence as diagnose_evidence
from safelaunch.diagnose.evidence import Candidate, ParsedExcerpt
from safelaunch.diagnose.launcher_block import LauncherBlock
from safelaunch.diagnose.literal_search import LiteralFinder
from safelaunch.diagnose.log_progress import LogProgress, last_run
from safelaunch.diagnose.scan import Scan
from safelaunch.runtime.signatures import advice, classes, table
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.diagnose.log_progress import LastRun
    from safelaunch.diagnose.logs.sources import LogReader
    from safelaunch.runtime.records import LibraryFrame
    from safelaunch.runtime.signatures.table import SignatureTable

HIGH, MEDIUM, LOW = "high", "medium", "low"
MAX_ALTERNATIVES = 2  # other possible causes in a diagnosis
MAX_SCORE_GAP = 2  # below the score of the best candidate, for another possible cause
# in memory at the same time for the comparison: not every one of thousands of logs
MAX_LOGS, MAX_EXCERPT_BYTES = 64, 8 << 20
# lines that a rank may still print below its last exception: the rest of a message
MAX_TRAILING_LINES = 3
WAITING_CLASSES = ("nccl-timeout", "rendezvous-timeout")  # a rank waited for another one
MAX_NOTE_LENGTH = 120  # characters of a line in a note
INTERRUPTION = "signal-interrupt"  # a signature: somebody stopped the job
# of a shell, which runs on behind the program
_SHELL_MESSAGE = re.compile(
    r"\S{1,200}: line \d+: |(?:\S*/)?(?:ba|da|z|k)?sh: (?:(?:line )?\d+: )?\S|\S+\.sh: \d+: "
)
# what native threads print, of a process that is dying or alive
_NATIVE_OUTPUT = re.compile(
    r"\[(?:[EWIF]\d|rank)|frame #|Exception raised from|terminate called|  what"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One recognised problem in a log; `docs/diagnose.md` describes its fields."""

    id: str
    name: str  # of the class
    role: str
    path: str
    line: str
    number: int
    rank: int | None
    host: str
    cause: str
    remedy: tuple[str, ...]
    restart: str
    confidence: str
    source: tuple[str, ...]
    likely: bool = False
    frame: diagnose_evidence.Frame | None = None
    evidence: tuple[diagnose_evidence.EvidenceLine, ...] = ()
    message: str = ""  # whole, of an exception whose cause is not sure
    library: LibraryFrame | None = None  # that raised it


@dataclass(slots=True)
class Diagnosis:
    """The result: the most likely cause first, then other possible causes, then other findings."""

    causes: list[Finding] = field(default_factory=list)
    others: list[Finding] = field(default_factory=list)
    false_alarms: list[Finding] = field(default_factory=list)  # errors after which the job went on
    notes: list[str] = field(default_factory=list)
    lines: int = 0
    logs: int = 0
    unreadable: int = 0  # logs that could not be read at all; the notes say why
    interrupted: bool = False  # by Ctrl-C: later logs were not read

    @property
    def failed(self) -> bool:
        """Whether a failure was found; a warning is not a failure."""
        return bool(self.causes) and self.causes[0].role != "warning"


def diagnose(
    readers: Iterable[LogReader],
    signatures: SignatureTable | None = None,
    roots: list[str] | None = None,
) -> Diagnosis:
    """Return the diagnosis of logs. `roots` are folders of the user's own code, if known."""
    finder = LiteralFinder(signatures or table.load())
    diagnosis = Diagnosis()
    candidates: list[Candidate] = []
    for reader in readers:
        scan = Scan(reader, finder)
        excerpts = [ParsedExcerpt(reader.source, excerpt) for excerpt in scan.run()]
        added = _candidates(excerpts, finder)
        progress = LogProgress(excerpts, scan.activity)
        for candidate in added:
            candidate.log = diagnosis.logs
            candidate.has_later_progress = progress.disproves(candidate)
        run = last_run(added, progress.any_process.step)
        _lower_aftermath(run.candidates)
        diagnosis.notes += _earlier_runs(run)
        candidates = _likely_logs(candidates + run.candidates)
        diagnosis.notes += reader.notes
        diagnosis.lines += reader.lines
        diagnosis.logs += 1
        diagnosis.unreadable += reader.is_unreadable
        diagnosis.interrupted = reader.is_interrupted
        if diagnosis.interrupted:
            break
    _fill_diagnosis(diagnosis, candidates, roots or [])
    return diagnosis


def _earlier_runs(run: LastRun) -> list[str]:
    """Return a note where runs above the last one failed in the same log."""
    if not run.earlier:
        return []
    cause = run.earlier[-1]
    line = " ".join(cause.match.line.split())[:MAX_NOTE_LENGTH]
    count = quantity(len(run.earlier), "earlier run")
    last = "" if len(run.earlier) == 1 else "the last one "
    text = (
        f"{cause.excerpt.source.display_name}: {count} in this log failed, {last}in line"
        f" {cause.number:,} (`{line}`); the diagnosis is of the run from line {run.start:,}"
    )
    return [text]


def _lower_aftermath(candidates: list[Candidate]) -> None:
    """Lower what stands below the end of the program: the shell's next command, its shutdown."""
    ends = [c for c in candidates if c.weight > 0 and not c.has_later_progress]
    raised = min((c.number for c in ends if c.match.form == classes.RAISED), default=sys.maxsize)
    stopped = min((c.number for c in ends if _is_interruption(c)), default=sys.maxsize)
    excerpts = {id(c.excerpt): c.excerpt for c in candidates}
    blocks = {key: LauncherBlock(excerpt) for key, excerpt in excerpts.items()}
    for candidate in candidates:
        block = blocks[id(candidate.excerpt)]
        candidate.block_rank = block.rank_of(candidate)
        number, form = candidate.number, candidate.match.form
        is_behind = form != classes.RAISED and (
            (number > raised and _SHELL_MESSAGE.match(candidate.match.line) is not None)
            or (0 < block.end < number)
            or block.is_consequence(candidate)
        )
        is_shutdown = stopped < min(number, raised) or (
            raised > stopped and number > stopped and form == classes.RAISED
        )
        if (is_behind or is_shutdown) and not _is_interruption(candidate):
            candidate.weight = min(candidate.weight, classes.WEIGHT["cascade"])


def _is_interruption(candidate: Candidate) -> bool:
    signature = candidate.match.signature
    return signature is not None and signature.id == INTERRUPTION


def _likely_logs(candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates of the likeliest logs, within the memory limit."""
    logs: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        logs.setdefault(candidate.log, []).append(candidate)
    if len(logs) < 2 * MAX_LOGS and _size(candidates) <= MAX_EXCERPT_BYTES:
        return candidates
    selected: list[Candidate] = []
    for count, group in enumerate(sorted(logs.values(), key=_log_sort_key)):
        if count and (count >= MAX_LOGS or _size(selected) + _size(group) > MAX_EXCERPT_BYTES):
            continue
        selected += group
    return selected


def _size(candidates: list[Candidate]) -> int:
    return sum({id(c.excerpt): c.excerpt.size for c in candidates}.values())


def _log_sort_key(candidates: list[Candidate]) -> tuple[int, str, bool, int]:
    """Return a sort key: the log that most likely holds the cause comes first."""
    best = min(candidates, key=lambda candidate: (-candidate.score, candidate.number))
    return -best.score, best.time, best.excerpt.source.rank is None, best.log


def _candidates(excerpts: list[ParsedExcerpt], finder: LiteralFinder) -> list[Candidate]:
    candidates: list[Candidate] = []
    for excerpt in excerpts:
        groups = list(excerpt.by_stream.values())
        rank, table = excerpt.source.rank, finder.table
        for weight, match in classes.findings(
            excerpt.lines, rank, finder, groups, signatures=table
        ):
            candidates.append(Candidate(weight, match, excerpt, match.number - 1))
    if not any(candidate.weight > 0 for candidate in candidates):
        candidates += _truncated_traceback(excerpts)
    return candidates


def _truncated_traceback(excerpts: list[ParsedExcerpt]) -> list[Candidate]:
    """Return the end of a traceback whose exception line is cut off or garbled."""
    for excerpt in excerpts:
        match = classes.cut_traceback(excerpt.lines)
        if match is not None:
            return [Candidate(classes.PLAIN, match, excerpt, match.number - 1)]
    return []


def _fill_diagnosis(diagnosis: Diagnosis, candidates: list[Candidate], roots: list[str]) -> None:
    causes = [candidate for candidate in candidates if candidate.weight >= 0]
    failed = any(candidate.weight > 0 and not candidate.has_later_progress for candidate in causes)
    if not failed:
        diagnosis.false_alarms = _findings([c for c in causes if c.weight > 0], roots)
        causes = [c for c in causes if not c.weight and not c.has_later_progress]
    _weigh_exceptions(causes)
    ordered = _sort_candidates(causes)
    if not ordered:
        return
    best = ordered[0]
    rivals = [candidate for candidate in ordered if _is_rival(candidate, best)]
    confidence = _confidence(best, rivals)
    diagnosis.causes = [_finding(best, confidence, ordered, roots)]
    shown = {best.match.name}
    for candidate in rivals if confidence != HIGH else ():
        if candidate.match.name not in shown and len(diagnosis.causes) <= MAX_ALTERNATIVES:
            shown.add(candidate.match.name)
            diagnosis.causes.append(_finding(candidate, LOW, ordered, roots))
    diagnosis.others = _findings([c for c in ordered if c.match.name not in shown], roots)


def _weigh_exceptions(causes: list[Candidate]) -> None:
    """Rank old false alarms and waiting ranks below exceptions that no signature matches."""
    plain = [c for c in causes if c.weight == classes.PLAIN and not c.has_later_progress]
    if not plain:
        return
    for candidate in causes:
        stream = candidate.excerpt.streams[candidate.index]
        candidate.is_long_past = (
            candidate.has_later_progress
            and candidate.excerpt.has_long_progress_after(stream, candidate.index)
        )
    weight = classes.WEIGHT["unknown"]
    waiting = [c for c in causes if c.match.name in WAITING_CLASSES and c.weight == weight]
    silent = [candidate for candidate in plain if waiting and _ends_stream(candidate)]
    for candidate in waiting:
        if any(_is_earlier(other, candidate) for other in silent):
            candidate.weight = classes.WEIGHT["late"]


def _ends_stream(candidate: Candidate) -> bool:
    """Whether its rank printed nearly nothing more; output follows a caught exception."""
    excerpt, stream = candidate.excerpt, candidate.stream_indexes
    if not excerpt.streams[candidate.index] and excerpt.source.rank is None:
        return False
    below = islice(stream, bisect_right(stream, candidate.index), None)
    following = (excerpt.lines[index] for index in below)
    printed = (line for line in following if line.strip() and _NATIVE_OUTPUT.match(line) is None)
    return len(list(islice(printed, MAX_TRAILING_LINES + 1))) <= MAX_TRAILING_LINES


def _is_earlier(first: Candidate, second: Candidate) -> bool:
    """Whether a line was written before a line of another rank, as far as the logs show it."""
    if first.log == second.log:
        is_same = first.excerpt.streams[first.index] == second.excerpt.streams[second.index]
        return not is_same and first.number < second.number
    times = first.time, second.time
    return all(times) and times[0] < times[1]


def _sort_candidates(candidates: list[Candidate]) -> list[Candidate]:
    """Return candidates, the likeliest cause first; times count if all of the best have one."""
    top_score = max((candidate.score for candidate in candidates), default=0)
    best = [candidate for candidate in candidates if candidate.score == top_score]
    times: dict[int, str] = {}
    if len({candidate.excerpt.source.path for candidate in best}) > 1:
        times = {id(candidate): candidate.time for candidate in best}
    if not all(times.values()):
        times = {}
    return sorted(
        candidates,
        key=lambda candidate: (
            -candidate.score,
            times.get(id(candidate), ""),
            candidate.excerpt.source.rank is None,  # a launcher's log repeats lines of its ranks
            candidate.log,
            candidate.number,
        ),
    )


def _is_rival(candidate: Candidate, best: Candidate) -> bool:
    return (
        candidate.match.name != best.match.name
        and candidate.weight > 0
        and not candidate.is_long_past
        and best.score - candidate.score <= MAX_SCORE_GAP
    )


def _confidence(best: Candidate, rivals: list[Candidate]) -> str:
    signature = best.match.signature
    if signature is None or best.weight <= classes.WEIGHT["late"] or best.has_later_progress:
        return LOW
    if signature.likely:
        return MEDIUM
    if best.weight == classes.WEIGHT["root"]:
        return MEDIUM if any(best.score - rival.score <= 1 for rival in rivals) else HIGH
    return MEDIUM


def _findings(candidates: list[Candidate], roots: list[str]) -> list[Finding]:
    """Return one finding for each signature: its first match."""
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        signature = candidate.match.signature
        first.setdefault(signature.id if signature else candidate.match.line, candidate)
    return [_finding(candidate, LOW, [], roots) for candidate in first.values()]


def _finding(
    candidate: Candidate, confidence: str, ordered: list[Candidate], roots: list[str]
) -> Finding:
    signature, name = candidate.match.signature, candidate.match.name
    kind = classes.TABLE[name]
    restart = "may-help" if kind.restart else "useless"
    frame = diagnose_evidence.find_user_frame(candidate, roots)
    cause = (signature.cause if signature else "") or kind.meaning
    remedy = tuple(signature.remedy if signature else ()) or (kind.advice,)
    message, library = "", None
    if ordered and (signature is None or signature.likely):
        message = diagnose_evidence.whole_message(candidate)
    if ordered and signature is None:
        library = diagnose_evidence.find_library(candidate)
        remedy = remedy if frame is not None else (advice.NO_TRACEBACK,)
    if library is not None:
        file, line = (frame.file, frame.line) if frame and frame.own else ("", 0)
        cause, step = advice.library_error(library, file, line)
        remedy = (step,)
    return Finding(
        id=signature.id if signature else name,
        name=name,
        role=candidate.match.role,
        path=candidate.excerpt.source.name,
        line=candidate.excerpt.raw[candidate.index].strip(),
        number=candidate.number,
        rank=candidate.rank,
        host=candidate.excerpt.source.host,
        cause=cause,
        remedy=remedy,
        restart=(signature.restart if signature else "") or restart,
        confidence=confidence,
        source=tuple(signature.source) if signature else (),
        likely=bool(signature and signature.likely),
        frame=frame,
        evidence=diagnose_evidence.evidence_lines(candidate, ordered) if ordered else (),
        message=message,
        library=library,
    )
