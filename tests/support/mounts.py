"""A file system of its own for a folder: a small disk, or one that is read-only."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from plumbum import local

from support.sweeper import sweep
from support.workspace import need_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def tmpfs(folder: Path, options: str) -> Iterator[None]:
    """Mount a file system in memory upon a folder, with options such as `size=2m`."""
    need_root()
    folder.mkdir(exist_ok=True)
    code, _, _ = local["mount"]["-t", "tmpfs", "-o", options, "none", folder].run(retcode=None)
    if code != 0:
        pytest.skip("mounts are not allowed here")
    unmounted = sweep("command", "umount", "-l", str(folder))
    try:
        yield
    finally:
        local["umount"]("-l", folder)
        unmounted()


def fill(folder: Path, leave: int = 0) -> None:
    """Fill the file system of a folder with a file `ballast`, but for some bytes."""
    with open(folder / "ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            file.truncate(max(0, file.tell() - leave))
