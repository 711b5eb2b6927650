"""Selects lines of a log where it lies: those that contain a text, the last ones, or some bytes.

What is left out is neither sent nor printed.
"""

from __future__ import annotations

import os
import re
from collections import deque
from typing import NamedTuple

from safelaunch.runtime.logs import reader
from safelaunch.runtime.units import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Optional, TypeAlias

    Piece: TypeAlias = tuple[int, int, bytes]  # attempt, position behind it, bytes

_LINE_END = re.compile(rb"(?<=[\r\n])")  # each state of a progress bar is a line
_LONGEST_LINE = 1 << 16  # bytes that wait for the end of their line


class LogPart(NamedTuple):
    """Which part of a log: without any of them everything."""

    tail: Optional[int] = None
    text: Optional[str] = None
    max_bytes: Optional[int] = None


def select(
    path: str,
    selection: LogPart,
    start: tuple[int, int],
    read: Callable[[int], Iterator[Piece]],
    *,
    follows: bool = False,
) -> Iterator[Piece]:
    """Yield attempt, position and bytes of a log, no bytes at a pause.

    `start` is attempt and position, `path` the log of that attempt; `read` yields the log from a
    position on, as it grows if it `follows`. A line says how much `max_bytes` leaves out.
    """
    tail, text, max_bytes = selection
    attempt, position = start
    if text:
        matches = _matching(read(position), start, text.encode("utf-8", "surrogateescape"))
        is_whole = tail is None and max_bytes is None
        yield from matches if is_whole else _last(matches, attempt, selection, follows=follows)
        return
    first = position if tail is None else reader.last_lines(path, tail)
    cut = first if max_bytes is None else _line_start(path, first, max_bytes)
    if cut > first:
        yield attempt, cut, _note(cut - first)
    yield from read(cut)


def _note(count: int) -> bytes:
    return b"[safelaunch: %s before this left out by --max-bytes]\n" % size(count).encode()


def _line_start(path: str, first: int, most: int) -> int:
    """Return where the first line begins of the last `most` bytes; not before `first`."""
    try:
        with open(path, "rb", buffering=0) as file:
            position = max(first, os.fstat(file.fileno()).st_size - most)
            if position == first:
                return first
            file.seek(position - 1)
            head = file.read(min(most, _LONGEST_LINE) + 1)
    except OSError:
        return first
    return position + max(0, head.find(b"\n"))  # without one: the middle of a long line


def _matching(pieces: Iterator[Piece], start: tuple[int, int], text: bytes) -> Iterator[Piece]:
    """Yield the lines that contain a text, with the position behind each; no bytes at a pause."""
    attempt, position = start
    rest = b""
    for number, at, data in pieces:
        if number != attempt:
            if text in rest:
                yield attempt, position, rest + b"\n"
            attempt, rest = number, b""
        if not data:
            yield attempt, at - len(rest), b""
            continue
        rest += data
        cut = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
        if len(rest) - cut > _LONGEST_LINE:
            cut = len(rest)
        whole, rest = rest[:cut], rest[cut:]
        position = at - len(rest)
        if text in whole:
            behind = position - len(whole)
            for line in _LINE_END.split(whole):
                behind += len(line)
                if text in line:
                    yield attempt, behind, line.rstrip(b"\r\n") + b"\n"
    if text in rest:
        yield attempt, position + len(rest), rest + b"\n"


def _last(
    matches: Iterator[Piece], attempt: int, selection: LogPart, *, follows: bool
) -> Iterator[Piece]:
    """Yield the last of the lines that are there, and if `follows` all that come later."""
    tail, _, max_bytes = selection
    lines: deque[Piece] = deque()
    dropped: deque[int] = deque()  # sizes of lines before those, which are of the tail too
    total = left_out = 0
    for piece in matches:
        if not piece[2] and follows:
            break
        if not piece[2]:
            continue
        lines.append(piece)
        total += len(piece[2])
        while max_bytes is not None and total > max_bytes:
            count = len(lines.popleft()[2])
            total, left_out = total - count, left_out + count
            if tail is not None:
                dropped.append(count)
        while tail is not None and len(lines) + len(dropped) > tail:
            if dropped:
                left_out -= dropped.popleft()
            else:
                total -= len(lines.popleft()[2])
    if left_out:
        yield attempt, lines[0][1] - len(lines[0][2]) if lines else 0, _note(left_out)
    yield from lines
    yield from matches
