"""A file with an engine's answers: one process asks, the others read what it writes."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from safelaunch.runtime.records import Record

    Answers = TypeVar("Answers", bound=Record)

POLL = 0.05  # seconds between two attempts


def read_or_ask(
    kind: type[Answers],
    folder: str,
    patience: float,
    is_fresh: Callable[[Answers], bool],
    ask: Callable[[Answers], object],
) -> Answers:
    """Return the answers in a folder, asked for anew by `ask`, which changes them, if too old.

    Where another process asks for longer than `patience` s, those that are there.
    """
    answers = kind.read(folder) or kind()
    if is_fresh(answers):
        return answers
    lock = acquire(folder, kind.FILE, patience)
    try:
        answers = kind.read(folder) or kind()  # another may just have asked
        if lock is not None and not is_fresh(answers):
            ask(answers)
            _write(answers, folder)
    finally:
        if lock is not None and lock >= 0:
            os.close(lock)
    return answers


def _write(answers: Record, folder: str) -> None:
    try:
        answers.write(folder)
    except OSError:
        pass  # the next question asks again


def acquire(folder: str, name: str, patience: float) -> int | None:
    """Return the descriptor of a file's lock; -1 where there are none; None where it is not free.

    It waits `patience` s for it. Closing the descriptor releases the lock.
    """
    import fcntl  # noqa: PLC0415 - missing on Windows, where a client may import the runtime

    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, name + ".lock")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1  # a full or read-only disk must not hide the state of a job
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(fd)
                return None
            time.sleep(POLL)
        except OSError:
            return fd  # the file system has no locks
        else:
            return fd
