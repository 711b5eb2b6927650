"""What of a log is worth reading: all of it, and in a flood the lines that may tell a step.

To read a line costs a hundred times what it costs to see that it tells nothing. So there are two
budgets. Out of the first, of a chunk only the lines with a telling word are read, and the rest
waits; out of both the whole chunk waits. Of what waits the newest is kept, for each rank, and read
as soon as that can be afforded, at the latest at the end: the last step is never lost.
"""

from __future__ import annotations

# 128 KiB at once (50 ms of reading) and 32 KiB each second: some 400 lines a second, more than any
# training needs to tell its steps, for about 1 % of a core
BURST, RATE = 1 << 17, 1 << 15
# and as much time for looking through what is not read
SIFT_BURST, SIFT_RATE = 1 << 22, 1 << 21
LONGEST = 1 << 13  # verl's line has 3 KB; a user's pattern is never given more than this either
KEPT = 1 << 15  # bytes that wait, for each rank
LEAST = 1 << 13  # of these at the end, where there are many ranks
MOST_LAST = 1 << 19  # bytes that are read at the end, of all ranks: a fifth of a second
MOST_ORIGINS = 64  # ranks that are told apart
MOST_HITS = 64  # lines of a chunk that one word may name
# each line that tells a step, a loss or a checkpoint has one of these (in lower case)
TELLING = (
    b"step",
    b"loss",
    b"epoch",
    b"iter",
    b"it/s",
    b"s/it",
    b"batch",
    b"update",
    b"episode",
    b"reward",
    b"checkpoint",
    b"recover info",
)


class Origin(object):
    """What waits of one rank's log."""

    def __init__(self) -> None:
        self.rest = b""  # a line that has no end yet
        self.sifted: list[bytes] = []  # what lines with a telling word were taken from
        self.waiting: list[bytes] = []  # what came after it, not looked at

    def whole(self, data: bytes) -> bytes:
        """Return the whole lines of what has come; what follows them waits for its end."""
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        lines = self.rest + data[:cut] if cut else b""
        self.rest = (data[cut:] if cut else self.rest + data)[-LONGEST:]
        return lines

    def kept(self, most: int) -> bytes:
        """Return the newest of what waits, from the start of a line."""
        data = b"".join(self.sifted + self.waiting)
        return data if len(data) <= most else _from_line_start(data[-most:])

    def trim(self) -> None:
        """Let the oldest go, in whole pieces: to cut them would cost a flood more."""
        left = sum(map(len, self.sifted)) + sum(map(len, self.waiting))
        for pieces in (self.sifted, self.waiting):
            while pieces and left - len(pieces[0]) >= KEPT:
                left -= len(pieces.pop(0))

    def clear(self) -> None:
        """Forget what waits: it has been read."""
        self.sifted, self.waiting = [], []


class Windows(object):
    """Cuts chunks of a merged log into what is read. Each chunk begins with its rank's `[3] `."""

    def __init__(self) -> None:
        self._credit = float(BURST)
        self._sift_credit = float(SIFT_BURST)
        self._at: float | None = None
        self._origins: dict[bytes, Origin] = {b"": Origin()}

    def cut(self, data: bytes, now: float) -> list[bytes]:
        """Return pieces of whole lines, those of a rank in the order in which they were written."""
        self._earn(now)
        origin = self._origin(data)
        lines = origin.whole(data)
        waits = bool(origin.sifted or origin.waiting)
        # a reserve stays: what has waited must not keep the next step from being seen
        if len(lines) + (KEPT + LONGEST if waits else 0) <= self._credit:
            return self._all(origin, lines)
        if lines:
            origin.waiting.append(lines)
        found = self._sifted(origin)
        origin.trim()
        return found

    def _all(self, origin: Origin, lines: bytes) -> list[bytes]:
        lines = origin.kept(KEPT) + lines
        origin.clear()
        # a bar stands so until its next state comes; another line may have been cut in a number
        bar = origin.rest if origin.rest[-1:] == b"]" else b""
        self._credit -= len(lines) + len(bar)
        return [lines, bar]

    def last(self) -> list[bytes]:
        """Return what still waits, also lines without an end: no more will come."""
        most = max(LEAST, MOST_LAST // len(self._origins))
        pieces = []
        for origin in self._origins.values():
            pieces.append(origin.kept(most) + origin.rest)
            origin.clear()
            origin.rest = b""
        return [piece for piece in pieces if piece]

    def _earn(self, now: float) -> None:
        elapsed = max(0.0, now - self._at) if self._at is not None else 0.0
        self._at = now
        self._credit = min(float(BURST), self._credit + elapsed * RATE)
        self._sift_credit = min(float(SIFT_BURST), self._sift_credit + elapsed * SIFT_RATE)

    def _origin(self, data: bytes) -> Origin:
        end = data.find(b"] ", 0, 12) if data[:1] == b"[" else -1
        bare = self._origins[b""]
        # a log that is not merged has no ranks: there, such a chunk may be the rest of a line
        if end < 0 or bare.rest or not data[1:end].isdigit():
            return bare
        key = data[:end]
        if key not in self._origins and len(self._origins) < MOST_ORIGINS:
            self._origins[key] = Origin()
        return self._origins.get(key, bare)

    def _sifted(self, origin: Origin) -> list[bytes]:
        """Return the newest lines of what waits that may tell a step, as far as can be afforded."""
        size = sum(map(len, origin.waiting))
        if not size or size > self._sift_credit or self._credit <= 0:
            return []
        self._sift_credit -= size
        lines, others = sift(b"".join(origin.waiting))
        first = len(lines)
        while first > 0 and min(len(lines[first - 1]), LONGEST) <= self._credit:
            first -= 1
            self._credit -= min(len(lines[first]), LONGEST)
        if lines and first == len(lines):
            return []  # not even the last one: later
        origin.sifted.append(others)
        origin.waiting = []
        return [b"".join(lines[first:])] if lines else []


def sift(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the lines with a telling word, and the others."""
    low = data.lower()
    spans: dict[int, int] = {}
    for word in TELLING:
        end = len(low)
        for _ in range(MOST_HITS):
            at = low.rfind(word, 0, end)
            if at < 0:
                break
            begin, stop = _line_around(low, at)
            spans[begin] = stop
            end = begin
    lines, others, before = [], [], 0
    for begin in sorted(spans):
        lines.append(data[begin : spans[begin]])
        others.append(data[before:begin])
        before = spans[begin]
    return lines, b"".join([*others, data[before:]])


def _line_around(data: bytes, at: int) -> tuple[int, int]:
    begin = data.rfind(b"\n", 0, at) + 1
    begin = max(begin, data.rfind(b"\r", begin, at) + 1)
    stop = data.find(b"\n", at) + 1 or len(data)
    return begin, data.find(b"\r", at, stop) + 1 or stop


def _from_line_start(piece: bytes) -> bytes:
    cuts = [at for at in (piece.find(b"\n"), piece.find(b"\r")) if at >= 0]
    return piece[min(cuts) + 1 :] if cuts else b""
