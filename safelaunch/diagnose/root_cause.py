"""Names the root cause in logs: candidates of all lines of all ranks, and which of them counts.

A root comes before what may be a consequence, that before an exception that no signature knows,
that before a consequence; of equal ones the earliest over all ranks. An alarm after which the same
stream shows progress is none. A rank that fell silent with an exception comes before the timeouts
of those that then waited for it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from safelaunch.diagnose import evidence as diagnose_evidence
from safelaunch.diagnose import timestamps
from safelaunch.diagnose.evidence import Candidate, Part
from safelaunch.diagnose.literal_search import Finder
from safelaunch.diagnose.scan import Scan
from safelaunch.runtime.signatures import classes, table
from safelaunch.runtime.signatures import match as signatures_match

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.diagnose.log_sources import Reader
    from safelaunch.runtime.signatures.conditions import Known
    from safelaunch.runtime.signatures.table import Table

HIGH, MEDIUM, LOW = "high", "medium", "low"
RIVALS = 2  # runner-up causes that are told
CLOSE = 2  # of the score, within which a runner-up is worth telling
# logs, and bytes of their excerpts, whose lines are held to be compared: of thousands not all
MOST_LOGS, ROOM = 64, 8 << 20
LAST_WORDS = 3  # lines that a rank may still print below its last exception: the rest of a message
WAITED = ("nccl-timeout", "rendezvous-timeout")  # classes of those that waited for another rank
# what native threads of a dying process print, and those of a living one too
_NATIVE = re.compile(r"\[(?:[EWIF]\d|rank)|frame #|Exception raised from|terminate called|  what")


@dataclass(frozen=True, slots=True)
class Finding:
    """One recognised problem in a log; `docs/diagnose.md` tells its parts."""

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
    evidence: tuple[diagnose_evidence.Line, ...] = ()


@dataclass(slots=True)
class Diagnosis:
    """What was found: the cause first, then what else it may be, then all else."""

    causes: list[Finding] = field(default_factory=list)
    others: list[Finding] = field(default_factory=list)
    went_on: list[Finding] = field(default_factory=list)  # alarms that were none
    notes: list[str] = field(default_factory=list)
    lines: int = 0
    logs: int = 0
    refused: int = 0  # logs of which nothing could be read; the notes say why
    interrupted: bool = False  # by a person: what follows was not read

    @property
    def failed(self) -> bool:
        """Whether a failure was found; a warning is none."""
        return bool(self.causes) and self.causes[0].role != "warning"


def diagnose(
    readers: Iterable[Reader],
    known: Known | None = None,
    signatures: Table | None = None,
    roots: list[str] | None = None,
) -> Diagnosis:
    """Return what logs tell. `roots` are folders of the user's own code, where they are known."""
    finder = Finder(signatures or table.load())
    told = Diagnosis()
    found: list[Candidate] = []
    for reader in readers:
        scan = Scan(reader, finder)
        excerpts = scan.run()
        parts = [Part(reader.source, one) for one in excerpts]
        for one in _candidates(parts, scan.went_on, finder, known):
            one.log = told.logs
            found.append(one)
        found = _foremost(found)
        told.notes += reader.notes
        told.lines += reader.lines
        told.logs += 1
        told.refused += reader.is_refused
        told.interrupted = reader.is_interrupted
        if told.interrupted:
            break
    _judge(told, found, roots or [])
    return told


def _foremost(found: list[Candidate]) -> list[Candidate]:
    """Return the candidates of the logs that may hold the cause, as far as there is room."""
    logs: dict[int, list[Candidate]] = {}
    for one in found:
        logs.setdefault(one.log, []).append(one)
    if len(logs) < 2 * MOST_LOGS and _size(found) <= ROOM:
        return found
    kept: list[Candidate] = []
    for count, several in enumerate(sorted(logs.values(), key=_promise)):
        if count and (count >= MOST_LOGS or _size(kept) + _size(several) > ROOM):
            continue
        kept += several
    return kept


def _size(found: list[Candidate]) -> int:
    return sum(part.size for part in {id(one.part): one.part for one in found}.values())


def _promise(found: list[Candidate]) -> tuple[int, str, bool, int]:
    """Sort: the log first that most likely holds the cause."""
    best = min(found, key=lambda one: (-one.score, one.number))
    time = timestamps.written(best.part.raw, best.index)
    return -best.score, time, best.part.source.rank is None, best.log


def _candidates(
    parts: list[Part], went_on: int, find: Finder, known: Known | None
) -> list[Candidate]:
    found: list[Candidate] = []
    progress: dict[str, int] = {"": went_on}
    finite = 0
    for part in parts:
        for stream, indexes in part.by_stream.items():
            last = signatures_match.last_progress([part.lines[index] for index in indexes])
            if last:
                progress[stream] = part.number + indexes[last - 1]
        last = signatures_match.last_loss(part.lines)
        finite = part.number + last - 1 if last else finite
        groups = list(part.by_stream.values())
        rank, table = part.source.rank, find.table
        told = classes.findings(part.lines, rank, known, find, groups, signatures=table)
        found += [Candidate(weight, match, part, match.number - 1) for weight, match in told]
    latest = max(progress.values())
    if not any(one.weight > 0 for one in found):
        found += _cut(parts)
    for one in found:
        stream = one.part.streams[one.index]
        since = progress.get(stream, 0) if stream else latest
        # bars go on with a loss that is none
        one.overtaken = one.number <= (finite if one.match.name == classes.NAN else since)
    return found


def _cut(parts: list[Part]) -> list[Candidate]:
    """Return the end of a traceback whose exception cannot be read: cut off, or garbled."""
    found = []
    for part in parts:
        match = classes.cut_traceback(part.lines)
        if match is not None:
            found.append(Candidate(classes.PLAIN, match, part, match.number - 1))
    return found[:1]


def _judge(told: Diagnosis, found: list[Candidate], roots: list[str]) -> None:
    causes = [one for one in found if one.weight >= 0]
    failed = any(one.weight > 0 and not one.overtaken for one in causes)
    if not failed:
        told.went_on = _findings([one for one in causes if one.weight > 0], roots)
        causes = [one for one in causes if not one.weight and not one.overtaken]
    _weigh_exceptions(causes)
    ordered = _ordered(causes)
    if not ordered:
        return
    best = ordered[0]
    rivals = [one for one in ordered if _is_rival(one, best)]
    confidence = _confidence(best, rivals)
    told.causes = [_finding(best, confidence, ordered, roots)]
    shown = {best.match.name}
    for one in rivals:
        if one.match.name not in shown and len(told.causes) <= RIVALS and confidence != HIGH:
            shown.add(one.match.name)
            told.causes.append(_finding(one, LOW, ordered, roots))
    told.others = _findings([one for one in ordered if one.match.name not in shown], roots)


def _weigh_exceptions(causes: list[Candidate]) -> None:
    """Let count less than exceptions that no signature knows: alarms long past, and who waited."""
    plain = [one for one in causes if one.weight == classes.PLAIN and not one.overtaken]
    if not plain:
        return
    for one in causes:
        stream = one.part.streams[one.index]
        one.is_past = one.overtaken and one.part.is_long_since(stream, one.index)
    weight = classes.WEIGHT["unknown"]
    waiting = [one for one in causes if one.match.name in WAITED and one.weight == weight]
    silent = [one for one in plain if waiting and _is_last_word(one)]
    for one in waiting:
        if any(_came_first(other, one) for other in silent):
            one.weight = classes.WEIGHT["late"]


def _is_last_word(one: Candidate) -> bool:
    """Whether its rank printed nothing more: what is caught is followed by other output."""
    whose = one.part.streams[one.index]
    stream = one.part.by_stream[whose]
    if not whose and one.part.source.rank is None:
        return False
    below = (
        one.part.lines[stream[at]] for at in range(bisect_right(stream, one.index), len(stream))
    )
    said = (line for line in below if line.strip() and _NATIVE.match(line) is None)
    return len(list(islice(said, LAST_WORDS + 1))) <= LAST_WORDS


def _came_first(one: Candidate, other: Candidate) -> bool:
    """Whether a line of one rank was written before one of another, as far as that is known."""
    if one.log == other.log:
        is_same = one.part.streams[one.index] == other.part.streams[other.index]
        return not is_same and one.number < other.number
    times = [timestamps.written(each.part.raw, each.index) for each in (one, other)]
    return all(times) and times[0] < times[1]


def _ordered(found: list[Candidate]) -> list[Candidate]:
    """Sort: the one to blame first. Times are compared where all of the best tell them."""
    most = max((one.score for one in found), default=0)
    best = [one for one in found if one.score == most]
    logs = {one.part.source.path for one in best}
    if len(logs) > 1:
        for one in best:
            one.time = timestamps.written(one.part.raw, one.index)
        if not all(one.time for one in best):
            for one in best:
                one.time = ""
    return sorted(found, key=_order)


def _order(one: Candidate) -> tuple[int, str, bool, int, int]:
    # a launcher's log repeats what stands in the log of a rank
    return -one.score, one.time, one.part.source.rank is None, one.log, one.number


def _is_rival(one: Candidate, best: Candidate) -> bool:
    if one is best or one.is_past or one.match.name == best.match.name or one.weight <= 0:
        return False
    return best.score - one.score <= CLOSE


def _confidence(best: Candidate, rivals: list[Candidate]) -> str:
    signature = best.match.signature
    if best.weight <= 2 or best.overtaken:  # noqa: PLR2004 - late, a consequence, a warning
        return LOW
    if signature is not None and signature.likely:
        return MEDIUM
    if best.weight == classes.WEIGHT["root"]:
        return MEDIUM if any(one.score == best.score for one in rivals) else HIGH
    if best.weight == classes.PLAIN:
        return HIGH if not rivals else MEDIUM
    return MEDIUM


def _findings(found: list[Candidate], roots: list[str]) -> list[Finding]:
    """Return one finding for each signature, where it stands first."""
    first: dict[str, Candidate] = {}
    for one in found:
        signature = one.match.signature
        first.setdefault(signature.id if signature else one.match.line, one)
    return [_finding(one, LOW, [], roots) for one in first.values()]


def _finding(
    one: Candidate, confidence: str, ordered: list[Candidate], roots: list[str]
) -> Finding:
    signature, name = one.match.signature, one.match.name
    kind = classes.TABLE[name]
    restart = (signature.restart if signature else "") or (
        "may-help" if kind.restart else "useless"
    )
    frame = diagnose_evidence.user_frame(one, roots)
    return Finding(
        id=signature.id if signature else name,
        name=name,
        role=one.match.role,
        path=one.part.source.name,
        line=one.part.raw[one.index].strip(),
        number=one.number,
        rank=one.rank,
        host=one.part.source.host,
        cause=(signature.cause if signature else "") or kind.meaning,
        remedy=tuple(signature.remedy if signature else ()) or (kind.advice,),
        restart=restart,
        confidence=confidence,
        source=tuple(signature.source) if signature else (),
        likely=bool(signature and signature.likely),
        frame=frame,
        evidence=diagnose_evidence.lines_of(one, ordered) if ordered else (),
    )
