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
