"""Extracts head and tail of a log as text, with a line for the part left out.

On each side more is read than the excerpt has: a secret at a cut is then redacted as a whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD_BYTES, TAIL_BYTES = 64 << 10, 192 << 10  # kept of a log
MARGIN_BYTES = 16 << 10  # beyond them, for redaction
_LINE_CHARS = 4096  # kept of each end of a long line
_EDGE_CHARS = 4 << 10  # characters
_CUT = "\ufdd0"  # no character: marks where a long line was cut
_ESCAPE_SEQUENCE = re.compile(ESCAPE_SEQUENCE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufdd0\u200b\u2060\ufeff]+")
_BINARY_SHARE = 0.05  # of the bytes


class LogExcerpt(NamedTuple):
    """The excerpt of a log, with a note if it is not all text."""

    text: str
    size: int
    left_out: int  # bytes in the middle
    note: str = ""
    edges: tuple[int, int] = (0, 0)  # characters at the cuts, where a secret may be incomplete


def strip_control(data: bytes) -> str:
    """Return bytes as text without colours, overwritten progress bars and control characters."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPE_SEQUENCE.sub("", text)
    if "\r" in text:
        # a terminal shows the last part of a line whose parts overwrite each other
        overwritten = (
            [part for part in line.split("\r") if part.strip()] if "\r" in line else [line]
            for line in text.split("\n")
        )
        text = "\n".join(parts[-1] if parts else "" for parts in overwritten)
    return _CONTROL.sub("", text)


def head_and_tail(
    read: Callable[[int, int], bytes], size: int, head: int = HEAD_BYTES, tail: int = TAIL_BYTES
) -> tuple[list[str], LogExcerpt]:
    """Return the texts of a log to redact: all of it, or head and tail; and what was left out."""
    if size <= head + tail + 2 * MARGIN_BYTES:
        data = read(0, size)
        return [_shorten_lines(strip_control(data))], LogExcerpt("", size, 0, _note(data))
    start, end = read(0, head + MARGIN_BYTES), read(size - tail - MARGIN_BYTES, tail + MARGIN_BYTES)
    texts = [_shorten_lines(strip_control(start)), _shorten_lines(strip_control(end))]
    # of zeros that a log has at its cut nothing is left
    edges = (
        min(_EDGE_CHARS, len(strip_control(start[-MARGIN_BYTES:]))),
        min(_EDGE_CHARS, len(strip_control(end[:MARGIN_BYTES]))),
    )
    return texts, LogExcerpt("", size, size - head - tail, _note(start + end), edges)


def concat(
    texts: list[str], excerpt: LogExcerpt, head: int = HEAD_BYTES, tail: int = TAIL_BYTES
) -> LogExcerpt:
    """Return the excerpt of redacted texts, without the margins and the middles of long lines."""
    if len(texts) == 1:
        return excerpt._replace(text=_mark_shortened_lines(texts[0]))
    first = texts[0][: min(head, max(0, len(texts[0]) - excerpt.edges[0]))]
    last = texts[1][max(len(texts[1]) - tail, excerpt.edges[1]) :]
    first = first[: len(first) - _break(first[::-1], excerpt.edges[0])]
    last = last[_break(last, excerpt.edges[1]) :]
    gap = f"\n[left out here: {excerpt.left_out:,} bytes of {excerpt.size:,}]\n\n"
    return excerpt._replace(text=_mark_shortened_lines(first.rstrip("\n") + "\n" + gap + last))


def _break(text: str, edge: int) -> int:
    """Return the length of a text before its first whole line or word; 0 if that is far."""
    if not edge:
        return 0
    head = text[:_EDGE_CHARS]
    line_end = head.find("\n") + 1
    blank = re.search(r"\s", head)
    return line_end or (blank.end() if blank else 0)


def _shorten_lines(text: str) -> str:
    """Return a text whose long lines have only their ends, with a margin."""
    if len(text) <= 4 * _LINE_CHARS:
        return text
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if len(line) > 4 * _LINE_CHARS:
            dropped = len(line) - 2 * _LINE_CHARS
            start, end = line[: 2 * _LINE_CHARS], line[-2 * _LINE_CHARS :]
            lines[index] = f"{start}{_CUT}{dropped}{_CUT}{end}"
    return "\n".join(lines)


def _mark_shortened_lines(text: str) -> str:
    if _CUT not in text:
        return text
    lines = text.split("\n")
    for index, line in enumerate(lines):
        start, cut, remaining = line.partition(_CUT)
        dropped, other, end = remaining.partition(_CUT)
        if cut and other:
            gap = f" [... {dropped} characters of this line ...] "
            lines[index] = start[:_LINE_CHARS] + gap + end[-_LINE_CHARS:]
        elif cut:
            lines[index] = start[:_LINE_CHARS]
    return "\n".join(lines)


def _note(data: bytes) -> str:
    """Return a note on data that is not text."""
    printable = data.translate(None, bytes([*range(7), *range(14, 27), *range(28, 32)]))
    control = len(data) - len(printable)
    invalid = data.decode("utf-8", "replace").count("\ufffd") + control
    return "not all of it is text" if data and invalid > _BINARY_SHARE * len(data) else ""
