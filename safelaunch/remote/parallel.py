"""Does the same on several hosts in parallel: together, or with each result as it comes."""

# ruff: noqa: PLC0415 - futures: for several hosts only

from __future__ import annotations

import collections
import contextlib
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Item = TypeVar("Item")
Result = TypeVar("Result")
MAX_THREADS = 64  # one for each host, which it waits for most of the time


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
    from concurrent.futures import wait

    threads = _Threads(work, items)
    try:
        threads.start()
        wait(threads.results)
    except BaseException:
        threads.cancel()
        if end is not None:
            end()
            threads.join()
        raise
    return [result.result() for result in threads.results]


def as_completed(
    work: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with the result of `work`, as they come. Raises the first error."""
    if len(items) == 1:
        yield items[0], work(items[0])
        return
    from concurrent import futures

    threads = _Threads(work, items)
    item_of = dict(zip(threads.results, items, strict=True))
    try:
        threads.start()
        for result in futures.as_completed(threads.results):
            yield item_of[result], result.result()
    finally:
        threads.cancel()


class _Threads(Generic[Item, Result]):
    """Threads that do the same for several items.

    Daemons, not an executor's: a host that does not answer must not hold up the end after Ctrl-C.
    """

    def __init__(self, work: Callable[[Item], Result], items: Sequence[Item]) -> None:
        from concurrent.futures import Future

        self.results: list[Future[Result]] = [Future() for _ in items]
        self._work = work
        self._left = collections.deque(zip(items, self.results, strict=True))
        count = min(len(items), MAX_THREADS)
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]

    def start(self) -> None:
        """Start them."""
        for thread in self._threads:
            thread.start()

    def cancel(self) -> None:
        """Start no more work."""
        self._left.clear()

    def join(self) -> None:
        """Wait for those that were started."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _run(self) -> None:
        with contextlib.suppress(IndexError):  # none is left
            while True:
                item, result = self._left.popleft()
                try:
                    result.set_result(self._work(item))
                except BaseException as e:  # noqa: BLE001 - raised again by the caller
                    result.set_exception(e)
