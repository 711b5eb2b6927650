"""Limits the work on a program by CPU time: on a loaded machine the same files are read."""

from __future__ import annotations

import time


class CpuBudget:
    """The CPU seconds that the current thread may still spend; without a number, any.

    `check` has no budget: it is bounded by the number and the length of the files.
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.thread_time() + seconds

    @property
    def is_spent(self) -> bool:
        """Whether the time is over."""
        return self._end is not None and time.thread_time() > self._end
