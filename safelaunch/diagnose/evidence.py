"""The lines that prove a finding: its own, its traceback's, what was around it and followed."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.runtime.failure import log_tails
from safelaunch.runtime.signatures import classes, tracebacks
from safelaunch.runtime.signatures import match as signatures_match

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.diagnose.log_sources import Source
    from safelaunch.diagnose.scan import Excerpt
    from safelaunch.runtime.signatures.classes import Match

MOST = 8  # lines that are shown
ABOVE = 400  # lines in which the beginning of a traceback is looked for
WIDEST = 400  # characters of a line that are kept
FAR = 40  # lines of other ranks between two of one message
ALIKE = 24  # characters with which the same message of another thread begins
BELOW = 2  # lines of a message that are shown below its first
_BEGIN = "Traceback (most recent call last)"
_CHAINED = ("direct cause of the following exception", "During handling of the above exception")
# `torch.distributed.checkpoint` quotes the traceback of another rank
_QUOTED = re.compile(r"most recent call last\): \(RANK (\d{1,6})\)")
_QUOTING = re.compile(r"Original Traceback|\(RANK \d")
# no further line of a message: a traceback, a frame of C++, a bar, a record of some logger
_ELSE = re.compile(
    r"Traceback |  File |frame #|terminate called|.*\d%\||\{'|\[|[EWIF]\d{4} |={3}|-{3}|\d{4}-\d\d"
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|wandb: |Exception raised|Set the environment"
    r'|"""|Process \w'
)
_LIBRARY = re.compile(
    r"(?:site|dist)-packages|[/\\]lib[/\\]python\d|<|[/\\]Python3\d+[/\\]|^multiprocessing/"
)


class Frame(NamedTuple):
    """A frame of a traceback: the user's own innermost, or the innermost."""

    file: str
    line: int
    function: str
    code: str
    own: bool


class Line(NamedTuple):
    """A line of a log."""

    path: str
    number: int
    text: str


def user_frame(one: Candidate, roots: list[str]) -> Frame | None:
    """Return the frame of the user's own code that was on the stack, else the innermost one.

    What a library has raised for an exception of its own came out of the same call.
    """
    first: dict[str, Any] | None = None
    for indexes in _chain(one):
        found = log_tails.frames("\n".join(one.part.lines[index] for index in indexes))
        own = [frame for frame in found if _is_own(frame["file"], roots)]
        if own:
            return _frame(own[-1], own=True)
        first = first or (found[-1] if found else None)
    return None if first is None else _frame(first, own=False)


def _frame(found: dict[str, Any], *, own: bool) -> Frame:
    return Frame(found["file"], found["line"], found["function"], found["code"], own)


def quoted_rank(one: Candidate) -> int | None:
    """Return the rank whose traceback another one has printed; None where it is its own."""
    indexes = _traceback(one)
    said = _QUOTED.search(one.part.lines[indexes[0]]) if indexes else None
    return int(said[1]) if said else None


def _is_own(file: str, roots: list[str]) -> bool:
    if roots:
        return log_tails.is_own(file, roots)
    return _LIBRARY.search(file) is None and file.endswith(".py")


def _chain(one: Candidate) -> Iterator[list[int]]:
    """Yield the indexes of the traceback that ends at a line, then of those chained to it.

    First the one that quotes it, then those below.
    """
    yield (own := _traceback(one))
    stream = one.part.by_stream[one.part.streams[one.index]]
    if own and _QUOTING.search(one.part.lines[own[0]]):
        above = stream[: bisect_left(stream, own[0])][-ABOVE:]
        begins = (at for at, i in enumerate(above) if _BEGIN in one.part.lines[i])
        yield above[max(begins, default=len(above)) :]
    below = stream[bisect_right(stream, one.index) :][:ABOVE]
    lines = [one.part.lines[index] for index in below]
    last = 0
    for end in tracebacks.exceptions(lines):
        if not any(said in line for line in lines[last:end] for said in _CHAINED):
            return
        yield below[last : end + 1]
        last = end + 1


def _traceback(one: Candidate) -> list[int]:
    """Return the indexes of the traceback that ends at a line: those of its own stream."""
    stream = one.part.by_stream[one.part.streams[one.index]]
    at = bisect_left(stream, one.index)
    above = stream[max(0, at - ABOVE) : at]
    begin = next((i for i in reversed(above) if _BEGIN in one.part.lines[i]), None)
    if begin is None or not _reaches(one, begin, at, stream):
        return []
    return stream[bisect_left(stream, begin) : at + 1]


def _reaches(one: Candidate, begin: int, at: int, stream: list[int]) -> bool:
    """Whether no exception ends between the beginning of a traceback and a line.

    One that only carries another (Ray's) is followed by the frames of that other.
    """
    lines = [one.part.lines[index] for index in stream[bisect_left(stream, begin) : at + 1]]
    return all(end == len(lines) - 1 for end in tracebacks.exceptions(lines))


def lines_of(one: Candidate, ordered: list[Candidate]) -> tuple[Line, ...]:
    """Return three to ten lines: the cause, how the program came there, what followed."""
    chosen = {(one.part.source.name, one.index + one.part.number): _line(one, one.index)}
    for index in (*_shown_frames(one), *_message(one)):
        chosen.setdefault((one.part.source.name, one.part.number + index), _line(one, index))
    told = {_what(one)}
    for other in ordered:
        if len(chosen) >= MOST:
            break
        # of eight ranks that say the same one is enough
        if not _is_idle(other, one) and _what(other) not in told:
            told.add(_what(other))
            chosen.setdefault((other.part.source.name, other.number), _line(other, other.index))
    if len(chosen) < 3:  # noqa: PLR2004 - what stood just above, as far as it says something
        for index in range(one.index - 1, max(-1, one.index - 3), -1):
            if one.part.raw[index].strip():
                chosen.setdefault(
                    (one.part.source.name, one.part.number + index), _line(one, index)
                )
    order = sorted(chosen, key=lambda key: (key[0] != one.part.source.name, key))
    return tuple(chosen[key] for key in order)


def _is_idle(other: Candidate, one: Candidate) -> bool:
    """Whether a line proves nothing: an alarm that was none, a mere warning above the cause."""
    if not one.weight:
        return False
    above = other.log == one.log and other.number < one.number
    return not other.weight or other.overtaken or (above and other.weight < classes.PLAIN)


def _what(one: Candidate) -> str:
    return one.match.signature.id if one.match.signature else one.match.line


def _shown_frames(one: Candidate) -> list[int]:
    """Return the innermost two frames with their code: the user's own, if the chain has some."""
    shown: list[int] = []
    for indexes in _chain(one):
        lines = [one.part.lines[index] for index in indexes]
        frames = [at for at, line in enumerate(lines) if tracebacks.is_frame(line)]
        own = [at for at in frames if _is_own(lines[at].split('"')[1], [])]
        chosen = [i for at in (own or frames)[-2:] for i in indexes[at : at + 2]]
        if own:
            return chosen
        shown = shown or chosen
    return shown


def _message(one: Candidate) -> list[int]:
    """Return the lines below that belong to the message of a cause: a place, a hint."""
    if _ELSE.match(one.part.lines[one.index]):
        return []
    stream = one.part.by_stream[one.part.streams[one.index]]
    at = bisect_right(stream, one.index)
    found = []
    for last, index in zip(stream[at - 1 :], stream[at : at + BELOW], strict=False):
        line = one.part.lines[index]
        is_again = line[:ALIKE] == one.part.lines[one.index][:ALIKE]
        if index - last > FAR or not line.strip() or is_again or _ELSE.match(line):
            break
        found.append(index)
    return found


def _line(one: Candidate, index: int) -> Line:
    text = one.part.raw[index].rstrip()[:WIDEST]
    return Line(one.part.source.name, one.part.number + index, text)


# lines of progress after an alarm: ranks that wait for a dead one do not print so many
LONG_AFTER = 20


_RANK = re.compile(r"\[?[Rr]ank[ :=]?(\d{1,5})\b")


class Part:
    """Lines of one log that stand together, as they are and cleaned, and whose each is."""

    def __init__(self, source: Source, excerpt: Excerpt) -> None:
        self.source = source
        self.number = excerpt.number  # of the first line
        self.size = len(excerpt.text)
        text = excerpt.text.decode("utf-8", "replace").removesuffix("\n")
        self.raw = signatures_match.plain(text)
        parted = [signatures_match.parted(line) for line in self.raw]
        self.lines = [line for line, _ in parted]
        self.streams = [whose for _, whose in parted]
        self.by_stream: dict[str, list[int]] = {}
        for index, whose in enumerate(self.streams):
            self.by_stream.setdefault(whose, []).append(index)
        self._long_since: dict[str, int] = {}

    def is_long_since(self, stream: str, index: int) -> bool:
        """Whether a stream (all, where it is nobody's) shows much progress below a line."""
        if stream not in self._long_since:
            every = self.by_stream[stream] if stream else range(len(self.lines))
            shown = (
                at for at in reversed(every) if signatures_match.last_progress([self.lines[at]])
            )
            self._long_since[stream] = next(islice(shown, LONG_AFTER - 1, None), -1)
        return index < self._long_since[stream]


@dataclass(slots=True)
class Candidate:
    """A line that may be the cause: how much it counts, where it stands."""

    weight: int
    match: Match
    part: Part
    index: int
    overtaken: bool = False
    is_past: bool = False  # overtaken long ago: no failure that still has a consequence
    time: str = ""
    log: int = 0  # the place of its log among the logs

    @property
    def number(self) -> int:
        """The number of the line in its log, from 1."""
        return self.part.number + self.index

    @property
    def score(self) -> int:
        """Another rank may print progress after the failure of this one: it only counts less.

        One that the job has left far behind counts less than an exception that ended it.
        """
        return 2 * self.weight - (5 if self.is_past else 3 if self.overtaken else 0)

    @property
    def rank(self) -> int | None:
        """The rank that failed, as its words, its prefix or its file tell."""
        quoted = quoted_rank(self)
        if quoted is not None:
            return quoted
        stream = self.part.streams[self.index]
        if stream.isdigit():
            return int(stream)
        said = _RANK.search(self.part.raw[self.index])
        return int(said[1]) if said else self.part.source.rank
