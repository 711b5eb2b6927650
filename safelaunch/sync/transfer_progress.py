"""The progress of a transfer, and short lists of paths for messages."""
# ruff: noqa: PLR2004 - the first two marks bound the time over which the rate is taken

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safelaunch.runtime.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def join_some(paths: Sequence[str], limit: int = 5) -> str:
    """Return a few of the paths, and how many more there are."""
    shown = ", ".join(map(printable, paths[:limit]))
    return shown if len(paths) <= limit else f"{shown} and {len(paths) - limit:,} more"


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """The progress of a transfer. `rate` in bytes per second; `eta` in seconds, None if unknown."""

    activity: str
    done: int
    total: int
    rate: float
    eta: float | None


class Meter:
    """Counts the bytes of a transfer, and reports its progress at most ten times a second."""

    _PAUSE = 0.1
    _WINDOW = 5.0  # seconds over which the rate is taken

    def __init__(
        self, activity: str, total: int, report: Callable[[TransferProgress], None] | None
    ) -> None:
        self.activity = activity
        self.total = total
        self.done = 0
        self._report = report
        self._last_report = 0.0
        self._marks = [(time.monotonic(), 0)]

    def skip(self, count: int) -> None:
        """Count bytes that need not be sent; they do not count for the rate."""
        self.done += count
        self._marks = [(time.monotonic(), self.done)]

    def add(self, count: int) -> None:
        """Count bytes that were transferred."""
        self.done += count
        if self._report is None:
            return
        now = time.monotonic()
        if now - self._last_report >= self._PAUSE or self.done >= self.total:
            self._last_report = now
            self._marks.append((now, self.done))
            while len(self._marks) > 2 and now - self._marks[1][0] > self._WINDOW:
                self._marks.pop(0)
            start, start_bytes = self._marks[0]
            rate = (self.done - start_bytes) / (now - start) if now > start else 0.0
            eta = max(0, self.total - self.done) / rate if rate else None
            self._report(TransferProgress(self.activity, self.done, self.total, rate, eta))
