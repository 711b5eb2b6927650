"""Head and tail of a log as text that can be read, redacted, with a line for what is left out.

More is read than is kept on each side: a secret at a cut is whole while it is looked for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD, TAIL = 64 << 10, 192 << 10  # bytes that are kept of a log
MARGIN = 16 << 10  # bytes beyond them that are looked at
_LINE = 4096  # characters that are kept of each end of a long line
_EDGE = 4 << 10  # characters
_CUT = "\ufdd0"  # no character: marks where a long line was cut
_ESCAPE_SEQUENCE = re.compile(ESCAPE_SEQUENCE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufdd0\u200b\u2060\ufeff]+")
_BINARY = 0.05  # of the bytes


class Excerpt(NamedTuple):
    """What is kept of a log, and a note on it where it is not all text."""

    text: str
    size: int
    left_out: int  # bytes in the middle
    note: str = ""
    edges: tuple[int, int] = (0, 0)  # characters at the cuts where a secret may be half there


def clean(data: bytes) -> str:
    """Return bytes as text without colours, overwritten bars and control characters."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPE_SEQUENCE.sub("", text)
    if "\r" in text:
        text = "\n".join(_last_state(line) if "\r" in line else line for line in text.split("\n"))
    return _CONTROL.sub("", text)


def _last_state(line: str) -> str:
    """Return what a terminal would show of a line whose parts overwrite each other."""
    parts = [part for part in line.split("\r") if part.strip()]
    return parts[-1] if parts else ""


def take(
    read: Callable[[int, int], bytes], size: int, head: int = HEAD, tail: int = TAIL
) -> tuple[list[str], Excerpt]:
    """Return the texts of a log to redact: all of it, or head and tail; and what was left out."""
    if size <= head + tail + 2 * MARGIN:
        data = read(0, size)
        return [_shortened(clean(data))], Excerpt("", size, 0, _note(data))
    begin, end = read(0, head + MARGIN), read(size - tail - MARGIN, tail + MARGIN)
    texts = [_shortened(clean(begin)), _shortened(clean(end))]
    # of zeros that a log has at its cut nothing is left
    edges = min(_EDGE, len(clean(begin[-MARGIN:]))), min(_EDGE, len(clean(end[:MARGIN])))
    return texts, Excerpt("", size, size - head - tail, _note(begin + end), edges)


def join(texts: list[str], told: Excerpt, head: int = HEAD, tail: int = TAIL) -> Excerpt:
    """Return what is kept of redacted texts: without the margins and the middles of long lines."""
    if len(texts) == 1:
        return told._replace(text=_without_middles(texts[0]))
    first = texts[0][: min(head, max(0, len(texts[0]) - told.edges[0]))]
    last = texts[1][max(len(texts[1]) - tail, told.edges[1]) :]
    first = first[: len(first) - _break(first[::-1], told.edges[0])]
    last = last[_break(last, told.edges[1]) :]
    gap = f"\n[left out here: {told.left_out:,} bytes of {told.size:,}]\n\n"
    return told._replace(text=_without_middles(first.rstrip("\n") + "\n" + gap + last))


def _break(text: str, edge: int) -> int:
    """Return how much of a text lies before its first whole line, or word: 0 where that is far."""
    if not edge:
        return 0
    near = text[:_EDGE]
    at = near.find("\n") + 1
    blank = re.search(r"\s", near)
    return at or (blank.end() if blank else 0)


def _shortened(text: str) -> str:
    """Return a text whose long lines have only their ends, with a margin."""
    if len(text) <= 4 * _LINE:
        return text
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if len(line) > 4 * _LINE:
            left = len(line) - 2 * _LINE
            lines[at] = f"{line[: 2 * _LINE]}{_CUT}{left}{_CUT}{line[-2 * _LINE :]}"
    return "\n".join(lines)


def _without_middles(text: str) -> str:
    if _CUT not in text:
        return text
    lines = text.split("\n")
    for at, line in enumerate(lines):
        begin, cut, rest = line.partition(_CUT)
        left, other, end = rest.partition(_CUT)
        if cut and other:
            lines[at] = f"{begin[:_LINE]} [... {left} characters of this line ...] {end[-_LINE:]}"
        elif cut:
            lines[at] = begin[:_LINE]
    return "\n".join(lines)


def _note(data: bytes) -> str:
    """Return a note on data that is not text."""
    odd = len(data) - len(data.translate(None, bytes([*range(7), *range(14, 27), *range(28, 32)])))
    bad = data.decode("utf-8", "replace").count("\ufffd") + odd
    return "not all of it is text" if data and bad > _BINARY * len(data) else ""
