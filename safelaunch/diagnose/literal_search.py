"""Where literals stand in a block of lines; a log full of alarms is searched by kinds of lines.

A search yields each hit for itself, which takes long where each line has some. Such logs say the
same again and again: there each kind of line is searched once, digits apart.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, compress, count
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.runtime.signatures.table import Table

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


ALL_WHOLE = 16 << 20  # bytes of all logs that are read so; then only those up to LEAST_WHOLE


# what stands round an error that no signature knows
GENERAL = (
    *("Traceback (most recent", "Error: ", "error: ", "Error\n", "Exception", "Failure: "),
    *("Timeout: ", "Fatal", "FATAL"),
)


class Finder:
    """Finds the literals of a table in bytes and in text."""

    def __init__(self, signatures: Table) -> None:
        self.table = signatures
        self.texts = sorted({*signatures.by_literal, *GENERAL})
        self.known = signatures.by_literal
        self.room = ALL_WHOLE  # bytes of logs that may still be read as one excerpt
        self._fast: Any = None  # takes 0.1 s to build, then reads six times as fast
        self._small: Any = None
        self._digits: Any = None
        self._indexes: list[int] = []

    def places(self, data: bytes) -> list[tuple[int, int, int]]:
        """Return (number, begin, end) of all literals in bytes, in the order of their ends."""
        if self._fast is None:
            self._fast = _built(self.texts, "DFA")
        return _places(self._fast, data)

    def numbered(self, data: bytes) -> list[tuple[int, int, int]]:
        """Return, as `places`, those with a digit in them."""
        if self._digits is None:
            texts = enumerate(self.texts)
            self._indexes = [i for i, text in texts if any(c.isdigit() for c in text)]
            self._digits = _built([self.texts[i] for i in self._indexes], "DFA")
        found = _places(self._digits, data)
        return [(self._indexes[number], begin, end) for number, begin, end in found]

    def __call__(self, lines: list[str]) -> Iterator[tuple[int, str]]:
        """Yield (index, literal) of all literals of signatures in lines, also within others."""
        parts = [line.encode("utf-8", "replace") for line in lines]
        ends = list(accumulate(len(part) + 1 for part in parts))
        if self._small is None:
            self._small = self._fast or _built(self.texts, "ContiguousNFA")
        for number, start, _ in _places(self._small, b"\n".join(parts)):
            literal = self.texts[number]
            if literal in self.known:
                yield bisect_right(ends, start), literal


def _built(texts: list[str], kind: str) -> Any:
    import ahocorasick_rs as ac  # noqa: PLC0415 - only diagnose needs it

    words = [text.encode() for text in texts]
    return ac.BytesAhoCorasick(words, implementation=getattr(ac.Implementation, kind))


def _places(automaton: Any, data: bytes) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = automaton.find_matches_as_indexes(data, overlapping=True)
    return found
