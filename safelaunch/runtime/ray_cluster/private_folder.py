"""The folder of Ray's files on one machine: short, private, and removed with its last attempt.

Whoever uses it holds a lock in it. One that nobody holds was left behind by a process that was
killed, and the next start removes it.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import shutil
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Unix sockets lie below: their paths may have 107 bytes, of which Ray takes 70
# (session_<date>_<time>_<microseconds>_<pid>/sockets/plasma_store, and a number)
LONGEST = 37
NAME = "slray-"
LOCK = "lock"


def path_of(environ: Mapping[str, str]) -> str:
    """Return the folder of an attempt, the same on all nodes; below RAY_TMPDIR where that is set.

    Raises ValueError.
    """
    base = environ.get("RAY_TMPDIR") or "/tmp"  # noqa: S108 - the folder in it is of mode 0700
    run = f"{environ.get('SAFELAUNCH_RUN_ID', os.getppid())}.{environ.get('SAFELAUNCH_ATTEMPT', 1)}"
    folder = os.path.join(base, NAME + hashlib.sha256(run.encode()).hexdigest()[:8])
    length = len(os.fsencode(folder))
    if length > LONGEST:
        raise ValueError(
            f"RAY_TMPDIR is too long: {folder} has {length} bytes, and Ray's sockets below it"
            f" allow {LONGEST}"
        )
    return folder


class RayFolder:
    """A folder that is there, and its lock. Raises OSError, ValueError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = -1
        remove_abandoned(os.path.dirname(path))
        while self.lock < 0:
            self._make()

    def _make(self) -> None:
        os.makedirs(self.path, 0o700, exist_ok=True)  # two nodes may be on one machine
        info = os.lstat(self.path)
        if info.st_uid != os.getuid() or not stat.S_ISDIR(info.st_mode) or info.st_mode & 0o077:
            raise ValueError(f"{self.path} is there already, and not for this user alone")
        name = os.path.join(self.path, LOCK)
        try:
            lock = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            return  # another start has just removed it
        fcntl.flock(lock, fcntl.LOCK_SH)
        if os.path.exists(name) and os.path.samestat(os.fstat(lock), os.stat(name)):
            self.lock = lock
        else:
            os.close(lock)

    def remove(self) -> None:
        """Remove the folder, whatever is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def remove_abandoned(base: str) -> None:
    """Remove this user's folders whose lock nobody holds."""
    for name in glob.glob(os.path.join(glob.escape(base), f"{NAME}*", LOCK)):
        try:
            if os.lstat(os.path.dirname(name)).st_uid != os.getuid():
                continue
            lock = os.open(name, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(os.path.dirname(name), ignore_errors=True)
        except OSError:
            pass  # in use
        finally:
            os.close(lock)
