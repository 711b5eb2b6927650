"""Patterns over the lines of a text that have a word in them: most lines need no second look.

And the one form that has to be read backwards: the end of a private key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from safelaunch.report.redact import secret_patterns

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator


def replaced(
    pattern: re.Pattern[str],
    words: Iterable[str],
    put: Callable[[re.Match[str]], str],
    text: str,
) -> str:
    """Return a text whose lines with one of the words (lower case) went through a pattern."""
    parts, done = [], 0
    for begin, end in _lines_with(words, text):
        parts += [text[done:begin], pattern.sub(put, text[begin:end])]
        done = end
    return "".join([*parts, text[done:]]) if parts else text


@lru_cache(maxsize=1)  # most patterns leave a text as it is, and the next one asks again
def _lower(text: str) -> str:
    low = text.lower()
    if len(low) != len(text):  # some capitals have two small letters
        low = "".join(c if len(c.lower()) > 1 else c.lower() for c in text)
    return low


def _lines_with(words: Iterable[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the lines that hold a word, those beside each other as one."""
    low = _lower(text)
    ends: dict[int, int] = {}
    for word in words:
        at = low.find(word)
        while at >= 0:
            end = low.find("\n", at)
            end = len(low) if end < 0 else end + 1
            ends[low.rfind("\n", 0, at) + 1] = end
            at = low.find(word, end)
    last = None
    for begin in sorted(ends):
        if last and last[1] == begin:
            last = last[0], ends[begin]
        else:
            if last:
                yield last
            last = begin, ends[begin]
    if last:
        yield last


def without_key_ends(text: str, put: Callable[[str], str]) -> str:
    """Return a text without ends of private keys whose begin was left out."""
    parts, done = [], 0
    for end in secret_patterns.PEM_END.finditer(text):
        begin = end.start()
        while True:
            stop = max(text.rfind("\n", done, begin), text.rfind("\\n", done, begin))
            step = 1 if text[stop : stop + 1] == "\n" else 2
            before = max(text.rfind("\n", done, stop) + 1, text.rfind("\\n", done, stop) + 2, done)
            line = text[before:stop].strip()
            if stop < done or begin - stop != step or not secret_patterns.PEM_LINE.fullmatch(line):
                break
            begin = before
        parts += [text[done:begin], put(text[begin : end.end()])]
        done = end.end()
    return "".join([*parts, text[done:]])
