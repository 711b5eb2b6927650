"""Finds literal texts in blocks of lines; what stands in each line is left out of the search.

A search yields every single hit, which is slow where each line has some. The texts of such lines
say nothing more in the middle of a log: there only the others are searched for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import ahocorasick_rs as ac

from safelaunch.runtime.signatures.match import REPEATS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.runtime.signatures.table import SignatureTable

COMMON_BYTES_PER_HIT = 4 << 10  # a text that stands in a block more often is common in that log
MAX_SEARCHES = 8  # prepared for one log, each without more common texts: one takes 0.1 s
# of one literal, at the start and at the end of an excerpt: more than the lines that are searched
MAX_HITS = 4 * REPEATS
NO_LITERALS: frozenset[int] = frozenset()


class Hits(NamedTuple):
    """Hits in the order of their end offsets, one literal for each."""

    ends: list[int]
    literals: list[int]

    def within(self, start: int, end: int) -> frozenset[int]:
        """Return the literals of the hits from one index to another."""
        return frozenset(self.literals[start:end])


class BlockSearch:
    """Finds the literals in the blocks of one log."""

    def __init__(self, finder: LiteralFinder) -> None:
        self._finder = finder
        self._common: frozenset[int] = NO_LITERALS
        self._searches = 0

    def hits(self, data: bytes, *, is_middle: bool) -> Hits:
        """Return the literals in whole lines; in the middle of a log without the common ones."""
        matches = self._finder.matches(data, self._common if is_middle else NO_LITERALS)
        if is_middle and self._searches < MAX_SEARCHES:
            counts = Counter([number for number, _, _ in matches])
            limit = len(data) // COMMON_BYTES_PER_HIT
            if common := {number for number, count in counts.items() if count > limit}:
                self._common |= common
                self._searches += 1
        return Hits([end for _, _, end in matches], [number for number, _, _ in matches])


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
        self._nfa: Any = None

    def matches(
        self, data: bytes, without: frozenset[int] = NO_LITERALS
    ) -> list[tuple[int, int, int]]:
        """Return (number, begin, end) of literals in bytes, in the order of their ends."""
        numbers, automaton = _searched_literals(self.texts, without)
        matches = _find_matches(automaton, data)
        return [(numbers[n], start, end) for n, start, end in matches] if without else matches

    def __call__(self, lines: list[str]) -> Iterator[tuple[int, str]]:
        """Yield (line index, literal) of all signature literals in lines, overlapping ones too."""
        parts = [line.encode("utf-8", "replace") for line in lines]
        ends = list(accumulate(len(part) + 1 for part in parts))
        if self._nfa is None:
            self._nfa = _build_automaton(self.texts, "ContiguousNFA")
        starts: dict[int, list[int]] = {}
        for number, start, _ in _find_matches(self._nfa, b"\n".join(parts)):
            starts.setdefault(number, []).append(start)
        for number, positions in starts.items():
            literal = self.texts[number]
            if literal in self.signature_literals:
                few = len(positions) <= 2 * MAX_HITS
                for start in positions if few else positions[:MAX_HITS] + positions[-MAX_HITS:]:
                    yield bisect_right(ends, start), literal


@lru_cache(maxsize=MAX_SEARCHES)
def _searched_literals(texts: tuple[str, ...], without: frozenset[int]) -> tuple[list[int], Any]:
    """Return the numbers of the texts that are searched for, and their automaton."""
    numbers = [number for number in range(len(texts)) if number not in without]
    # takes 0.1 s to build, then reads six times as fast as what is built at once
    return numbers, _build_automaton(tuple(texts[number] for number in numbers), "DFA")


@lru_cache(maxsize=4)  # a process that diagnoses twice builds them once
def _build_automaton(texts: tuple[str, ...], kind: str) -> Any:
    words = [text.encode() for text in texts]
    return ac.BytesAhoCorasick(words, implementation=getattr(ac.Implementation, kind))


def _find_matches(automaton: Any, data: bytes) -> list[tuple[int, int, int]]:
    matches: list[tuple[int, int, int]] = automaton.find_matches_as_indexes(data, overlapping=True)
    return matches
