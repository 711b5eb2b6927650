"""Locks of open files between the processes of this machine; a process's end releases them."""

# ruff: noqa: PLC0415 - msvcrt exists on Windows only, fcntl elsewhere only

from __future__ import annotations

import sys


def try_lock(fd: int) -> bool:
    """Lock an open file until it is closed; return False where another process holds the lock.

    On a file system without locks every caller gets one.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except (OSError, ImportError):
        pass  # the file system has no locks
    return True


def is_locked(fd: int) -> bool:
    """Whether another process holds the lock of an open file; the questions of two do not clash."""
    if sys.platform == "win32":
        return not try_lock(fd)
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        pass  # the file system has no locks
    return False
