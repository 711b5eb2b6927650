"""The files of a run's node, to be read: names, sizes and parts.

A file that was removed, or that may not be read, has no bytes.
"""

from __future__ import annotations

import os
from typing import Protocol

_FOLDERS = ("logs", "hang-", "nccl")  # below a node's folder, whose files are listed too
_DEPTH = 2
_MAX_FILES = 5000  # that are listed


class NodeFiles(Protocol):
    """The files of a node."""

    def sizes(self) -> dict[str, int]:
        """Return {name: bytes}; a name has `/` between its parts."""

    def read(self, name: str, begin: int, length: int) -> bytes:
        """Return a part of a file: less where it ends, nothing where it cannot be read."""


class LocalFiles:
    """Files of a folder of this machine."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def sizes(self) -> dict[str, int]:
        """Return {name: bytes}."""
        sizes: dict[str, int] = {}
        self._list("", sizes, 0)
        return sizes

    def _list(self, below: str, sizes: dict[str, int], depth: int) -> None:
        try:
            entries = sorted(os.scandir(os.path.join(self.folder, below)), key=lambda e: e.name)
        except OSError:
            return
        for entry in entries:
            name = f"{below}/{entry.name}" if below else entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    if depth < _DEPTH and (depth or entry.name.startswith(_FOLDERS)):
                        self._list(name, sizes, depth + 1)
                elif entry.is_file(follow_symlinks=False) and len(sizes) < _MAX_FILES:
                    sizes[name] = entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue

    def read(self, name: str, begin: int, length: int) -> bytes:
        """Return a part of a file."""
        try:
            with open(os.path.join(self.folder, *name.split("/")), "rb", buffering=0) as file:
                file.seek(begin)
                data = b""
                while part := file.read(length - len(data)):
                    data += part
                return data
        except OSError:
            return b""
