"""Applies patterns only to lines that contain a given word: most lines are skipped.

Also removes the end of a private key, which has to be read backwards.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from safelaunch.report.redact import secret_patterns

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Sequence


def sub_lines(
    pattern: re.Pattern[str],
    words: Sequence[str],
    replacement: Callable[[re.Match[str]], str],
    text: str,
) -> str:
    """Return a text with a pattern replaced in lines that contain one of the lower-case words."""
    lowered = lower(text)
    if not any(map(lowered.__contains__, words)):  # nearly always
        return text
    parts, copied_to = [], 0
    for start, end in _lines_with(words, lowered):
        parts += [text[copied_to:start], pattern.sub(replacement, text[start:end])]
        copied_to = end
    return "".join([*parts, text[copied_to:]])


@lru_cache(maxsize=1)  # most patterns leave a text as it is, and the next one asks again
def lower(text: str) -> str:
    """Return a text in small letters, each in its place."""
    lowered = text.lower()
    if len(lowered) != len(text):  # some capitals have two small letters
        lowered = "".join(c if len(c.lower()) > 1 else c.lower() for c in text)
    return lowered


def _lines_with(words: Sequence[str], lowered: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the lines that contain a word, adjacent lines as one."""
    ends: dict[int, int] = {}
    for word in words:
        position = lowered.find(word)
        while position >= 0:
            end = lowered.find("\n", position)
            end = len(lowered) if end < 0 else end + 1
            ends[lowered.rfind("\n", 0, position) + 1] = end
            position = lowered.find(word, end)
    last = None
    for start in sorted(ends):
        if last and last[1] == start:
            last = last[0], ends[start]
        else:
            if last:
                yield last
            last = start, ends[start]
    if last:
        yield last


def strip_key_endings(text: str, replacement: Callable[[str], str]) -> str:
    """Return a text without ends of private keys whose beginning was left out."""
    parts, copied_to = [], 0
    for end in secret_patterns.PEM_END.finditer(text):
        start = end.start()
        while True:
            line_end = max(text.rfind("\n", copied_to, start), text.rfind("\\n", copied_to, start))
            newline_length = 1 if text[line_end : line_end + 1] == "\n" else 2
            line_start = max(
                text.rfind("\n", copied_to, line_end) + 1,
                text.rfind("\\n", copied_to, line_end) + 2,
                copied_to,
            )
            line = text[line_start:line_end].strip()
            if (
                line_end < copied_to
                or start - line_end != newline_length
                or not secret_patterns.PEM_LINE.fullmatch(line)
            ):
                break
            start = line_start
        parts += [text[copied_to:start], replacement(text[start : end.end()])]
        copied_to = end.end()
    return "".join([*parts, text[copied_to:]])
