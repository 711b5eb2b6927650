"""Doing the same on several hosts, beside each other."""

from __future__ import annotations

import collections
import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Given = TypeVar("Given")
Made = TypeVar("Made")
AT_ONCE = 16  # hosts


def together(
    work: Callable[[Given], Made],
    several: Sequence[Given],
    end: Callable[[], object] | None = None,
) -> list[Made]:
    """Return what `work` makes of each, in order; the first error once all have ended.

    After Ctrl-C nothing more is begun. `end` has to end what is under way, which is then waited
    for; without it that ends by itself, at the latest with the connections of the command.
    """
    if len(several) == 1:
        return [work(several[0])]  # in this thread: Ctrl-C and questions as ever
    from concurrent.futures import Future, wait  # noqa: PLC0415 - for several hosts only

    results: list[Future[Made]] = [Future() for _ in several]
    left = collections.deque(zip(several, results, strict=True))

    def work_through() -> None:
        with contextlib.suppress(IndexError):  # none is left
            while True:
                one, result = left.popleft()
                try:
                    result.set_result(work(one))
                except BaseException as e:  # noqa: BLE001 - raised again by who asks for it
                    result.set_exception(e)

    # daemons, not an executor's: a host that does not answer must not hold up the end after Ctrl-C
    threads = [threading.Thread(target=work_through, daemon=True) for _ in several[:AT_ONCE]]
    try:
        for thread in threads:
            thread.start()
        wait(results)
    except BaseException:
        left.clear()
        if end is not None:
            end()
            for thread in threads:
                if thread.ident is not None:  # it was started
                    thread.join()
        raise
    return [result.result() for result in results]
