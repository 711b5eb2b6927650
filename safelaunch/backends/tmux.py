"""tmux: one server per run, with no configuration, so that a user's own tmux can do it no harm.

A session on a shared server would get that server's old environment (tmux 3041), and a user's
`destroy-unattached` would kill the job.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
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
    except StartError as e:
        return e.message
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
    Raises StartError where there is no such place.
    """
    folder = f"/tmp/safelaunch-{uid}"  # noqa: S108 - checked below
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        private = _is_private(folder, uid)
    except OSError:
        private = False
    if not private:  # somebody else's, or no /tmp: a fresh one is ours alone
        folder = _fresh()
    path = f"{folder}/{run_id[-20:]}"
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        os.rmdir(folder)  # only a fresh one can be that long
        raise StartError(f"the path of tmux's socket is too long ({path})")
    return path


def _is_private(folder: str, uid: int) -> bool:
    info = os.lstat(folder)
    return stat.S_ISDIR(info.st_mode) and info.st_uid == uid and not info.st_mode & 0o077


def _fresh() -> str:
    try:
        return tempfile.mkdtemp(prefix="sl-")
    except OSError as e:
        raise StartError(f"no folder for tmux's socket ({e.strerror})") from e


def start(machine: Transport, supervised: Supervised, socket: str) -> None:
    """Start the supervisor in a detached session on a server of its own. Raises StartError."""
    session = ["new-session", "-d", "-s", supervised.run_id, "-c", supervised.cwd]
    session += ["-x", "200", "-y", "50"]
    result = machine.run(
        ["tmux", "-u", "-f", "/dev/null", "-S", socket, *session, *supervised.argv], timeout=20
    )
    if result.code != 0:
        raise StartError(f"tmux did not start: {result.last_line or result.code}")


def is_served(path: str) -> bool:
    """Whether a tmux server answers at a socket: a server that was killed leaves the file."""
    import socket  # noqa: PLC0415 - only `attach` asks

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(path)
        except OSError:
            return False
    return True


def attach_command(socket: str) -> str:
    """Return the plain tmux command that shows the run."""
    return f"tmux -S {shlex.quote(socket)} attach"
