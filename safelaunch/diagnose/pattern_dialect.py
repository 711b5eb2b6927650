"""Checks patterns: what re2 and Python's re both accept and read alike, in linear time.

A pattern is a fragment of one line. It has at least one literal text without which it cannot
match: logs of any size are searched for those first.
"""

from __future__ import annotations

import functools
import re
import warnings
from itertools import groupby
from typing import Any

try:
    from re import _parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as _parser

MIN_LITERAL_LENGTH = 4  # characters; shorter ones are in too many lines
_SIMPLE = frozenset(("ANY", "AT", "LITERAL", "NOT_LITERAL", "IN"))
_MAX_REPEAT = 1000  # re2 accepts no larger bound either
_ANCHORS = frozenset(("AT_BEGINNING", "AT_END", "AT_BOUNDARY", "AT_NON_BOUNDARY"))


class PatternError(ValueError):
    """A pattern that one of the engines does not accept, or that may be slow."""


@functools.cache
def literals(pattern: str) -> tuple[str, ...]:
    """Return texts of which every match has at least one. Raises PatternError."""
    texts = _sequence_literals(_parse(pattern))
    if texts is None or min(map(len, texts)) < MIN_LITERAL_LENGTH:
        raise PatternError(
            f"`{pattern}` needs a literal of {MIN_LITERAL_LENGTH} characters in every branch"
        )
    return tuple(dict.fromkeys(texts))


def check(pattern: str) -> None:
    """Raise PatternError for a pattern outside the dialect; literals are not checked."""
    _walk(_parse(pattern), pattern, inside=False)


def _parse(pattern: str) -> Any:
    if pattern.startswith("(?") and not pattern.startswith("(?:"):
        raise PatternError(f"`{pattern}`: no flags inside a pattern")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError, Warning) as e:
        raise PatternError(f"`{pattern}` is not a regular expression: {e}") from None


def _walk(items: Any, pattern: str, *, inside: bool) -> None:
    for operator, argument in items:
        name = str(operator)
        if name == "AT" and str(argument) not in _ANCHORS:
            raise PatternError(f"`{pattern}`: only ^, $, \\b and \\B are anchors")
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            _walk_repeat(argument, pattern, inside=inside)
        elif name == "SUBPATTERN":
            if argument[1] or argument[2]:
                raise PatternError(f"`{pattern}`: no flags inside a pattern")
            _walk(argument[3], pattern, inside=inside)
        elif name == "BRANCH":
            for branch in argument[1]:
                _walk(branch, pattern, inside=inside)
        elif name not in _SIMPLE:  # lookaround, back references, atomic groups, conditionals
            raise PatternError(f"`{pattern}`: {name.lower()} is not in both dialects")


def _walk_repeat(argument: Any, pattern: str, *, inside: bool) -> None:
    _, upper, body = argument
    unbounded = str(upper) == "MAXREPEAT"
    if not unbounded and upper > _MAX_REPEAT:
        raise PatternError(f"`{pattern}`: a repeat of more than {_MAX_REPEAT}")
    if inside and unbounded:
        raise PatternError(f"`{pattern}`: an unbounded repeat inside another is slow")
    _walk(body, pattern, inside=inside or unbounded)


def _sequence_literals(items: Any) -> list[str] | None:
    """Return the best set of required literals of a sequence, None where it has none."""
    sets: list[list[str]] = []
    for is_text, group in groupby(items, key=lambda item: str(item[0]) == "LITERAL"):
        if is_text:
            sets.append(["".join(chr(argument) for _, argument in group)])
        else:
            sets += filter(None, (_item_literals(str(name), argument) for name, argument in group))
    # the longer its shortest literal, the rarer a set is in logs
    return max(sets, key=lambda texts: (min(map(len, texts)), -len(texts)), default=None)


def _item_literals(name: str, argument: Any) -> list[str] | None:
    if name == "SUBPATTERN":
        return _sequence_literals(argument[3])
    if name == "BRANCH":
        branches = [_sequence_literals(branch) for branch in argument[1]]
        return [text for texts in branches for text in texts or ()] if all(branches) else None
    if name in ("MAX_REPEAT", "MIN_REPEAT") and argument[0] >= 1:
        return _sequence_literals(argument[2])
    return None
