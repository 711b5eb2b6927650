"""Produce items in a thread ahead of their consumer."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

T = TypeVar("T")


def prefetch(source: Iterator[T], limit: int) -> Generator[T, None, None]:
    """Yield the items of a source that runs in a thread, at most `limit` items ahead.

    Reading, hashing and compressing release the interpreter lock, so they cost no time beside a
    slower network. Exceptions of the source are raised here.
    """
    results: queue.Queue[T | BaseException | None] = queue.Queue(limit)
    ended = threading.Event()

    def put(item: T | BaseException | None) -> bool:
        while not ended.is_set():
            with contextlib.suppress(queue.Full):
                results.put(item, timeout=0.1)
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
        while (item := results.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        ended.set()
        thread.join()
