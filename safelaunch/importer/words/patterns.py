"""Patterns of bash as regular expressions, and braces."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.importer.findings import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

Character = tuple[str, bool]  # a character, and whether it is quoted
GLOB = frozenset("*?[")
_MAX_WORDS = 1000
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?|([A-Za-z])\.\.([A-Za-z])")


def regex(pattern: Sequence[Character], *, lazy: bool = False) -> str:
    """Return a regular expression for a pattern; a quoted character stands for itself."""
    text, at = "", 0
    while at < len(pattern):
        char, quoted = pattern[at]
        at += 1
        if not quoted and char in "?*+@!" and pattern[at : at + 1] == [("(", False)]:
            raise Stop("a pattern of `extglob`", 0)
        if quoted or char not in GLOB:
            text += re.escape(char)
        elif char == "*":
            text += "(?s:.)*?" if lazy else "(?s:.)*"
        elif char == "?":
            text += "(?s:.)"
        else:
            group, at = _bracket(pattern, at)
            text += group
    return text


def _bracket(pattern: Sequence[Character], at: int) -> tuple[str, int]:
    """Return the class behind `[`, and where the pattern goes on; a lone `[` is itself."""
    start = at
    negated = at < len(pattern) and pattern[at][0] in "!^" and not pattern[at][1]
    at += negated
    items = ""
    while at < len(pattern) and (pattern[at] != ("]", False) or not items):
        char, quoted = pattern[at]
        if char == "[" and not quoted and at + 1 < len(pattern) and pattern[at + 1][0] in ":=.":
            raise Stop("a character class such as `[[:space:]]` in a pattern", 0)
        items += "-" if char == "-" and not quoted else re.escape(char)
        at += 1
    if at == len(pattern):
        return r"\[", start
    return f"[{'^' if negated else ''}{items}]", at + 1


def braces(text: str) -> list[str] | None:
    """Return the words of `a{b,c}d` and `{1..3}`; None where braces are too many to follow."""
    if "{" not in text:
        return [text]
    match = re.fullmatch(r"([^{}]*)\{([^{}]*)\}([^{}]*)", text, re.DOTALL)
    if match is None:
        return [text] if not re.search(r"\{.*(,|\.\.).*\}", text, re.DOTALL) else None
    before, inside, after = match.groups()
    if "$" in before[-1:] or "\\" in text:
        return None
    if "," in inside:
        return [f"{before}{item}{after}" for item in inside.split(",")]
    span = _RANGE.fullmatch(inside)
    if span is None:
        return [text]
    items = _range(span)
    return None if items is None else [f"{before}{item}{after}" for item in items]


def _range(span: re.Match[str]) -> list[str] | None:
    if span[4]:
        first, last = ord(span[4]), ord(span[5])
        step = 1 if last >= first else -1
        letters = [chr(n) for n in range(first, last + step, step)]
        return letters if all(map(str.isalpha, letters)) else None
    padded = any(re.match(r"-?0\d", text) for text in (span[1], span[2]))
    first, last, step = int(span[1]), int(span[2]), abs(int(span[3] or 1)) or 1
    numbers = range(first, last + (1 if last >= first else -1), step if last >= first else -step)
    return None if padded or len(numbers) > _MAX_WORDS else [str(n) for n in numbers]
