"""Patterns of bash, matched in time that grows with the lengths of both; no regular expressions.

The places in the pattern that a text may have reached are the bits of a number:
https://en.wikipedia.org/wiki/Bitap_algorithm. A star before a place keeps its bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.importer.findings import Stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from safelaunch.importer.budget import Budget

Character = tuple[str, bool]  # a character, and whether it is quoted
GLOB = frozenset("*?[")
_LONGEST = 10_000
_BRACKET_PARTS = 1000


class Bracket(NamedTuple):
    """`[a-c]`: what one character may be."""

    is_negated: bool
    characters: frozenset[str]
    ranges: tuple[tuple[str, str], ...]

    def accepts(self, char: str) -> bool:
        """Whether it stands for a character."""
        inside = char in self.characters or any(x <= char <= y for x, y in self.ranges)
        return inside != self.is_negated


class ShellPattern:
    """A pattern for texts; a quoted character stands for itself. Raises Stop."""

    def __init__(self, characters: Sequence[Character], budget: Budget) -> None:
        if len(characters) > _LONGEST:
            raise Stop(f"a pattern of more than {_LONGEST:,} characters", 0)
        self._budget = budget
        self._tokens: list[str | Bracket | None] = []  # None: any character
        self._stars: set[int] = set()  # places before which a star stands
        self._parse(characters)
        self._make_masks()

    def _parse(self, pattern: Sequence[Character]) -> None:
        at = 0
        while at < len(pattern):
            char, quoted = pattern[at]
            at += 1
            if not quoted and char in "?*+@!" and pattern[at : at + 1] == [("(", False)]:
                raise Stop("a pattern of `extglob`", 0)
            if char == "\\" and not quoted:
                raise Stop("a backslash of a variable in a pattern", 0)
            if quoted or char not in GLOB:
                self._tokens.append(char)
            elif char == "*":
                self._stars.add(len(self._tokens))
            elif char == "?":
                self._tokens.append(None)
            else:
                bracket, at = bracket_class(pattern, at)
                self._tokens.append(bracket)

    def _make_masks(self) -> None:
        self._loops = sum(1 << at for at in self._stars)
        self._any = sum(1 << at for at, token in enumerate(self._tokens) if token is None)
        self._plain: dict[str, int] = {}
        self._brackets: list[tuple[int, Bracket]] = []
        for at, token in enumerate(self._tokens):
            if isinstance(token, Bracket):
                self._brackets.append((1 << at, token))
            elif token is not None:
                self._plain[token] = self._plain.get(token, 0) | 1 << at
        self._accepted: dict[str, int] = {}

    def _reversed(self) -> ShellPattern:
        other = object.__new__(ShellPattern)
        other._budget, other._tokens = self._budget, self._tokens[::-1]
        other._stars = {len(self._tokens) - at for at in self._stars}
        other._make_masks()
        return other

    @property
    def is_plain(self) -> bool:
        """Whether it stands for one text alone."""
        return not self._stars and all(isinstance(token, str) for token in self._tokens)

    def _accept(self, char: str) -> int:
        """Return the places that a character may stand at."""
        mask = self._accepted.get(char)
        if mask is None:
            self._budget.spend(1 + len(self._brackets))
            mask = self._plain.get(char, 0) | self._any
            for bit, bracket in self._brackets:
                if bracket.accepts(char):
                    mask |= bit
            self._accepted[char] = mask
        if not char.isascii() and (self._any or self._brackets):
            raise Stop("a character beyond ASCII and a pattern: it depends on the language", 0)
        return mask

    def ends(self, text: Iterable[str]) -> Iterator[int]:
        """Yield the lengths of the beginnings of a text that match, the shortest first."""
        reached, last = 1, 1 << len(self._tokens)
        if reached & last:
            yield 0
        cost = 1 + len(self._tokens) // 1000
        for length, char in enumerate(text, 1):
            self._budget.spend(cost)
            reached = ((reached & self._accept(char)) << 1) | (reached & self._loops)
            if not reached:
                return
            if reached & last:
                yield length

    def matches(self, text: str) -> bool:
        """Whether a whole text matches."""
        return self.longest(text) == len(text)

    def longest(self, text: str) -> int | None:
        """Return the length of the longest beginning that matches; None where none does."""
        return max(self.ends(text), default=None)

    def shortest(self, text: str) -> int | None:
        """Return the length of the shortest beginning that matches; None where none does."""
        return next(self.ends(text), None)

    def at_end(self, text: str, *, longest: bool) -> int | None:
        """Return where the longest or shortest end that matches begins; None where none does."""
        other, backwards = self._reversed(), text[::-1]
        length = other.longest(backwards) if longest else other.shortest(backwards)
        return None if length is None else len(text) - length

    def finds(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where it matches: at the first place, as long as can be, and again behind it."""
        at = 0
        while at < len(text):
            length = self.longest_from(text, at)
            if length:
                yield at, at + length
            at += length or 1

    def longest_from(self, text: str, at: int) -> int | None:
        """Return the length of the longest match that begins at a place."""
        return max(self.ends(text[i] for i in range(at, len(text))), default=None)


def bracket_class(pattern: Sequence[Character], at: int) -> tuple[str | Bracket, int]:
    """Return the class behind `[`, and where the pattern goes on; a lone `[` is itself."""
    start = at
    negated = at < len(pattern) and pattern[at][0] in "!^" and not pattern[at][1]
    at += negated
    items: list[Character] = []
    while at < len(pattern) and (pattern[at] != ("]", False) or not items):
        char, quoted = pattern[at]
        if char == "[" and not quoted and at + 1 < len(pattern) and pattern[at + 1][0] in ":=.":
            raise Stop("a character class such as `[[:space:]]` in a pattern", 0)
        items.append((char, quoted))
        at += 1
        if len(items) > _BRACKET_PARTS:
            raise Stop("a `[` without its end, or with too much in it, in a pattern", 0)
    if at == len(pattern):
        return "[", start
    characters, ranges = set[str](), list[tuple[str, str]]()
    rest = list(items)
    while rest:
        char, _ = rest.pop(0)
        if len(rest) > 1 and rest[0] == ("-", False):
            last = rest[1][0]
            if last < char or not (char + last).isascii():
                raise Stop("a range of characters in a pattern that depends on the language", 0)
            ranges.append((char, last))
            del rest[:2]
        else:
            characters.add(char)
    return Bracket(negated, frozenset(characters), tuple(ranges)), at + 1
