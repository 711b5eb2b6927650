"""tmux: one server per run, with no configuration, so that a user's own tmux can do it no harm.

A session on a shared server would get that server's old environment (tmux 3041), and a user's
`destroy-unattached` would kill the job.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from typing import TYPE_CHECKING

from safelaunch.errors import StartError

if TYPE_CHECKING:
    from safelaunch.backends import Supervised
    from safelaunch.transports import Transport

NAME = "tmux"
OLDEST = (2, 1)  # runs several words as they are; older ones join them into one shell line
LONGEST_SOCKET = 107  # sun_path is 108 bytes with its NUL (unix(7))


def why_not(machine: Transport) -> str | None:
    """Return why tmux cannot be used on this machine, or None if it can."""
    try:
        result = machine.run(["tmux", "-V"], timeout=10)
    except StartError:
        return "tmux is not installed"
    found = re.search(r"(\d+)\.(\d+)", result.out)
    if result.code != 0 or (found is None and "master" not in result.out):
        return f"`tmux -V` says: {result.last_line or result.code}"
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(str(n) for n in OLDEST)
        return f"{result.out.strip()} is too old ({oldest} or newer)"
    return None


def socket_path(run_id: str, uid: int) -> str:
    """Return a short path for the run's socket, in a folder that only this user can enter.

    /tmp, not XDG_RUNTIME_DIR: that one is removed when the last session of the user ends.
    """
    folder = f"/tmp/safelaunch-{uid}"  # noqa: S108 - checked below
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError:
        folder = tempfile.mkdtemp(prefix="sl-")
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != uid or stat.S_IMODE(info.st_mode) & 0o077:
        folder = tempfile.mkdtemp(prefix="sl-")  # somebody else's: a fresh one is ours alone
    path = f"{folder}/{run_id[-20:]}"
    if len(path.encode()) > LONGEST_SOCKET:
        raise StartError(
            f"the socket's path is too long: {path}", hint="set TMPDIR to a short path"
        )
    return path


def start(machine: Transport, supervised: Supervised, socket: str) -> None:
    """Start the supervisor in a detached session on a server of its own. Raises StartError."""
    result = machine.run(
        [
            "tmux",
            "-u",
            "-f",
            "/dev/null",
            "-S",
            socket,
            "new-session",
            "-d",
            "-s",
            session_name(supervised.run_id),
            "-x",
            "200",
            "-y",
            "50",
            *supervised.argv,
        ],
        env=supervised.env,
        timeout=20,
    )
    if result.code != 0:
        raise StartError(f"tmux did not start: {result.last_line or result.code}")


def session_name(run_id: str) -> str:
    """Return the session's name; run ids hold no `.` or `:`, which tmux would replace."""
    return run_id


def attach_command(socket: str) -> str:
    """Return the plain tmux command that shows the run."""
    return f"tmux -S {socket} attach"
