"""Extracts excerpts around possible errors from logs of any size.

Raw bytes are searched for the literal texts of all signatures at once (Aho-Corasick); only the
lines around a hit are kept. Of too many hits the first and the last are kept, and always those with
a text that is rare in the log: an error printed at each step must not hide the one that ends it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.diagnose.literal_search import NO_LITERALS, BlockSearch, LiteralFinder
from safelaunch.diagnose.logs import byte_streams
from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE
from safelaunch.runtime.signatures import activity, match

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.diagnose.literal_search import Hits
    from safelaunch.diagnose.logs.sources import LineBlock, LogReader

WHOLE_LOG_BYTES = 2 << 20  # a log up to this size is read as one excerpt
MIN_WHOLE_LOG_BYTES = 64 << 10
PAGE_BYTES = 16 << 10  # about; an excerpt has pages with hits, the one before and the one after
MAX_PAGES = 32  # in one excerpt
MAX_PAGES_WHEN_FULL = 4  # in one excerpt, once only rare texts are still added
MAX_FIRST_BYTES, MAX_LAST_BYTES = 1 << 20, 2 << 20  # excerpts of each log
MAX_RARE_BYTES = 4 << 20  # beyond MAX_FIRST_BYTES, for excerpts with a rare text
MAX_RARE_PAGES = 2  # a text on more pages than this is not rare
MAX_LINE_BYTES = 16 << 10  # of a line in an excerpt: far more than patterns need
SAMPLE_BYTES = 4 << 10  # at the end of each block, searched for progress
_CODE_SAMPLE_BYTES = 16 << 10  # of a block, from which its common escape codes are taken
_COMMON_CODES = 8
# an escape code ends at its line: an unclosed one would swallow the lines below
_ESCAPE_SEQUENCE = re.compile(ESCAPE_SEQUENCE.encode())


class Excerpt(NamedTuple):
    """Consecutive lines of a log: the number of the first (from 1), and their text."""

    number: int
    text: bytes


class Scan:
    """Reads the excerpts of one log, and `activity` at the ends of the blocks between them.

    The first page is kept too: it shows versions and GPUs.
    """

    def __init__(self, reader: LogReader, finder: LiteralFinder) -> None:
        self.reader = reader
        self.finder = finder
        self.activity = activity.Activity([])
        self._head: list[LineBlock] | None = []
        self._waiting: deque[LineBlock] = deque()  # the last ones, of which all hits count
        self._search_state = BlockSearch(finder)
        self._excerpts = _ExcerptStore()
        self._open_excerpt = _OpenExcerpt(self._excerpts)

    def run(self) -> list[Excerpt]:
        """Return the excerpts of the log in order; Ctrl-C ends the reading early.

        Then `reader.is_interrupted` is true, and the excerpts so far are returned.
        """
        try:
            self._read(self.reader.blocks())
        except KeyboardInterrupt:
            self._open_excerpt.close()
            self._read(self.reader.remaining())
            self.reader.interrupt()
        if self._head is not None:
            text = b"".join(block.data for block in self._head)
            self.finder.whole_log_budget -= len(text)
            return [Excerpt(1, _shorten_lines(text))] if text else []
        while self._waiting:
            self._search(self._waiting.popleft(), is_middle=False)
        self._open_excerpt.close()
        return self._excerpts.excerpts()

    def _read(self, blocks: Iterable[LineBlock]) -> None:
        whole = min(WHOLE_LOG_BYTES, max(self.finder.whole_log_budget, MIN_WHOLE_LOG_BYTES))
        for block in blocks:
            if self._head is None:
                self._wait(block)
                continue
            self._head.append(block)
            if sum(len(head_block.data) for head_block in self._head) > whole:
                head, self._head = self._head, None
                for head_block in head:
                    self._wait(head_block)

    def _wait(self, block: LineBlock) -> None:
        """Search a block as soon as it cannot be among the last ones of the log."""
        self._waiting.append(block)
        limit = MAX_LAST_BYTES + byte_streams.BLOCK_BYTES
        while sum(len(waiting.data) for waiting in self._waiting) > limit:
            self._search(self._waiting.popleft(), is_middle=True)

    def _search(self, raw: LineBlock, *, is_middle: bool) -> None:
        block = raw._replace(data=_strip_escapes(raw.data)) if b"\x1b" in raw.data else raw
        self._sample(block)
        hits = self._search_state.hits(block.data, is_middle=is_middle)
        if self._open_excerpt.is_idle and block.number > 1 and hits.is_empty(block.data):
            size = len(block.data)
            start = block.data.rfind(b"\n", 0, max(0, size - PAGE_BYTES)) + 1
            self._open_excerpt.previous_page = _Page(block, start, size, NO_LITERALS)
            return
        for page in _pages(block, hits):
            self._open_excerpt.add(page)

    def _sample(self, block: LineBlock) -> None:
        lines = match.clean(block.data[-SAMPLE_BYTES:].decode("utf-8", "replace"))
        first = block.number + block.lines - len(lines)
        self.activity.update(activity.Activity(lines), range(first + 1, first + len(lines) + 1))


def _strip_escapes(data: bytes) -> bytes:
    """Return a block without escape codes: a colour may change within a word.

    A program uses few different ones, and replacing a text is ten times as fast as a pattern.
    """
    codes = Counter(_ESCAPE_SEQUENCE.findall(data[:_CODE_SAMPLE_BYTES]))
    for code, _ in codes.most_common(_COMMON_CODES):
        data = data.replace(code, b"")
    return _ESCAPE_SEQUENCE.sub(b"", data) if b"\x1b" in data else data


class _Page(NamedTuple):
    """Whole lines of a block, and the literals in them."""

    block: LineBlock
    start: int
    end: int
    literals: frozenset[int]

    @property
    def is_first(self) -> bool:
        return self.start == 0 and self.block.number == 1

    @property
    def text(self) -> bytes:
        return _shorten_lines(self.block.data[self.start : self.end])


def _pages(block: LineBlock, hits: Hits) -> Iterator[_Page]:
    data, start, first = block.data, 0, 0
    while start < len(data):
        end = data.find(b"\n", min(start + PAGE_BYTES, len(data) - 1)) + 1 or len(data)
        last = bisect_right(hits.ends, end, first)
        literals = hits.within(data, slice(start, end), slice(first, last))
        yield _Page(block, start, end, literals)
        start, first = end, last


class _OpenExcerpt:
    """The excerpt to which pages are added until one without a hit comes."""

    def __init__(self, store: _ExcerptStore) -> None:
        self.previous_page: _Page | None = None  # kept if the next page has a hit
        self._store = store
        self._number = 0
        self._texts: list[bytes] = []
        self._is_rare = False
        self._line_position: tuple[LineBlock | None, int, int] = (None, 0, 0)
        self._has_hit = False  # of the last page: then the excerpt also has the next one

    @property
    def is_idle(self) -> bool:
        return not self._texts and not self._has_hit

    def add(self, page: _Page) -> None:
        if not page.literals and not self._has_hit and not page.is_first:
            self.close()
            self.previous_page = page
            return
        if not self._texts:
            above, self.previous_page = self.previous_page, None
            self._number = self._number_of(above or page)
            self._texts = [] if above is None else [above.text]
        self._texts.append(page.text)
        self._is_rare |= self._store.count(page.literals)
        self._has_hit = bool(page.literals)
        if len(self._texts) >= (MAX_PAGES_WHEN_FULL if self._store.is_full else MAX_PAGES):
            self.close()

    def _number_of(self, page: _Page) -> int:
        """Return the line number of a page, counted on from the page before."""
        block, start, number = self._line_position
        if block is not page.block or start > page.start:
            start, number = 0, page.block.number
        number += page.block.data.count(b"\n", start, page.start)
        self._line_position = (page.block, page.start, number)
        return number

    def close(self) -> None:
        if self._texts:
            excerpt = Excerpt(self._number, b"".join(self._texts))
            self._store.add(excerpt, is_rare=self._is_rare)
        self._texts, self._is_rare = [], False
        self.previous_page = None


class _ExcerptStore:
    """The excerpts kept of a log: the first, the last, and those with a rare text."""

    def __init__(self) -> None:
        self._first: list[Excerpt] = []
        self._last: deque[Excerpt] = deque()
        self._sizes = [0, 0]
        self._page_counts: Counter[int] = Counter()

    @property
    def is_full(self) -> bool:
        return self._sizes[0] >= MAX_FIRST_BYTES

    def count(self, literals: frozenset[int]) -> bool:
        """Count a page with literals; return whether one of them is rare so far."""
        is_rare = any(self._page_counts[number] < MAX_RARE_PAGES for number in literals)
        self._page_counts.update(literals)
        return is_rare

    def add(self, excerpt: Excerpt, *, is_rare: bool) -> None:
        size = len(excerpt.text)
        if self._sizes[0] < (MAX_FIRST_BYTES + MAX_RARE_BYTES if is_rare else MAX_FIRST_BYTES):
            self._first.append(excerpt)
            self._sizes[0] += size
            return
        self._last.append(excerpt)
        self._sizes[1] += size
        while self._sizes[1] > MAX_LAST_BYTES and len(self._last) > 1:
            self._sizes[1] -= len(self._last.popleft().text)

    def excerpts(self) -> list[Excerpt]:
        """Return them in order; what was cut small, so that its start can be dropped, is joined.

        A signature costs its time in each excerpt anew, and a traceback may go on in the next.
        """
        joined: list[Excerpt] = []
        for excerpt in sorted([*self._first, *self._last], key=lambda excerpt: excerpt.number):
            number, text = joined[-1] if joined else (0, b"")
            is_next = number + text.count(b"\n") == excerpt.number
            if is_next and len(text) + len(excerpt.text) <= MAX_PAGES * PAGE_BYTES:
                joined[-1] = Excerpt(number, text + excerpt.text)
            else:
                joined.append(excerpt)
        return joined


def _shorten_lines(text: bytes) -> bytes:
    """Return lines with the middle of overlong ones removed: one line may have a MiB."""
    if len(text) <= MAX_LINE_BYTES or max(map(len, text.split(b"\n"))) <= MAX_LINE_BYTES:
        return text
    half = MAX_LINE_BYTES // 2
    return b"\n".join(
        line if len(line) <= MAX_LINE_BYTES else line[:half] + b" ... " + line[-half:]
        for line in text.split(b"\n")
    )
