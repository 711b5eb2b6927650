"""Selects the lines of a log that are parsed: all of them, or in a flood those with a keyword.

To parse a line costs a hundred times what it costs to search it for keywords. So there are two
budgets. When the first is spent, only the lines with a keyword are parsed, and the others wait;
when both are spent the whole chunk waits. The newest waiting lines of each rank are kept, and
parsed as soon as the budget allows, at the latest at the end: the last step is never lost.
"""

from __future__ import annotations

# bytes: 128 KiB at once (50 ms of parsing) and 32 KiB each second: some 400 lines a second, more
# than any training prints, for about 1 % of a core
BURST, RATE = 1 << 17, 1 << 15
# bytes and bytes a second that are searched for keywords: they cost as much time again
SEARCH_BURST, SEARCH_RATE = 1 << 22, 1 << 21
MAX_LINE = 1 << 13  # bytes of a line that are parsed: verl's has 3 KB
MAX_WAITING = 1 << 15  # bytes that wait, for each rank
MIN_LAST = 1 << 13  # bytes of each rank that are parsed at the end, where there are many ranks
MAX_LAST = 1 << 19  # bytes of all ranks that are parsed at the end: a fifth of a second
MAX_RANKS = 64  # ranks with a buffer of their own
MAX_HITS = 64  # lines of a chunk that one keyword may select
# each line with a step, a loss or a checkpoint has one of these (in lower case)
KEYWORDS = tuple(
    b"step,loss,epoch,iter,it/s,s/it,batch,update,episode,reward,checkpoint,recover info".split(
        b","
    )
)


class RankBuffer:
    """The waiting lines of one rank's log."""

    def __init__(self) -> None:
        self.partial = b""  # a line that has no end yet
        # pieces without the keyword lines, which were parsed
        self.without_keywords: list[bytes] = []
        self.waiting: list[bytes] = []  # later pieces, not searched yet

    def whole_lines(self, data: bytes) -> bytes:
        """Return the whole lines of new bytes; a partial last line is held back."""
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        lines = self.partial + data[:cut] if cut else b""
        self.partial = (data[cut:] if cut else self.partial + data)[-MAX_LINE:]
        return lines

    def newest(self, limit: int) -> bytes:
        """Return the newest waiting bytes, from the start of a line."""
        data = b"".join(self.without_keywords + self.waiting)
        return data if len(data) <= limit else _from_line_start(data[-limit:])

    def trim(self) -> None:
        """Drop the oldest pieces as a whole: to cut them would cost more in a flood."""
        left = sum(map(len, self.without_keywords)) + sum(map(len, self.waiting))
        for pieces in (self.without_keywords, self.waiting):
            while pieces and left - len(pieces[0]) >= MAX_WAITING:
                left -= len(pieces.pop(0))

    def clear(self) -> None:
        """Drop the waiting lines: they have been parsed."""
        self.without_keywords, self.waiting = [], []


class FloodFilter:
    """Selects what to parse of a merged log. Each chunk starts with a rank: `[3] `."""

    def __init__(self) -> None:
        self._credit = float(BURST)
        self._search_credit = float(SEARCH_BURST)
        self._refilled_at: float | None = None
        self._buffers: dict[bytes, RankBuffer] = {b"": RankBuffer()}

    def select(self, data: bytes, now: float) -> list[bytes]:
        """Return pieces of whole lines, those of a rank in the order in which they were written."""
        self._refill(now)
        buffer = self._buffer(data)
        lines = buffer.whole_lines(data)
        waits = bool(buffer.without_keywords or buffer.waiting)
        # keep a reserve: waiting lines must not delay the next step
        if len(lines) + (MAX_WAITING + MAX_LINE if waits else 0) <= self._credit:
            return self._everything(buffer, lines)
        if lines:
            buffer.waiting.append(lines)
        pieces = self._keyword_lines(buffer)
        buffer.trim()
        return pieces

    def _everything(self, buffer: RankBuffer, lines: bytes) -> list[bytes]:
        lines = buffer.newest(MAX_WAITING) + lines
        buffer.clear()
        # a bar without an end is complete; another line may be cut within a number
        bar = buffer.partial if buffer.partial[-1:] == b"]" else b""
        self._credit -= len(lines) + len(bar)
        return [lines, bar]

    def last(self) -> list[bytes]:
        """Return the waiting lines, and partial ones, at the end of the log."""
        limit = max(MIN_LAST, MAX_LAST // len(self._buffers))
        pieces = [buffer.newest(limit) + buffer.partial for buffer in self._buffers.values()]
        self._buffers = {b"": RankBuffer()}
        return [piece for piece in pieces if piece]

    def _refill(self, now: float) -> None:
        elapsed = max(0.0, now - self._refilled_at) if self._refilled_at is not None else 0.0
        self._refilled_at = now
        self._credit = min(float(BURST), self._credit + elapsed * RATE)
        self._search_credit = min(float(SEARCH_BURST), self._search_credit + elapsed * SEARCH_RATE)

    def _buffer(self, data: bytes) -> RankBuffer:
        end = data.find(b"] ", 0, 12) if data[:1] == b"[" else -1
        unprefixed = self._buffers[b""]
        # a log that is not merged has no ranks: `[3] ` may be the second half of a line
        if end < 0 or unprefixed.partial or not data[1:end].isdigit():
            return unprefixed
        key = data[:end]
        if key not in self._buffers and len(self._buffers) < MAX_RANKS:
            self._buffers[key] = RankBuffer()
        return self._buffers.get(key, unprefixed)

    def _keyword_lines(self, buffer: RankBuffer) -> list[bytes]:
        """Return the newest waiting lines with a keyword, as far as the budget allows."""
        size = sum(map(len, buffer.waiting))
        if not size or size > self._search_credit or self._credit <= 0:
            return []
        self._search_credit -= size
        lines, others = split_by_keyword(b"".join(buffer.waiting))
        first = len(lines)
        while first > 0 and min(len(lines[first - 1]), MAX_LINE) <= self._credit:
            first -= 1
            self._credit -= min(len(lines[first]), MAX_LINE)
        if lines and first == len(lines):
            return []  # the budget does not allow even the last one
        buffer.without_keywords.append(others)
        buffer.waiting = []
        return [b"".join(lines[first:])] if lines else []


def split_by_keyword(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the lines with a keyword, and the others."""
    low = data.lower()
    spans: dict[int, int] = {}
    for word in KEYWORDS:
        end = len(low)
        for _ in range(MAX_HITS):
            at = low.rfind(word, 0, end)
            if at < 0:
                break
            start, stop = _line_around(low, at)
            spans[start] = stop
            end = start
    lines, others, before = [], [], 0
    for start in sorted(spans):
        lines.append(data[start : spans[start]])
        others.append(data[before:start])
        before = spans[start]
    return lines, b"".join([*others, data[before:]])


def _line_around(data: bytes, at: int) -> tuple[int, int]:
    start = data.rfind(b"\n", 0, at) + 1
    start = max(start, data.rfind(b"\r", start, at) + 1)
    stop = data.find(b"\n", at) + 1 or len(data)
    return start, data.find(b"\r", at, stop) + 1 or stop


def _from_line_start(piece: bytes) -> bytes:
    cuts = [at for at in (piece.find(b"\n"), piece.find(b"\r")) if at >= 0]
    return piece[min(cuts) + 1 :] if cuts else b""
