"""Where literals stand in a block of lines; a log full of alarms is searched by kinds of lines.

A search yields each hit for itself, which takes long where each line has some. Such logs say the
same again and again: there each kind of line is searched once, digits apart.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, compress, count
from operator import add
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.diagnose.scan import Finder

DENSE = 200  # bytes for each hit, less than which makes a block dense
MOST_KINDS = 50_000  # of lines that are remembered
PATIENCE = 64  # blocks that are searched in the plain way after one whose lines were not alike
_DIGITS = b"0123456789"
_NONE: frozenset[int] = frozenset()


class Hits(Protocol):
    """Hits in the order of their ends."""

    @property
    def ends(self) -> list[int]:
        """Where they end."""

    def within(self, begin: int, end: int) -> frozenset[int]:
        """Return the literals of the hits from one index to another."""


class _Single(NamedTuple):
    """One literal for each hit."""

    ends: list[int]
    literals: list[int]

    def within(self, begin: int, end: int) -> frozenset[int]:
        return frozenset(self.literals[begin:end])


class _Lines(NamedTuple):
    """One line for each hit, with all its literals."""

    ends: list[int]
    literals: list[frozenset[int]]

    def within(self, begin: int, end: int) -> frozenset[int]:
        return _NONE.union(*set(self.literals[begin:end]))


class Hitting:
    """Finds the literals in the blocks of one log."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._kinds: dict[bytes, frozenset[int]] = {}
        self._is_dense = False
        self._wait = 0  # blocks until it is tried again whether lines are alike

    def hits(self, data: bytes) -> Sequence[Hits]:
        """Return where literals stand in whole lines; several lists, each in its order."""
        if self._is_dense:
            return self._of_kinds(data)
        found = self._finder.places(data)
        self._wait -= 1
        self._is_dense = self._wait < 0 and len(found) * DENSE > len(data)
        return [_Single([one[2] for one in found], [one[0] for one in found])] if found else []

    def _of_kinds(self, data: bytes) -> Sequence[Hits]:
        lines = data.split(b"\n")
        kinds = data.translate(None, _DIGITS).split(b"\n")
        literals = list(map(self._kinds.get, kinds))
        if None in literals:
            if not self._learn(kinds, lines):
                self._is_dense, self._wait = False, PATIENCE
                return self.hits(data)
            literals = list(map(self._kinds.get, kinds))
        sums = map(add, accumulate(map(len, lines)), count(1))  # with the ends of the lines
        found = _Lines(list(compress(sums, literals)), [one for one in literals if one])
        self._is_dense = len(found.ends) * 2 * DENSE > len(data)
        # a literal with digits may stand in one line of a kind and not in another
        numbered = self._finder.numbered(data)
        return [found, _Single([one[2] for one in numbered], [one[0] for one in numbered])]

    def _learn(self, kinds: list[bytes], lines: list[bytes]) -> bool:
        """Search one line of each new kind; return whether lines are alike."""
        pairs = zip(kinds, lines, strict=True)
        new = {kind: line for kind, line in pairs if kind not in self._kinds}
        if 2 * len(new) > len(lines):
            return False
        if len(self._kinds) + len(new) > MOST_KINDS:
            self._kinds.clear()
            new = dict(zip(kinds, lines, strict=True))
        ends = list(accumulate(len(line) + 1 for line in new.values()))
        found: dict[int, set[int]] = {}
        for number, begin, _ in self._finder.places(b"\n".join([*new.values(), b""])):
            found.setdefault(bisect_right(ends, begin), set()).add(number)
        for index, kind in enumerate(new):
            self._kinds[kind] = frozenset(found.get(index, ()))
        return True
