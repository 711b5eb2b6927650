"""The one dialect of patterns: what re2 and Python's re both take and read alike, in linear time.

A pattern is a fragment of one line. It holds at least one literal text without which it cannot
match: logs of any size are searched for those first.
"""

from __future__ import annotations

import functools
import re
import warnings
from typing import Any

LEAST = 4  # characters of a literal; shorter ones stand in too many lines
_SIMPLE = frozenset(("ANY", "AT", "LITERAL", "NOT_LITERAL", "IN"))
_MOST = 1000  # of a repeat: re2 takes no larger bound either
_ANCHORS = frozenset(("AT_BEGINNING", "AT_END", "AT_BOUNDARY", "AT_NON_BOUNDARY"))


class BadPattern(ValueError):  # noqa: N818 - reads as what it is
    """A pattern that one of the engines does not take, or that may take long."""


@functools.cache
def literals(pattern: str) -> tuple[str, ...]:
    """Return texts of which at least one stands wherever a pattern matches. Raises BadPattern."""
    found = _of_sequence(_parsed(pattern))
    if found is None or min(map(len, found)) < LEAST:
        raise BadPattern(f"`{pattern}` needs a literal of {LEAST} characters in every branch")
    return tuple(dict.fromkeys(found))


def check(pattern: str) -> None:
    """Raise BadPattern where a pattern is not of the dialect; literals are not looked at."""
    _walk(_parsed(pattern), pattern, inside=False)


def _parsed(pattern: str) -> Any:
    if pattern.startswith("(?") and not pattern.startswith("(?:"):
        raise BadPattern(f"`{pattern}`: no flags inside a pattern")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return _parser().parse(pattern)
    except (re.error, RecursionError, OverflowError, Warning) as e:
        raise BadPattern(f"`{pattern}` is no regular expression: {e}") from None


def _parser() -> Any:
    try:
        from re import _parser  # type: ignore[attr-defined]  # noqa: PLC0415
    except ImportError:
        import sre_parse as _parser  # noqa: PLC0415 - Python 3.10
    return _parser


def _walk(items: Any, pattern: str, *, inside: bool) -> None:
    for operator, argument in items:
        name = str(operator)
        if name == "AT" and str(argument) not in _ANCHORS:
            raise BadPattern(f"`{pattern}`: only ^, $, \\b and \\B are anchors")
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            _walk_repeat(argument, pattern, inside=inside)
        elif name == "SUBPATTERN":
            if argument[1] or argument[2]:
                raise BadPattern(f"`{pattern}`: no flags inside a pattern")
            _walk(argument[3], pattern, inside=inside)
        elif name == "BRANCH":
            for branch in argument[1]:
                _walk(branch, pattern, inside=inside)
        elif name not in _SIMPLE:  # lookaround, back references, atomic groups, conditionals
            raise BadPattern(f"`{pattern}`: {name.lower()} is not in both dialects")


def _walk_repeat(argument: Any, pattern: str, *, inside: bool) -> None:
    _, most, body = argument
    unbounded = str(most) == "MAXREPEAT"
    if not unbounded and most > _MOST:
        raise BadPattern(f"`{pattern}`: a repeat of more than {_MOST}")
    if inside and unbounded:
        raise BadPattern(f"`{pattern}`: an unbounded repeat inside another takes long")
    _walk(body, pattern, inside=inside or unbounded)


def _of_sequence(items: Any) -> list[str] | None:
    """Return the best set of required literals of a sequence, None where it has none."""
    sets: list[list[str]] = []
    run = ""
    for operator, argument in items:
        name = str(operator)
        if name == "LITERAL":
            run += chr(argument)
            continue
        if run:
            sets.append([run])
            run = ""
        required = _of_part(name, argument)
        if required:
            sets.append(required)
    if run:
        sets.append([run])
    return max(sets, key=_worth, default=None)


def _of_part(name: str, argument: Any) -> list[str] | None:
    if name == "SUBPATTERN":
        return _of_sequence(argument[3])
    if name == "BRANCH":
        branches = [_of_sequence(branch) for branch in argument[1]]
        return [text for one in branches for text in one or ()] if all(branches) else None
    if name in ("MAX_REPEAT", "MIN_REPEAT") and argument[0] >= 1:
        return _of_sequence(argument[2])
    return None


def _worth(texts: list[str]) -> tuple[int, int]:
    """Sort sets of literals: the longer its shortest the rarer it stands in a log."""
    return min(map(len, texts)), -len(texts)
