"""The lock of a file with an engine's answers: one process asks, the others read what it writes."""

from __future__ import annotations

import os
import time

POLL = 0.05  # seconds between two attempts


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
