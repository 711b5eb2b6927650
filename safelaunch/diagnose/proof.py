"""The lines that prove a finding: its own, its traceback's, what was around it and followed."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.runtime import tails, tracebacks

if TYPE_CHECKING:
    from safelaunch.diagnose.engine import Candidate

MOST = 8  # lines that are shown
ABOVE = 400  # lines in which the beginning of a traceback is looked for
WIDEST = 400  # characters of a line that are kept
_BEGIN = "Traceback (most recent call last)"
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
    """Return the frame of the user's own code that was on the stack, else the innermost one."""
    indexes = _traceback(one)
    found = tails.frames("\n".join(one.part.lines[index] for index in indexes))
    if not found:
        return None
    own = [frame for frame in found if _is_own(frame["file"], roots)]
    best = (own or found)[-1]
    return Frame(best["file"], best["line"], best["function"], best["code"], bool(own))


def _is_own(file: str, roots: list[str]) -> bool:
    if roots:
        return tails.is_own(file, roots)
    return _LIBRARY.search(file) is None and file.endswith(".py")


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
    """Whether no exception ends between the beginning of a traceback and a line."""
    lines = [one.part.lines[index] for index in stream[bisect_left(stream, begin) : at]]
    return not any(True for _ in tracebacks.exceptions(lines))


def lines_of(one: Candidate, ordered: list[Candidate]) -> tuple[Line, ...]:
    """Return three to ten lines: the cause, how the program came there, what followed."""
    chosen = {(one.part.source.path, one.index + one.part.number): _line(one, one.index)}
    indexes = _traceback(one)
    frames = [index for index in indexes if tracebacks.is_frame(one.part.lines[index])]
    own = [i for i in frames if _LIBRARY.search(one.part.raw[i]) is None]
    for index in (own or frames)[-2:]:
        for shown in (index, _below(indexes, index)):
            if shown is not None:
                chosen.setdefault(
                    (one.part.source.path, one.part.number + shown), _line(one, shown)
                )
    for other in ordered:
        if len(chosen) >= MOST:
            break
        if other.match.name != one.match.name or other.match.role == "confirmation":
            chosen.setdefault((other.part.source.path, other.number), _line(other, other.index))
    if len(chosen) < 3:  # noqa: PLR2004 - what stood just above, as far as it says something
        for index in range(one.index - 1, max(-1, one.index - 3), -1):
            if one.part.raw[index].strip():
                chosen.setdefault(
                    (one.part.source.path, one.part.number + index), _line(one, index)
                )
    order = sorted(chosen, key=lambda key: (key[0] != one.part.source.path, key))
    return tuple(chosen[key] for key in order)


def _below(indexes: list[int], index: int) -> int | None:
    at = indexes.index(index) + 1
    return indexes[at] if at < len(indexes) else None


def _line(one: Candidate, index: int) -> Line:
    text = one.part.raw[index].rstrip()[:WIDEST]
    return Line(one.part.source.path, one.part.number + index, text)
