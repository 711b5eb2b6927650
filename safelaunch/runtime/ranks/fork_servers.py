"""The processes that have imported modules for later attempts, as the supervisor sees them.

ranks/safelaunch_fork_server.py is such a process: a child of the supervisor that belongs to the run
and to no attempt.
"""

from __future__ import annotations

import os
import signal

from safelaunch.runtime import processes

FOLDER = "fork-server"  # in the folder of a node: a socket for each, named by its pid


def pids(node_dir: str) -> list[int]:
    """Return the processes that listen for a next attempt."""
    try:
        names = os.listdir(os.path.join(node_dir, FOLDER))
    except OSError:
        return []
    return [int(name) for name in names if name.isdigit()]


def discard(node_dir: str, pid: int) -> bool:
    """Forget a process that has ended; False where it is none that listens."""
    try:
        os.unlink(os.path.join(node_dir, FOLDER, str(pid)))
    except OSError:
        return False
    return True


def end(node_dir: str) -> list[int]:
    """Kill all that are children of this process; return their pids, for `waitpid`."""
    folder = os.path.join(node_dir, FOLDER)
    if not os.path.isdir(folder):
        return []
    import shutil  # noqa: PLC0415 - few runs keep their imports; each supervisor loads this module

    children = processes.descendants(os.getpid())
    ended = [pid for pid in pids(node_dir) if pid in children]
    for pid in ended:
        processes.send(pid, children[pid], signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    return ended
