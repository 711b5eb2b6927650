"""The manifest of a synced folder: a journal of what earlier syncs wrote, and its lock.

Each line is JSON: an object (the first: whose folder it is), an entry after its path, a path alone
(removed from the record), or a mark (an empty path): the client's digest of the recorded tree. A
partial last line is left by a crash, and is dropped.
"""

# ruff: noqa: PLC0415 - this module is imported on Windows too, which has no fcntl

from __future__ import annotations

import errno
import hashlib
import json
import os
import time

from safelaunch.runtime.transfer import safe_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 2
_SLACK = 1000  # lines of the journal beyond its entries before it is rewritten
FOLDER = "sync"  # of manifests, in safelaunch's folder


class ManifestEntry:
    """A path as a sync wrote it. `own` is False for one that existed already."""

    __slots__ = ("content", "key", "kind", "mode", "own", "size")

    def __init__(  # noqa: PLR0917 - in the order of its line
        self, kind: str, mode: int, content: str, size: int, key: Any, own: bool = True
    ) -> None:
        self.kind = kind  # f file, l link, d folder; p is the part of a large file
        self.mode = mode  # the client's mode, without the host's umask
        self.content = content  # the hash of a file; the target of a link
        self.size = size
        self.key = tuple(key)
        self.own = bool(own)

    def line(self, path: str) -> bytes:
        """Return the entry's line."""
        fields = [path, self.kind, self.mode, self.content, self.size, self.key, int(self.own)]
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


class Head:
    """The first line of a manifest: whose folder it is, and for a tree of a run which run."""

    __slots__ = ("owner", "place", "run", "target")

    def __init__(self, target: str, owner: str = "", place: str = "", run: str = "") -> None:
        self.target = target
        self.owner = owner  # the checkout that is synced there (sync/checkout_id.py)
        self.place = place  # of a tree: the folder that it is a copy of
        self.run = run

    @classmethod
    def from_json(cls, data: Any) -> Head:
        """Return the head that a line holds; empty for one of another version or kind."""
        data = data if isinstance(data, dict) and data.get("version") == VERSION else {}
        return cls(*(str(data.get(name) or "") for name in ("target", "owner", "place", "run")))

    @property
    def origin(self) -> tuple[str, str, str]:
        """What the head says beside the folder's path."""
        return self.owner, self.place, self.run

    def line(self) -> bytes:
        """Return the line."""
        fields = {name: getattr(self, name) for name in ("target", "owner", "place", "run")}
        return json.dumps({"version": VERSION, **fields}).encode() + b"\n"


class Manifest:
    """The record of one folder. Raises OSError where it cannot be read or written."""

    def __init__(self, path: str, target: str) -> None:
        self.path = path
        self.head = Head(target)
        self.entries: dict[str, ManifestEntry] = {}
        self.digest = ""
        self.leftover: frozenset[str] = frozenset()  # paths that the client has no more
        self._lines = 0
        self._pending: list[bytes] = []
        self._read()

    def _read(self) -> None:
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return
        lines = data[: data.rfind(b"\n") + 1].splitlines()
        try:
            rows = json.loads((b"[" + b",".join(lines) + b"]").decode())
        except ValueError:
            rows = list(map(_line, lines))
        if rows and isinstance(rows[0], dict) and rows[0].get("version") != VERSION:
            return  # another version has other hashes
        if rows:
            self.head = Head(self.head.target, *Head.from_json(rows[0]).origin)
        for line in rows:
            if isinstance(line, list) and line:
                self._add_line(line)
        # after a partial line the journal is rewritten: it must not merge with the next line
        self._lines = len(lines) if data.endswith(b"\n") else 1 << 60

    def _add_line(self, line: list[Any]) -> None:
        path = line[0]
        try:
            if not path:
                self.digest, self.leftover = line[1], frozenset(line[2])
            elif len(line) == 1:
                self.entries.pop(path, None)
            else:
                self.entries[path] = ManifestEntry(*line[1:])
        except (TypeError, IndexError):
            return  # a line of an unknown version

    def reset(self) -> None:
        """Drop all entries: the folder is empty or missing."""
        self.entries, self.digest, self.leftover = {}, "", frozenset()
        self._lines = 0  # so that the file is rewritten

    def put(self, path: str, entry: ManifestEntry) -> None:
        """Record an entry; `flush` writes it."""
        self.entries[path] = entry
        self._pending.append(entry.line(path))

    def drop(self, path: str) -> None:
        """Drop a path; `flush` writes it."""
        if self.entries.pop(path, None) is not None:
            self._pending.append(json.dumps([path]).encode() + b"\n")

    def count_left(self) -> int:
        """Return how many files of earlier syncs the client has no more."""
        return sum(self.entries[path].kind != "d" for path in self.leftover if path in self.entries)

    def unmark(self) -> None:
        """Record that the entries match no client's tree any more."""
        if self.digest:
            self.mark("", self.leftover)

    def set_origin(self, owner: str, place: str = "", run: str = "") -> None:
        """Record at once whose folder it is. Raises OSError."""
        if self.head.origin != (owner, place, run):
            self.head = Head(self.head.target, owner, place, run)
            self._rewrite()

    def mark(self, digest: str, leftover: frozenset[str]) -> None:
        """Record the digest of the client's tree, which has the entries without `left`."""
        self.digest, self.leftover = digest, leftover
        self._pending.append(json.dumps(["", digest, sorted(leftover)]).encode() + b"\n")

    def flush(self) -> None:
        """Write what is pending; rewrite a journal that has grown long. Raises OSError."""
        if not self._pending:
            return
        lines = self._lines + len(self._pending)
        if not self._lines or lines > 2 * len(self.entries) + _SLACK:
            self._rewrite()
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            safe_paths.write_all(fd, b"".join(self._pending))
        finally:
            os.close(fd)
        self._lines, self._pending = lines, []

    def _rewrite(self) -> None:
        mark = json.dumps(["", self.digest, sorted(self.leftover)]).encode() + b"\n"
        lines = [entry.line(path) for path, entry in self.entries.items()]
        part = f"{self.path}.{os.getpid()}"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            try:
                safe_paths.write_all(fd, b"".join([self.head.line(), *lines, mark]))
            finally:
                os.close(fd)
            os.replace(part, self.path)
        except OSError:
            os.unlink(part)
            raise
        self._lines, self._pending = len(lines) + 2, []


def _line(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
    except ValueError:
        return None


def record_path(home: str, target: bytes) -> str:
    """Return the path of the records of a folder, without a suffix."""
    name = hashlib.blake2b(target, digest_size=12).hexdigest()
    return os.path.join(home, FOLDER, name)


def load(home: str, target: bytes) -> Manifest:
    """Return the manifest of a folder, an empty one for a folder that does not exist."""
    return Manifest(path_of(home, target), safe_paths.decode(target))


def path_of(home: str, target: bytes) -> str:
    """Return the path of a folder's manifest.

    The inode is part of the name: machines that share a home have folders of the same path.
    """
    try:
        inode = os.stat(target).st_ino
    except OSError:
        inode = 0
    return f"{record_path(home, target)}-{inode:x}.jsonl"


def owner(home: str, target: bytes) -> str:
    """Return the checkout that owns a folder, "" where nobody does."""
    return _head(path_of(home, target)).owner


def heads(home: str) -> dict[str, Head]:
    """Return {path of the manifest: its head} of all folders."""
    folder = os.path.join(home, FOLDER)
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".jsonl")]
    except OSError:
        return {}
    return {path: _head(path) for path in (os.path.join(folder, name) for name in sorted(names))}


def _head(path: str) -> Head:
    try:
        with open(path, "rb") as file:
            return Head.from_json(json.loads(file.readline().decode()))
    except (OSError, ValueError):
        return Head("")


# -- one writer at a time --------------------------------------------------------------------------


class Busy(OSError):  # noqa: N818 - reads as what happened
    """Another sync writes into the folder, `idle` seconds after its last write."""

    def __init__(self, idle: float) -> None:
        super().__init__(errno.EBUSY, "another sync of this folder is going on")
        self.idle = idle


class FolderLock:
    """The lock of a synced folder: it ends with its process, or another process takes it over."""

    def __init__(self, path: str, *, take_over: bool) -> None:
        self.path = path
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _locked(self._fd):
            idle = time.time() - os.fstat(self._fd).st_mtime
            os.close(self._fd)
            if not take_over:
                raise Busy(idle)
            self._fd = _replace_lock(path)
        self._sweep()

    def refresh(self) -> None:
        """Refresh the lock. Raises OSError if another process has taken it over."""
        try:
            is_ours = os.stat(self.path).st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:
            is_ours = False
        if not is_ours:
            raise OSError(errno.EBUSY, "another sync of this folder took over")
        os.utime(self._fd)

    def set_folder(self, folder: bytes) -> None:
        """Record the folder of a partly written file, so that the next sync can remove it."""
        line = json.dumps([os.getpid(), safe_paths.decode(folder)]).encode()
        os.pwrite(self._fd, line + b" " * (os.fstat(self._fd).st_size - len(line)), 0)

    def _sweep(self) -> None:
        try:
            pid, folder = json.loads(os.pread(self._fd, 1 << 16, 0).decode() or "[]")
            safe_paths.sweep(safe_paths.encode(folder), int(pid))
        except (ValueError, TypeError):
            return

    def close(self) -> None:
        """Release the lock."""
        os.close(self._fd)


def _locked(fd: int) -> bool:
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: then no process has one
    return True


def _replace_lock(path: str) -> int:
    part = f"{path}.{os.getpid()}"
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    _locked(fd)
    os.rename(part, path)
    return fd
