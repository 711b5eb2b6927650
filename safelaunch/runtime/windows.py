"""What of a log is worth reading: all of it, and in a flood the ends of the chunks."""

from __future__ import annotations

# 128 KiB at once (50 ms of reading) and 32 KiB each second: some 400 lines a second, more than any
# training needs to tell its steps, for about 1 % of a core
BURST, RATE = 1 << 17, 1 << 15
TAIL = 1 << 13  # what is read of the end of a chunk in a flood
LONGEST = 1 << 13  # verl's line has 3 KB; a user's pattern is never given more than this either


class Windows(object):
    """Cuts chunks of a merged log into what is read."""

    def __init__(self) -> None:
        self._credit = float(BURST)
        self._at: float | None = None
        self._rest = b""

    def cut(self, data: bytes, now: float) -> list[bytes]:
        """Return pieces of whole lines; in a flood two small ones, since steps only grow."""
        elapsed = now - self._at if self._at is not None else 0.0
        self._at = now
        self._credit = min(float(BURST), self._credit + max(0.0, elapsed) * RATE)
        if len(data) <= self._credit:
            self._credit -= len(data)
            return self._whole(data)
        self._rest = b""
        if self._credit < 2 * TAIL:
            return []
        self._credit -= 2 * TAIL
        return _ends(data)

    def _whole(self, data: bytes) -> list[bytes]:
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        whole = self._rest + data[:cut] if cut else b""
        self._rest = (data[cut:] if cut else self._rest + data)[-LONGEST:]
        # a bar stands so until its next state comes; another line may have been cut in a number
        return [whole, self._rest] if self._rest[-1:] == b"]" else [whole]


def _ends(data: bytes) -> list[bytes]:
    pieces = []
    # the merged log ends with the highest rank, and the lowest tells the steps
    at = max(data.rfind(b"\n[0] "), data.rfind(b"\r[0] "))
    if 0 <= at < len(data) - TAIL:
        pieces.append(_from_line_start(data[max(0, at - TAIL // 2) : at + TAIL // 2]))
    pieces.append(_from_line_start(data[-TAIL:]))
    return pieces


def _from_line_start(piece: bytes) -> bytes:
    cuts = [at for at in (piece.find(b"\n"), piece.find(b"\r")) if at >= 0]
    return piece[min(cuts) + 1 :] if cuts else b""
