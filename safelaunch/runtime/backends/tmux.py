"""tmux: one server per run, without configuration: a user's own tmux must not affect it.

A session on a shared server would get that server's old environment (tmux 3041), and a user's
`destroy-unattached` would kill the job. The handle is the path of the server's socket.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat

from safelaunch.runtime import commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.runtime.commands import CommandResult

# ruff: noqa: PLC0415 - tempfile and socket: most starts need neither

NAME = "tmux"
PROBE: Sequence[str] = ("tmux", "-V")
OLDEST = (2, 1)  # runs several words as they are; older ones join them into one shell line
SOCKET_LIMIT = 107  # sun_path is 108 bytes with its NUL (unix(7))


def unusable(probe: CommandResult) -> str | None:
    """Return why tmux cannot be used, from what `tmux -V` printed; None if it can."""
    if probe.code == commands.NOT_RUN:
        return probe.err
    version = re.search(r"(\d+)\.(\d+)", probe.out)
    if probe.code != 0 or (version is None and "master" not in probe.out):
        return f"`tmux -V` says: {probe.last_line or probe.code}"
    if version is not None and (int(version.group(1)), int(version.group(2))) < OLDEST:
        return f"{probe.out.strip()} is too old ({OLDEST[0]}.{OLDEST[1]} or newer)"
    return None


def reserve(run_id: str) -> str:
    """Return a short path for a run's socket, in a folder that only this user can enter.

    /tmp, not XDG_RUNTIME_DIR: that one is removed when the last session of the user ends.
    Raises OSError where there is no such place.
    """
    folder = f"/tmp/safelaunch-{os.getuid()}"  # noqa: S108 - checked below
    try:
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        info = os.lstat(folder)
        private = info.st_uid == os.getuid() and not info.st_mode & 0o077
        private = private and stat.S_ISDIR(info.st_mode)
    except OSError:
        private = False
    if not private:  # another user's, or no /tmp: use a new one
        import tempfile

        folder = tempfile.mkdtemp(prefix="sl-")
    path = f"{folder}/{run_id[-20:]}"
    if len(os.fsencode(path)) > SOCKET_LIMIT:
        os.rmdir(folder)  # only a new one can be that long
        raise OSError(errno.ENAMETOOLONG, "the path of tmux's socket is too long", path)
    return path


def start(
    run_id: str, handle: str | None, argv: Sequence[str], *, cwd: str, environ: Mapping[str, str]
) -> Callable[[], bool]:
    """Start the supervisor in a detached session; return whether its server answers.

    Raises OSError.
    """
    server = ["tmux", "-u", "-f", "/dev/null", "-S", str(handle)]
    session = ["new-session", "-d", "-s", run_id, "-c", cwd, "-x", "200", "-y", "50"]
    result = commands.run([*server, *session, *argv], environ=environ, limit=20)
    if result.code != 0:
        raise OSError(errno.EIO, f"tmux did not start: {result.last_line or result.code}")
    return lambda: serves(handle)


def serves(handle: str | None) -> bool:
    """Whether a tmux server answers at a socket: a server that was killed leaves the file."""
    import socket

    if not handle:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(handle)
        except OSError:
            return False
    return True


def attach(handle: str | None) -> tuple[str, ...]:
    """Return the plain tmux command that shows the run."""
    return ("tmux", "-S", handle, "attach") if handle else ()


def clean_up(handle: str | None) -> None:
    """Remove the socket of a server that has ended: tmux leaves it behind."""
    folder = os.path.dirname(handle or "")
    with contextlib.suppress(OSError):  # none where it was never started
        os.unlink(handle or "")
    if os.path.basename(folder).startswith("sl-"):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # made for this one socket
