"""Regular expressions of `[[ x =~ y ]]`, but for groups, matched in time that grows with both.

The places that a text may have reached are the bits of a number, as in patterns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.importer.words.patterns import Bracket, bracket_class

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.importer.budget import Budget
    from safelaunch.importer.words.patterns import Character

_LONGEST = 1000
_REPEATS = "*+?"
_OTHERS = frozenset("(){}\\")  # groups, counts, and what a variable escapes


class _Atom(NamedTuple):
    """What one character may be, and how often."""

    accepts: Callable[[str], bool]
    may_repeat: bool
    may_miss: bool


class _Branch(NamedTuple):
    """One of the alternatives, and whether it must begin and end where the text does."""

    parts: list[_Atom]
    at_start: bool
    at_end: bool


class RegularExpression:
    """An expression such as `^[0-9]+$|^all$`; a quoted character stands for itself.

    Raises ValueError where it has more than that, and Stop for a class of characters.
    """

    def __init__(self, characters: Sequence[Character], budget: Budget) -> None:
        if len(characters) > _LONGEST or not all(char.isascii() for char, _ in characters):
            raise ValueError(characters)
        self._budget = budget
        self._branches = [_branch(part) for part in _split(characters)]

    def is_in(self, text: str) -> bool:
        """Whether it matches a part of a text."""
        if not text.isascii():
            raise ValueError(text)
        return any(self._finds(branch, text) for branch in self._branches)

    def _finds(self, branch: _Branch, text: str) -> bool:
        parts, at_start, at_end = branch
        reached, last = _skipped(1, parts), 1 << len(parts)
        for char in text:
            if reached & last and not at_end:
                return True
            self._budget.spend(1 + len(parts))
            starts = reached if at_start else reached | _skipped(1, parts)
            reached = 0
            for place, part in enumerate(parts):
                if starts & 1 << place and part.accepts(char):
                    reached |= 1 << place + 1 | (1 << place if part.may_repeat else 0)
            reached = _skipped(reached, parts)
            if at_start and not reached:
                return False
        if not at_start:
            reached |= _skipped(1, parts)
        return bool(reached & last)


def _skipped(reached: int, parts: Sequence[_Atom]) -> int:
    """Return places, and those that are reached from them without a character."""
    for place, part in enumerate(parts):
        if part.may_miss and reached & 1 << place:
            reached |= 1 << place + 1
    return reached


def _split(characters: Sequence[Character]) -> list[list[Character]]:
    """Return the alternatives between `|`."""
    branches: list[list[Character]] = [[]]
    for character in characters:
        if character == ("|", False):
            branches.append([])
        else:
            branches[-1].append(character)
    if not all(branches):
        raise ValueError(characters)
    return branches


def _branch(characters: Sequence[Character]) -> _Branch:
    at_start, at_end = characters[0] == ("^", False), characters[-1] == ("$", False)
    rest = characters[at_start : len(characters) - at_end]
    parts, at = list[_Atom](), 0
    while at < len(rest):
        accepts, at = _atom(rest, at)
        repeat = rest[at][0] if at < len(rest) and not rest[at][1] else ""
        is_repeat = bool(repeat) and repeat in _REPEATS
        at += is_repeat
        parts.append(_Atom(accepts, is_repeat and repeat != "?", is_repeat and repeat != "+"))
    return _Branch(parts, at_start, at_end)


def _atom(rest: Sequence[Character], at: int) -> tuple[Callable[[str], bool], int]:
    """Return what a character must be, and where the expression goes on. Raises ValueError."""
    char, quoted = rest[at]
    if not quoted and (char in _OTHERS or char in _REPEATS or char in "^$"):
        raise ValueError(rest)
    if not quoted and char == ".":
        return (lambda _: True), at + 1
    if quoted or char != "[":
        return char.__eq__, at + 1
    end = bracket_class(rest, at + 1)
    inside = rest[at + 1 : end[1]]
    is_plain = not any(quoted or char == "\\" for char, quoted in inside)
    if not isinstance(end[0], Bracket) or not is_plain or inside[0][0] == "!":
        raise ValueError(rest)
    return end[0].accepts, end[1]
