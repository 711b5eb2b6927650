"""Finds the parts of logs of any size that are worth reading: excerpts round what is frightening.

Raw bytes are searched for the literal texts of all signatures at once (Aho-Corasick); only the
lines round a hit are kept. Of too many the first and the last are kept, and always those with a
text that is rare in the log: an alarm that comes with each step must not hide the one that ends it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.diagnose.literal_search import Finder, Hitting
from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE
from safelaunch.runtime.signatures import match

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from safelaunch.diagnose.literal_search import Hits
    from safelaunch.diagnose.log_sources import Block, Reader

WHOLE = 2 << 20  # bytes: a log up to this size is read as one excerpt
LEAST_WHOLE = 64 << 10
PAGE = 16 << 10  # bytes, about: a page with a hit is kept, with the one before and the one after
PAGES = 32  # of one excerpt at most
FEW_PAGES = 4  # as PAGES, where so much is kept already that only what is rare is added
FIRST, LAST = 2 << 20, 4 << 20  # bytes of excerpts that are kept of each log
RARE = 4 << 20  # bytes, more than FIRST, for those that hold a text not seen before
SEEN = 2  # pages with a text, after which it is not rare any more
WIDEST = 16 << 10  # bytes of a line that are kept: far more than is looked at
SAMPLE = 4 << 10  # bytes at the end of each block in which progress is looked for
_CODE_SAMPLE = 16 << 10  # bytes of a block in which its common codes are looked for
_COMMON_CODES = 8
# no code goes over the end of a line: what is not closed would take lines with it
_ESCAPE_SEQUENCE = re.compile(ESCAPE_SEQUENCE.encode())


class Excerpt:
    """Lines of a log that stand together: the number of the first (from 1), and their text."""

    __slots__ = ("number", "text")

    def __init__(self, number: int, text: bytes) -> None:
        self.number = number
        self.text = text


class Scan:
    """What is worth reading in one log. `went_on` is the last line that shows progress, if known.

    The first page is kept too: it tells versions and cards.
    """

    def __init__(self, reader: Reader, finder: Finder) -> None:
        self.reader = reader
        self.finder = finder
        self.went_on = 0
        self._head: list[Block] | None = []
        self._hitting = Hitting(finder)
        self._kept = _Kept()
        self._open = _Open(self._kept)

    def run(self) -> list[Excerpt]:
        """Return the excerpts of the log in their order; Ctrl-C ends the reading, not the reader's.

        After it `reader.is_interrupted` holds, and what was read so far is told.
        """
        try:
            self._read(self.reader.blocks())
        except KeyboardInterrupt:
            self._open.close()
            self._read(self.reader.rest())
            self.reader.interrupt()
        if self._head is not None:
            text = b"".join(block.data for block in self._head)
            self.finder.room -= len(text)
            return [Excerpt(1, _narrow(text))] if text else []
        self._open.close()
        return self._kept.excerpts()

    def _read(self, blocks: Iterable[Block]) -> None:
        whole = min(WHOLE, max(self.finder.room, LEAST_WHOLE))
        for block in blocks:
            if self._head is None:
                self._search(block)
                continue
            self._head.append(block)
            if sum(len(one.data) for one in self._head) > whole:
                head, self._head = self._head, None
                for one in head:
                    self._search(one)

    def _search(self, raw: Block) -> None:
        block = raw._replace(data=_plain(raw.data)) if b"\x1b" in raw.data else raw
        self._sample(block)
        found = self._hitting.hits(block.data)
        if not found and self._open.is_idle and block.number > 1:
            begin = _begin_of_last(block.data)
            self._open.behind = _Page(block, begin, len(block.data), _NONE)
            return
        for page in _pages(block, found):
            self._open.add(page)

    def _sample(self, block: Block) -> None:
        lines = match.clean(block.data[-SAMPLE:].decode("utf-8", "replace"))
        shown = match.last_progress(lines)
        if shown:
            last = block.number + block.lines
            self.went_on = last - (len(lines) - shown)


def _plain(data: bytes) -> bytes:
    """Return a block without control codes: a colour may stand within a word.

    A program has few different ones, and to replace a text is ten times as fast as an expression.
    """
    for code, _ in Counter(_ESCAPE_SEQUENCE.findall(data[:_CODE_SAMPLE])).most_common(
        _COMMON_CODES
    ):
        data = data.replace(code, b"")
    return _ESCAPE_SEQUENCE.sub(b"", data) if b"\x1b" in data else data


class _Page(NamedTuple):
    """Whole lines of a block, and which literals stand in them."""

    block: Block
    begin: int
    end: int
    literals: frozenset[int]

    @property
    def is_first(self) -> bool:
        return self.begin == 0 and self.block.number == 1

    @property
    def text(self) -> bytes:
        return _narrow(self.block.data[self.begin : self.end])


_NONE: frozenset[int] = frozenset()


def _pages(block: Block, found: Sequence[Hits]) -> Iterator[_Page]:
    data, begin = block.data, 0
    indexes = [0] * len(found)
    while begin < len(data):
        end = _end_of_page(data, begin)
        literals = _NONE
        for which, hits in enumerate(found):
            index = bisect_right(hits.ends, end, indexes[which])
            literals |= hits.within(indexes[which], index)
            indexes[which] = index
        yield _Page(block, begin, end, literals)
        begin = end


def _end_of_page(data: bytes, begin: int) -> int:
    return data.find(b"\n", min(begin + PAGE, len(data) - 1)) + 1 or len(data)


def _begin_of_last(data: bytes) -> int:
    """Return where the last page of a block begins: at a line."""
    return data.rfind(b"\n", 0, max(0, len(data) - PAGE)) + 1


class _Open:
    """The excerpt to which pages are added, until one comes that is not worth it."""

    def __init__(self, kept: _Kept) -> None:
        self.behind: _Page | None = None  # a page that may come to stand above a hit
        self._kept = kept
        self._number = 0
        self._texts: list[bytes] = []
        self._is_rare = False
        self._counted: tuple[Block | None, int, int] = (None, 0, 0)
        self._goes_on = False  # the last page has a hit: the one below it is kept too

    @property
    def is_idle(self) -> bool:
        return not self._texts and not self._goes_on

    def add(self, page: _Page) -> None:
        if not page.literals and not self._goes_on and not page.is_first:
            self.close()
            self.behind = page
            return
        if not self._texts:
            self._begin(page)
        self._texts.append(page.text)
        self._is_rare |= self._kept.count(page.literals)
        self._goes_on = bool(page.literals)
        if len(self._texts) >= (FEW_PAGES if self._kept.is_full else PAGES):
            self.close()

    def _begin(self, page: _Page) -> None:
        above, self.behind = self.behind, None
        self._number = self._number_of(above or page)
        self._texts = [] if above is None else [above.text]

    def _number_of(self, page: _Page) -> int:
        """Return the number of a page's first line; they are counted from the page before."""
        block, begin, number = self._counted
        if block is not page.block or begin > page.begin:
            begin, number = 0, page.block.number
        number += page.block.data.count(b"\n", begin, page.begin)
        self._counted = (page.block, page.begin, number)
        return number

    def close(self) -> None:
        if self._texts:
            excerpt = Excerpt(self._number, b"".join(self._texts))
            self._kept.add(excerpt, is_rare=self._is_rare)
        self._texts, self._is_rare = [], False
        self.behind = None


class _Kept:
    """The excerpts that are kept of a log: the first, the last, and those with what is rare."""

    def __init__(self) -> None:
        self._first: list[Excerpt] = []
        self._last: deque[Excerpt] = deque()
        self._sizes = [0, 0]
        self._seen: Counter[int] = Counter()

    @property
    def is_full(self) -> bool:
        return self._sizes[0] >= FIRST

    def count(self, literals: frozenset[int]) -> bool:
        """Count a page with literals; return whether one of them is rare so far."""
        is_rare = any(self._seen[number] < SEEN for number in literals)
        self._seen.update(literals)
        return is_rare

    def add(self, excerpt: Excerpt, *, is_rare: bool) -> None:
        size = len(excerpt.text)
        if self._sizes[0] < (FIRST + RARE if is_rare else FIRST):
            self._first.append(excerpt)
            self._sizes[0] += size
            return
        self._last.append(excerpt)
        self._sizes[1] += size
        while self._sizes[1] > LAST and len(self._last) > 1:
            self._sizes[1] -= len(self._last.popleft().text)

    def excerpts(self) -> list[Excerpt]:
        return sorted([*self._first, *self._last], key=lambda one: one.number)


def _narrow(text: bytes) -> bytes:
    """Return lines without the middle of the longest: a page of one line may have a MiB."""
    if len(text) <= WIDEST or max(map(len, text.split(b"\n"))) <= WIDEST:
        return text
    half = WIDEST // 2
    return b"\n".join(
        line if len(line) <= WIDEST else line[:half] + b" ... " + line[-half:]
        for line in text.split(b"\n")
    )
