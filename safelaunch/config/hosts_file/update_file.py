"""Lets one command at a time change a hosts file: who reads it first, and writes later, loses."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from typing import TYPE_CHECKING

from safelaunch.config.yaml_io.reader import read_text
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = 10.0  # seconds to wait for another command: a change takes milliseconds
_PAUSE = 0.02  # seconds


def change(path: str, work: Callable[[str], str]) -> None:
    """Put in a hosts file what `work` makes of its text, with nobody else changing it meanwhile.

    A file that is missing has no text. Raises ConfigError, also where it cannot be written.
    """
    try:
        with alone(path):
            before = read_text(path, path) if os.path.lexists(path) else ""
            after = work(before)
            if after != before:
                write(path, after)
    except OSError as e:
        raise ConfigError(f"cannot be written: {e.strerror}", where=path) from e


@contextlib.contextmanager
def alone(path: str) -> Iterator[None]:
    """Keep others from changing a hosts file. Raises ConfigError after `LIMIT`, and OSError.

    Where the file system knows no locks, nobody is kept from it.
    """
    real = os.path.realpath(path)
    folder = os.path.dirname(real)
    os.makedirs(folder, 0o700, exist_ok=True)
    # the folder, not the file: that is replaced, and may not be there yet. Windows opens none.
    lock = f"{real}.lock" if os.name == "nt" else folder
    fd = os.open(lock, os.O_RDWR | os.O_CREAT if os.name == "nt" else os.O_RDONLY)
    try:
        until = time.monotonic() + LIMIT
        while not _taken(fd):
            if time.monotonic() > until:
                raise ConfigError(
                    f"another safelaunch has been changing it for {LIMIT:g} s",
                    where=path,
                    hint="let that one end, then try again",
                )
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(fd)
        if lock != folder:
            with contextlib.suppress(OSError):  # Windows removes no file that another has open
                os.unlink(lock)


def _taken(fd: int) -> bool:
    """Take the lock of an open file; False where another holds it. It ends when that is closed."""
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - Windows alone has it

            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415 - Windows has none

            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except (OSError, ImportError):
        return True  # no locks here: then nobody has one
    return True


def write(path: str, text: str) -> None:
    """Put a text in a hosts file's place at once; a new one is only for its owner. Raises OSError.

    A link stays one: it may lead into a folder of dotfiles.
    """
    real = os.path.realpath(path)
    part = f"{real}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(real), 0o700, exist_ok=True)
        mode = stat.S_IMODE(os.stat(real).st_mode) if os.path.exists(real) else 0o600
        opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, mode)
        os.replace(part, real)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
