"""Doing the same on several hosts, beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Given = TypeVar("Given")
Made = TypeVar("Made")
AT_ONCE = 16  # hosts


def together(work: Callable[[Given], Made], several: Sequence[Given]) -> list[Made]:
    """Return what `work` makes of each, in order; the first error once all have ended."""
    if len(several) == 1:
        return [work(several[0])]  # in this thread: Ctrl-C and questions as ever
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - for several hosts only

    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = [pool.submit(work, one) for one in several]
    return [job.result() for job in jobs]
