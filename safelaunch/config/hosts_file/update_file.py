"""Lets one command at a time change a hosts file, so that no change is overwritten."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import TYPE_CHECKING

from safelaunch.config.yaml_io.reader import read_text
from safelaunch.errors import ConfigError
from safelaunch.file_lock import try_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = 10.0  # seconds to wait for another command: a change takes milliseconds
_PAUSE = 0.02  # seconds


def change(path: str, edit: Callable[[str], str]) -> None:
    """Write what `edit` returns for the text of a hosts file, under a lock.

    The text of a missing file is empty. Raises ConfigError, also where it cannot be written.
    """
    try:
        with lock(path):
            before = read_text(path, path) if os.path.lexists(path) else ""
            after = edit(before)
            if after != before:
                write(path, after)
    except OSError as e:
        raise ConfigError(f"cannot be written: {e.strerror}", where=path) from e


@contextlib.contextmanager
def lock(path: str) -> Iterator[None]:
    """Keep other commands from changing a hosts file. Raises ConfigError after `LIMIT`, OSError.

    Does nothing on a file system without locks.
    """
    real = os.path.realpath(path)
    folder = os.path.dirname(real)
    os.makedirs(folder, 0o700, exist_ok=True)
    # the folder, not the file: that is replaced, and may not exist yet. Windows opens no folder.
    lock_path = f"{real}.lock" if os.name == "nt" else folder
    fd = os.open(lock_path, os.O_RDWR | os.O_CREAT if os.name == "nt" else os.O_RDONLY)
    try:
        deadline = time.monotonic() + LIMIT
        while not try_lock(fd):
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"another safelaunch has been changing it for {LIMIT:g} s",
                    where=path,
                    hint="wait until that one ends, then try again",
                )
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(fd)
        if lock_path != folder:
            with contextlib.suppress(OSError):  # Windows removes no file that another has open
                os.unlink(lock_path)


def write(path: str, text: str) -> None:
    """Replace a hosts file atomically; only its owner can read a new one. Raises OSError.

    A symbolic link stays one: it may lead into a folder of dotfiles.
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
