"""Work that runs ahead of the link that takes its results."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

T = TypeVar("T")


def ahead(source: Iterator[T], most: int) -> Generator[T, None, None]:
    """Yield what a source yields, which runs in a thread, at most so many items ahead.

    Reading, hashing and compressing leave other threads the interpreter: they need no time beside
    a link that is slower. What the source raises is raised here.
    """
    made: queue.Queue[T | BaseException | None] = queue.Queue(most)
    ended = threading.Event()

    def put(item: T | BaseException | None) -> bool:
        while not ended.is_set():
            with contextlib.suppress(queue.Full):
                made.put(item, timeout=0.1)
                return True
        return False

    def work() -> None:
        try:
            if all(put(item) for item in source):
                put(None)
        except BaseException as e:  # noqa: BLE001 - raised where it is wanted
            put(e)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (item := made.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        ended.set()
        thread.join()
