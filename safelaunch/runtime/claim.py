"""The claim of a node: whether its start happens, or is called off, is decided once."""

from __future__ import annotations

import os

from safelaunch.runtime import processes


def acquire(node_dir: str) -> bool:
    """Take the right to start this node, or to call its start off; the first to ask has it."""
    who = "%d %d\n" % (os.getpid(), processes.start_time(os.getpid()) or 0)
    try:
        fd = os.open(
            os.path.join(node_dir, "claim"),
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
            0o600,
        )
    except OSError:
        return False
    try:
        os.write(fd, who.encode())
    except OSError:
        pass  # a full disk: the claim itself holds
    finally:
        os.close(fd)
    return True


def holder(node_dir: str) -> tuple[int, int] | None:
    """Return (pid, start time) of who has the claim, or None if nobody has said so."""
    try:
        with open(os.path.join(node_dir, "claim"), "rb") as file:
            pid, start = file.read().split()
        return int(pid), int(start)
    except (OSError, ValueError):
        return None


def is_abandoned(node_dir: str) -> bool:
    """Whether who took the claim is gone."""
    claimant = holder(node_dir)
    return claimant is not None and processes.start_time(claimant[0]) != claimant[1]
