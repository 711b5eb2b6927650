"""The claim of a node: a lock file that decides whether its start happens or is cancelled."""

from __future__ import annotations

import os

from safelaunch.runtime import processes


def acquire(node_dir: str) -> bool:
    """Take the right to start this node, or to cancel its start; False where it is taken."""
    pid = os.getpid()
    try:
        fd = os.open(
            os.path.join(node_dir, "claim"),
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


def holder(node_dir: str) -> tuple[int, int] | None:
    """Return (pid, start time) of the claimant, None where the file is missing or empty."""
    try:
        with open(os.path.join(node_dir, "claim"), "rb") as file:
            pid, start = file.read().split()
        return int(pid), int(start)
    except (OSError, ValueError):
        return None


def is_abandoned(node_dir: str) -> bool:
    """Whether the claimant has ended."""
    claimant = holder(node_dir)
    return claimant is not None and processes.start_time(claimant[0]) != claimant[1]
