"""How sizes, times and lists of files are said to people; and how far a transfer is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safelaunch.runtime.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def some(paths: Sequence[str], most: int = 5) -> str:
    """Return a few of the paths, and how many more there are."""
    shown = ", ".join(map(printable, paths[:most]))
    return shown if len(paths) <= most else f"{shown} and {len(paths) - most:,} more"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a transfer is. `rate` in bytes a second; `eta` in seconds, None until it is known."""

    what: str
    done: int
    total: int
    rate: float
    eta: float | None


class Meter:
    """Tells of a transfer's progress, at most ten times a second."""

    _PAUSE = 0.1
    _WINDOW = 5.0  # seconds over which the rate is taken

    def __init__(self, what: str, total: int, tell: Callable[[Progress], None] | None) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self._tell = tell
        self._told = 0.0
        self._marks = [(time.monotonic(), 0)]

    def skip(self, count: int) -> None:
        """Count bytes that need not travel: they are no rate."""
        self.done += count
        self._marks = [(time.monotonic(), self.done)]

    def add(self, count: int) -> None:
        """Count bytes that have travelled."""
        self.done += count
        if self._tell is None:
            return
        now = time.monotonic()
        if now - self._told >= self._PAUSE or self.done >= self.total:
            self._told = now
            self._tell(self._state(now))

    def _state(self, now: float) -> Progress:
        self._marks.append((now, self.done))
        while len(self._marks) > 2 and now - self._marks[1][0] > self._WINDOW:  # noqa: PLR2004
            self._marks.pop(0)
        begun, first = self._marks[0]
        rate = (self.done - first) / (now - begun) if now > begun else 0.0
        left = max(0, self.total - self.done)
        return Progress(self.what, self.done, self.total, rate, left / rate if rate else None)
