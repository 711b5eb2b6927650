"""Does the same on several hosts in parallel."""

# ruff: noqa: PLC0415 - futures: for several hosts only

from __future__ import annotations

import collections
import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = TypeVar("Item")
Result = TypeVar("Result")
MAX_THREADS = 16  # one for each host


def together(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    end: Callable[[], object] | None = None,
) -> list[Result]:
    """Return the result of `work` for each item, in order; the first error once all have ended.

    After Ctrl-C no more work is started. `end` has to end what is under way, which is then waited
    for; without it that ends by itself, at the latest with the connections of the command.
    """
    if len(items) == 1:
        return [work(items[0])]  # in this thread: Ctrl-C and questions as ever
    from concurrent.futures import Future, wait

    results: list[Future[Result]] = [Future() for _ in items]
    left = collections.deque(zip(items, results, strict=True))

    def work_through() -> None:
        with contextlib.suppress(IndexError):  # none is left
            while True:
                item, result = left.popleft()
                try:
                    result.set_result(work(item))
                except BaseException as e:  # noqa: BLE001 - raised again by the caller
                    result.set_exception(e)

    # daemons, not an executor's: a host that does not answer must not hold up the end after Ctrl-C
    threads = [threading.Thread(target=work_through, daemon=True) for _ in items[:MAX_THREADS]]
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
