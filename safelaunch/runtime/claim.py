"""The claim of a node: a lock file that decides whether its start happens or is cancelled.

Beside it lies `supervisor.lock`. The supervisor holds it, and the process that copies the output:
once it is free, both have ended. That shows where their pids are not visible, in another pid
namespace of the same machine: in a container that was restarted, or in one beside it.
"""

# ruff: noqa: PLC0415 - fcntl is missing on Windows, where a client imports this module

from __future__ import annotations

import os

from safelaunch.runtime import json_files, processes


def acquire(node_dir: str, life: int = 0) -> bool:
    """Take the right to start this node, or to cancel its start; False where it is taken.

    An engine may start a node again: each of these lives has a claim of its own.
    """
    pid = os.getpid()
    try:
        fd = os.open(
            _path(node_dir, life),
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
            0o600,
        )
    except OSError:
        return False
    try:
        os.write(fd, b"%d %d\n" % (pid, processes.start_time(pid) or 0))
    except OSError:
        pass  # a full disk: the file itself is the claim
    finally:
        os.close(fd)
    return True


def _path(node_dir: str, life: int) -> str:
    return os.path.join(node_dir, f"claim.{life}" if life else "claim")


def _newest(node_dir: str) -> str:
    """Return the path of the claim of the newest life."""
    life = 0
    while os.path.lexists(_path(node_dir, life + 1)):
        life += 1
    return _path(node_dir, life)


LOCK = "supervisor.lock"


def hold_lock(node_dir: str) -> int:
    """Take the supervisor's lock; return its descriptor, -1 where the file system has none."""
    import fcntl

    path = os.path.join(node_dir, LOCK)
    fd = -1
    try:
        # renamed once it is locked: a free one would mean that the supervisor has ended
        fd = os.open(path + ".new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(path + ".new", path)
    except OSError:  # a full disk, too
        json_files.remove(path + ".new")
        if fd >= 0:
            os.close(fd)
        return -1
    return fd


def is_lock_free(node_dir: str) -> bool:
    """Whether the supervisor had a lock, and has ended, as has the copier of its output."""
    import fcntl

    try:
        with open(os.path.join(node_dir, LOCK), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def holder(node_dir: str) -> tuple[int, int] | None:
    """Return (pid, start time) of the claimant, None where the file is missing or empty."""
    try:
        with open(_newest(node_dir), "rb") as file:
            pid, start = file.read().split()
        return int(pid), int(start)
    except (OSError, ValueError):
        return None


def is_abandoned(node_dir: str) -> bool:
    """Whether the claimant has ended."""
    claimant = holder(node_dir)
    return claimant is not None and processes.start_time(claimant[0]) != claimant[1]
