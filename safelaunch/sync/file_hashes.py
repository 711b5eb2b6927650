"""Read files and compute their hashes, with LF in scripts; detect changes during the read.

A cached hash is valid while size, times and inode of the file are the same.
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

    from safelaunch.sync.project_tree import Entry

LARGE = 8 << 20  # bytes above which a file is sent alone, and resumed after an interruption
_CHUNK = 1 << 20
_VERSION = 2
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)  # on Windows
_INTERPRETED = re.compile(rb"#![^\n]*\b(ba|da|k|z|fi|c|tc)?sh\b|#![^\n]*\bpython")
# A file written twice within a tick of its clock may look the same: whole seconds are of a file
# system that has no finer ones (FAT has two), others have the kernel's tick, 10 ms at most.
_SECOND = 1_000_000_000
_COARSE, _FINE = 2 * _SECOND, _SECOND // 20


class FileContent(NamedTuple):
    """The bytes of a file to send; `unchanged` is false if it changed while it was read."""

    data: bytes
    is_script: bool
    unchanged: bool


def read(item: Entry) -> FileContent:
    """Return the content of a small file; read it again if it changed. Raises OSError."""
    data, unchanged = _read_once(item.local)
    if not unchanged:
        data, unchanged = _read_once(item.local)
    is_shell = item.path.endswith((".sh", ".bash", ".zsh", ".ksh"))
    is_script = is_shell or _INTERPRETED.match(data) is not None
    if is_script and not item.verbatim and b"\r\n" in data:  # the search goes last: 0.4 GB/s
        data = data.replace(b"\r\n", b"\n")
    return FileContent(data, data[:2] == b"#!", unchanged)


def _read_once(path: str) -> tuple[bytes, bool]:
    # os.open and one read: a third less time than `open` for thousands of small files
    fd = os.open(path, _FLAGS)
    try:
        before = os.fstat(fd)
        data = os.read(fd, before.st_size + 1)
        if len(data) != before.st_size:
            chunks = [data]
            while chunks[-1]:
                chunks.append(os.read(fd, _CHUNK))
            data = b"".join(chunks)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    unchanged_stat = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    return data, unchanged_stat and len(data) == after.st_size


def store_hash(item: Entry, content: FileContent) -> None:
    """Set hash, size and mode of an entry from its content."""
    item.hash = hashlib.sha256(content.data).hexdigest()
    item.size = len(content.data)
    if os.name == "nt":
        item.mode = 0o755 if content.is_script else 0o644


def hash_item(item: Entry, on_bytes: Callable[[int], None]) -> None:
    """Set the hash of an entry; `on_bytes` gets each number of bytes read. Raises OSError."""
    if item.size <= LARGE:
        store_hash(item, read(item))
        on_bytes(item.size)
        return
    # sha256: processors have instructions for it, and sha256sum prints the same
    hasher = hashlib.sha256()
    with open(item.local, "rb", buffering=0) as file:
        while data := file.read(_CHUNK):
            hasher.update(data)
            on_bytes(len(data))
    item.hash = hasher.hexdigest()


class HashCache:
    """File hashes of one project, in a cache file. If it is lost, all files are read again."""

    def __init__(self, folder: str | None, root: str) -> None:
        name = hashlib.blake2b(os.fsencode(os.path.abspath(root)), digest_size=12).hexdigest()
        self._path = None if folder is None else os.path.join(folder, f"hashes-{name}.json")
        self._hashes = self._read()
        self._is_current = False  # whether it holds all files, and nothing else
        self._started_ns = time.time_ns()

    def _read(self) -> dict[str, list[int | str]]:
        if self._path is None:
            return {}
        try:
            with open(self._path, "rb") as file:
                loaded = json.loads(file.read())
            hashes = loaded["files"] if loaded["version"] == _VERSION else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return hashes if isinstance(hashes, dict) else {}

    def fill_hashes(self, items: list[Entry]) -> bool:
        """Set the cached hashes of the entries; return whether all have one."""
        hashes, complete = self._hashes, True
        for item in items:
            try:
                *key, digest, size, mode = hashes[item.path]
                if tuple(key) != item.key:
                    complete = False
                    continue
                item.hash, item.size = str(digest), int(size)
                if os.name == "nt":
                    item.mode = int(mode)
            except (KeyError, TypeError, ValueError):  # unknown, or damaged
                complete = False
        self._is_current = complete and len(items) == len(hashes)
        return complete

    def save(self, items: list[Entry]) -> None:
        """Save the hashes of files that were not just written. A full disk is not an error."""
        if self._path is None or self._is_current:
            return
        updated = {
            item.path: [*item.key, item.hash, item.size, item.mode]
            for item in items
            if item.hash and _stable_after(item) < self._started_ns
        }
        if updated == self._hashes:
            return
        temporary = f"{self._path}.{os.getpid()}.{threading.get_ident()}"
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)
            text = json.dumps({"version": _VERSION, "files": updated}, separators=(",", ":"))
            with open(temporary, "w", encoding="ascii", opener=_open_private) as file:
                file.write(text)
            os.replace(temporary, self._path)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # names of files are nobody else's business


def _stable_after(item: Entry) -> int:
    _, modified, changed, _ = item.key
    return max(modified, changed) + (_FINE if modified % _SECOND else _COARSE)
