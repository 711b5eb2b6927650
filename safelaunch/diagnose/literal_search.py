"""Finds literal texts in blocks of lines; a log full of errors is searched by kinds of lines.

A search yields every single hit, which is slow where each line has some. Such logs repeat their
lines: there each kind of line (equal but for digits) is searched only once.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate, compress, count
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import ahocorasick_rs as ac

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.runtime.signatures.table import SignatureTable

DENSE_BYTES_PER_HIT = 200  # a block with fewer is dense
MAX_KINDS = 50_000  # of lines in memory
RETRY_BLOCKS = 64  # searched hit by hit after a block whose lines do not repeat
_DIGITS = b"0123456789"
NO_LITERALS: frozenset[int] = frozenset()


class _SingleHits(NamedTuple):
    """Hits in the order of their end offsets, one literal for each."""

    ends: list[int]
    literals: list[int]

    def within(self, start: int, end: int) -> frozenset[int]:
        """Return the literals of the hits from one index to another."""
        return frozenset(self.literals[start:end])


class _LineHits(NamedTuple):
    """One line for each hit, with all its literals."""

    ends: list[int]
    literals: list[frozenset[int]]

    def within(self, start: int, end: int) -> frozenset[int]:
        """Return the literals of the hits from one index to another."""
        return NO_LITERALS.union(*set(self.literals[start:end]))


Hits: TypeAlias = _SingleHits | _LineHits


class BlockSearch:
    """Finds the literals in the blocks of one log."""

    def __init__(self, finder: LiteralFinder) -> None:
        self._finder = finder
        self._kinds: dict[bytes, frozenset[int]] = {}
        self._is_dense = False
        self._retry_in = 0  # blocks, until searching by kinds is tried again

    def hits(self, data: bytes) -> Sequence[Hits]:
        """Return the literals in whole lines: one or several lists, each in order."""
        if self._is_dense:
            return self._search_kinds(data)
        matches = self._finder.matches(data)
        self._retry_in -= 1
        self._is_dense = self._retry_in < 0 and len(matches) * DENSE_BYTES_PER_HIT > len(data)
        return [_single_hits(matches)] if matches else []

    def _search_kinds(self, data: bytes) -> Sequence[Hits]:
        lines = data.split(b"\n")
        kinds = data.translate(None, _DIGITS).split(b"\n")
        literals = list(map(self._kinds.get, kinds))
        if None in literals:
            if not self._learn(kinds, lines):
                self._is_dense, self._retry_in = False, RETRY_BLOCKS
                return self.hits(data)
            literals = list(map(self._kinds.get, kinds))
        sums = map(add, accumulate(map(len, lines)), count(1))  # the ends of the lines
        line_hits = _LineHits(list(compress(sums, literals)), list(filter(None, literals)))
        self._is_dense = len(line_hits.ends) * 2 * DENSE_BYTES_PER_HIT > len(data)
        # a literal with digits may be in one line of a kind and not in another
        return [line_hits, _single_hits(self._finder.matches_with_digits(data))]

    def _learn(self, kinds: list[bytes], lines: list[bytes]) -> bool:
        """Search one line of each new kind; return whether lines repeat."""
        pairs = zip(kinds, lines, strict=True)
        new = {kind: line for kind, line in pairs if kind not in self._kinds}
        if 2 * len(new) > len(lines):
            return False
        if len(self._kinds) + len(new) > MAX_KINDS:
            self._kinds.clear()
            new = dict(zip(kinds, lines, strict=True))
        ends = list(accumulate(len(line) + 1 for line in new.values()))
        literals_by_line: dict[int, set[int]] = {}
        for number, start, _ in self._finder.matches(b"\n".join([*new.values(), b""])):
            literals_by_line.setdefault(bisect_right(ends, start), set()).add(number)
        for index, kind in enumerate(new):
            self._kinds[kind] = frozenset(literals_by_line.get(index, ()))
        return True


def _single_hits(matches: list[tuple[int, int, int]]) -> _SingleHits:
    return _SingleHits([end for _, _, end in matches], [number for number, _, _ in matches])


# of all logs read as one excerpt; then only logs up to MIN_WHOLE_LOG_BYTES
WHOLE_LOGS_BYTES = 16 << 20
# texts of errors that no signature matches
GENERAL = (
    *("Traceback (most recent", "Error: ", "error: ", "Error\n", "Exception", "Failure: "),
    *("Timeout: ", "Fatal", "FATAL"),
)


class LiteralFinder:
    """Finds the literals of a table in bytes and in text."""

    def __init__(self, signatures: SignatureTable) -> None:
        self.table = signatures
        self.texts = tuple(sorted({*signatures.by_literal, *GENERAL}))
        self.signature_literals = signatures.by_literal
        self.whole_log_budget = WHOLE_LOGS_BYTES  # of logs that may still be read as one excerpt
        self._dfa: Any = None  # takes 0.1 s to build, then reads six times as fast
        self._nfa: Any = None
        self._digit_dfa: Any = None
        self._indexes: list[int] = []

    def matches(self, data: bytes) -> list[tuple[int, int, int]]:
        """Return (number, begin, end) of all literals in bytes, in the order of their ends."""
        if self._dfa is None:
            self._dfa = _build_automaton(self.texts, "DFA")
        return _find_matches(self._dfa, data)

    def matches_with_digits(self, data: bytes) -> list[tuple[int, int, int]]:
        """Return (number, start, end) of the literals that have a digit."""
        if self._digit_dfa is None:
            texts = enumerate(self.texts)
            self._indexes = [i for i, text in texts if any(c.isdigit() for c in text)]
            self._digit_dfa = _build_automaton(tuple(self.texts[i] for i in self._indexes), "DFA")
        matches = _find_matches(self._digit_dfa, data)
        return [(self._indexes[number], start, end) for number, start, end in matches]

    def __call__(self, lines: list[str]) -> Iterator[tuple[int, str]]:
        """Yield (line index, literal) of all signature literals in lines, overlapping ones too."""
        parts = [line.encode("utf-8", "replace") for line in lines]
        ends = list(accumulate(len(part) + 1 for part in parts))
        if self._nfa is None:
            self._nfa = self._dfa or _build_automaton(self.texts, "ContiguousNFA")
        for number, start, _ in _find_matches(self._nfa, b"\n".join(parts)):
            literal = self.texts[number]
            if literal in self.signature_literals:
                yield bisect_right(ends, start), literal


@lru_cache(maxsize=4)  # a process that diagnoses twice builds them once
def _build_automaton(texts: tuple[str, ...], kind: str) -> Any:
    words = [text.encode() for text in texts]
    return ac.BytesAhoCorasick(words, implementation=getattr(ac.Implementation, kind))


def _find_matches(automaton: Any, data: bytes) -> list[tuple[int, int, int]]:
    matches: list[tuple[int, int, int]] = automaton.find_matches_as_indexes(data, overlapping=True)
    return matches
