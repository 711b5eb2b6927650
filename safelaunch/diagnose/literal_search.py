"""Finds literal texts in blocks of lines; what stands in each line is left out of the search.

A search yields every single hit, which is slow where each line has some. The texts of such lines
say nothing more in the middle of a log: there only the others are searched for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import lru_cache
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import ahocorasick_rs as ac

from safelaunch.runtime.signatures.match import REPEATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.runtime.signatures.table import SignatureTable

COMMON_BYTES_PER_HIT = 4 << 10  # a text that stands in a block more often is common in that log
MAX_SEARCHES = 8  # prepared for one log, each without more common texts: one takes 0.1 s
# of one literal, at the start and at the end of an excerpt: more than the lines that are searched
MAX_HITS = 4 * REPEATS
_EDGE_LINES = MAX_HITS + REPEATS
# kinds of automatons: the fast one reads twice as fast, and takes 0.06 s longer to build
SLOW, FAST = "ContiguousNFA", "DFA"
SLOW_BYTES = 8 << 20
_FIRST_BYTES = 4 << 10  # of a block, which tell most that repeat nothing
NO_LITERALS: frozenset[int] = frozenset()


class Hits(NamedTuple):
    """Hits in the order of their end offsets, one literal for each, and literals not looked for."""

    ends: list[int]
    literals: list[int]
    common: Mapping[int, bytes] = MappingProxyType({})  # their texts; a page may hold them

    def is_empty(self, data: bytes) -> bool:
        """Whether the block that was searched holds no literal."""
        return not self.ends and not any(text in data for text in self.common.values())

    def within(self, data: bytes, lines: slice, hits: slice) -> frozenset[int]:
        """Return the literals of some hits, and the common ones in whole lines of the block."""
        start, end = lines.start, lines.stop
        common = (n for n, text in self.common.items() if data.find(text, start, end) >= 0)
        return frozenset(self.literals[hits]).union(common)


class BlockSearch:
    """Finds the literals in the blocks of one log."""

    def __init__(self, finder: LiteralFinder) -> None:
        self._finder = finder
        self._common: frozenset[int] = NO_LITERALS
        self._searches = 0
        self._empty = b""  # the last block without a literal that is not common

    def hits(self, data: bytes, *, is_middle: bool) -> Hits:
        """Return the literals in whole lines; in the middle of a log without the common ones."""
        common = {} if is_middle else {n: self._finder.texts[n].encode() for n in self._common}
        if self._common and self._is_known(data):
            return Hits([], [], common)
        matches = self._finder.matches(data, self._common)
        if self._common and not matches:
            self._empty = data
        if is_middle and self._searches < MAX_SEARCHES:
            counts = Counter([number for number, _, _ in matches])
            limit = len(data) // COMMON_BYTES_PER_HIT
            if new := {number for number, count in counts.items() if count > limit}:
                self._common |= new
                self._searches += 1
                self._empty = b""
        return Hits([end for _, _, end in matches], [number for number, _, _ in matches], common)

    def _is_known(self, data: bytes) -> bool:
        """Whether a block repeats the last empty one, up to a rest that is empty too.

        A program that prints one line without end is the one that fills a disk.
        """
        if not data.startswith(self._empty[:_FIRST_BYTES]) or not self._empty:
            return False
        if len(data) <= len(self._empty):
            return self._empty.startswith(data)
        rest = data.rfind(b"\n", 0, len(self._empty)) + 1
        is_same = data.startswith(self._empty)
        return is_same and not self._finder.matches(data[rest:], self._common)


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
        self._common: frozenset[int] = NO_LITERALS  # that the log being read has in most lines

    def matches(
        self, data: bytes, without: frozenset[int] = NO_LITERALS
    ) -> list[tuple[int, int, int]]:
        """Return (number, begin, end) of literals in bytes, in the order of their ends."""
        self._common = without or self._common
        numbers, search = _searched_literals(self.texts, without)
        matches = search.matches(data)
        return [(numbers[n], start, end) for n, start, end in matches] if without else matches

    def __call__(self, lines: list[str]) -> Iterator[tuple[int, str]]:
        """Yield (line index, literal) of all signature literals in lines, overlapping ones too."""
        parts = [line.encode("utf-8", "replace") for line in lines]
        ends = list(accumulate(len(part) + 1 for part in parts))
        for number, positions in self._positions(b"\n".join(parts), ends).items():
            literal = self.texts[number]
            if literal in self.signature_literals:
                few = len(positions) <= 2 * MAX_HITS
                for start in positions if few else positions[:MAX_HITS] + positions[-MAX_HITS:]:
                    yield bisect_right(ends, start), literal

    def _positions(self, text: bytes, ends: list[int]) -> dict[int, list[int]]:
        """Return where the literals begin; of common ones only what stands at both edges counts.

        `ends` are those of the lines.
        """
        head: dict[int, list[int]] = {}
        if self._common and len(ends) > 2 * _EDGE_LINES:
            tail: dict[int, list[int]] = {}
            below, above = ends[_EDGE_LINES - 1], ends[-_EDGE_LINES - 1]
            self._find(text[:below], 0, head)
            self._find(text[above:], above, tail)
            if all(len(part.get(n, ())) > MAX_HITS for n in self._common for part in (head, tail)):
                for number, start, _ in self.matches(text[below:above], self._common):
                    head.setdefault(number, []).append(below + start)
                for number, positions in tail.items():
                    head.setdefault(number, []).extend(positions)
                return head
            head = {}
        self._find(text, 0, head)
        return head

    def _find(self, text: bytes, offset: int, starts: dict[int, list[int]]) -> None:
        """Add where the literals begin in a part of a text."""
        for number, start, _ in _find_matches(_build_automaton(self.texts, SLOW), text):
            starts.setdefault(number, []).append(offset + start)


class _LiteralSearch:
    """A search for texts: it begins at once, and is made fast where there is much to search."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._texts = texts
        self._automaton = _build_automaton(texts, SLOW)
        self._size = 0  # of what was searched

    def matches(self, data: bytes) -> list[tuple[int, int, int]]:
        """Return (number, begin, end) of the texts in bytes, in the order of their ends."""
        if self._size < SLOW_BYTES <= self._size + len(data):
            self._automaton = _build_automaton(self._texts, FAST)
        self._size += len(data)
        return _find_matches(self._automaton, data)


@lru_cache(maxsize=MAX_SEARCHES)
def _searched_literals(
    texts: tuple[str, ...], without: frozenset[int]
) -> tuple[list[int], _LiteralSearch]:
    """Return the numbers of the texts that are searched for, and the search."""
    numbers = [number for number in range(len(texts)) if number not in without]
    return numbers, _LiteralSearch(tuple(texts[number] for number in numbers))


@lru_cache(maxsize=4)  # a process that diagnoses twice builds them once
def _build_automaton(texts: tuple[str, ...], kind: str) -> Any:
    words = [text.encode() for text in texts]
    return ac.BytesAhoCorasick(words, implementation=getattr(ac.Implementation, kind))


def _find_matches(automaton: Any, data: bytes) -> list[tuple[int, int, int]]:
    matches: list[tuple[int, int, int]] = automaton.find_matches_as_indexes(data, overlapping=True)
    return matches
