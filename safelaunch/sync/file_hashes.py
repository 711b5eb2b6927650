"""What is read of a file, and its hash: scripts with LF, and the same at both ends of the read.

A hash that was once worked out stands for the contents while size, times and inode are the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.sync.project_tree import Item

LARGE = 8 << 20  # bytes above which a file travels alone, and goes on after a cut
_PIECE = 1 << 20
_VERSION = 2
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)  # on Windows
_SHELLS = (".sh", ".bash", ".zsh", ".ksh")
_INTERPRETED = re.compile(rb"#![^\n]*\b(ba|da|k|z|fi|c|tc)?sh\b|#![^\n]*\bpython")
# A file written twice within a tick of its clock may look the same: whole seconds are of a file
# system that has no finer ones (FAT has two), others have the kernel's tick, 10 ms at most.
_SECOND = 1_000_000_000
_COARSE, _FINE = 2 * _SECOND, _SECOND // 20


class Content(NamedTuple):
    """A file's bytes as they travel; `settled` is false where it changed while it was read."""

    data: bytes
    is_script: bool
    settled: bool


def read(item: Item) -> Content:
    """Return a small file, read once more if it changed meanwhile. Raises OSError."""
    data, settled = _once(item.local)
    if not settled:
        data, settled = _once(item.local)
    is_script = data[:2] == b"#!"
    named = item.path.endswith(_SHELLS)
    if (
        b"\r\n" in data
        and not item.verbatim
        and (named or (is_script and _INTERPRETED.match(data)))
    ):
        data = data.replace(b"\r\n", b"\n")
    return Content(data, is_script, settled)


def _once(path: str) -> tuple[bytes, bool]:
    # os.open and one read: a third less time than `open` for thousands of small files
    fd = os.open(path, _FLAGS)
    try:
        before = os.fstat(fd)
        data = os.read(fd, before.st_size + 1)
        if len(data) != before.st_size:
            parts = [data]
            while parts[-1]:
                parts.append(os.read(fd, _PIECE))
            data = b"".join(parts)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    return data, same and len(data) == after.st_size


def take(item: Item, content: Content) -> None:
    """Note what reading has shown of an item."""
    item.hash = hashlib.sha256(content.data).hexdigest()
    item.size = len(content.data)
    if os.name == "nt":
        item.mode = 0o755 if content.is_script else 0o644


def hash_item(item: Item, each: Callable[[int], None]) -> None:
    """Work out an item's hash; `each` is called with bytes that were read. Raises OSError."""
    if item.size <= LARGE:
        take(item, read(item))
        each(item.size)
        return
    # sha256: processors have instructions for it, and what is compared is what sha256sum says
    found = hashlib.sha256()
    with open(item.local, "rb", buffering=0) as file:
        while data := file.read(_PIECE):
            found.update(data)
            each(len(data))
    item.hash = found.hexdigest()


class Cache:
    """Hashes of one project, in a file of ours. Losing it costs a reading of everything."""

    def __init__(self, folder: str | None, root: str) -> None:
        name = hashlib.blake2b(os.fsencode(os.path.abspath(root)), digest_size=12).hexdigest()
        self._path = None if folder is None else os.path.join(folder, f"hashes-{name}.json")
        self._known = self._read()
        self._begun = time.time_ns()

    def _read(self) -> dict[str, list[int | str]]:
        if self._path is None:
            return {}
        try:
            with open(self._path, "rb") as file:
                found = json.loads(file.read())
            known = found["files"] if found["version"] == _VERSION else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return known if isinstance(known, dict) else {}

    def fill(self, items: list[Item]) -> bool:
        """Give the items the hashes that are known; whether those are all of them."""
        known, whole = self._known, True
        for item in items:
            found = known.get(item.path)
            if found is not None and tuple(found[:4]) == item.key:
                item.hash, item.size = str(found[4]), int(found[5])
                item.mode = int(found[6]) if os.name == "nt" else item.mode
            else:
                whole = False
        return whole

    def save(self, items: list[Item]) -> None:
        """Keep the hashes of what has not been written for a moment. A full disk is no error."""
        if self._path is None:
            return
        new = {
            item.path: [*item.key, item.hash, item.size, item.mode]
            for item in items
            if item.hash and _settled_at(item) < self._begun
        }
        if new == self._known:
            return
        part = f"{self._path}.{os.getpid()}.{threading.get_ident()}"
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            text = json.dumps({"version": _VERSION, "files": new}, separators=(",", ":"))
            with open(part, "w", encoding="ascii") as file:
                file.write(text)
            os.replace(part, self._path)


def _settled_at(item: Item) -> int:
    _, modified, changed, _ = item.key
    return max(modified, changed) + (_FINE if modified % _SECOND else _COARSE)
