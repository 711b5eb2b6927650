"""What earlier syncs put into a folder: a journal in safelaunch's own folder, and who writes it.

Each line is JSON: an object (the first), an entry with its path in front, a path alone (it is gone
from the record), or a mark (an empty path): the client's digest of what is recorded. A torn last
line is what a crash leaves, and is dropped.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time

from safelaunch.runtime.transfer import safe_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 2
STALE = 7 * 86400.0  # seconds until the beginning of a large file is given up
_SLACK = 1000  # lines that the journal may have beyond its entries


class Entry(object):
    """A path as it was put there. `own` is false for what was there already, and the same."""

    __slots__ = ("content", "key", "kind", "mode", "own", "size")

    def __init__(  # noqa: PLR0917 - in the order of its line
        self, kind: str, mode: int, content: str, size: int, key: Any, own: bool = True
    ) -> None:
        self.kind = kind  # f, l, d; p is the beginning of a large file
        self.mode = mode  # as the client has it; the host's umask is not taken off
        self.content = content  # the hash; what a link says
        self.size = size
        self.key = tuple(key)
        self.own = bool(own)

    def line(self, path: str) -> bytes:
        """Return the entry's line."""
        fields = [path, self.kind, self.mode, self.content, self.size, self.key, int(self.own)]
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


class Manifest(object):
    """The record of one folder. Raises OSError where it cannot be read or written."""

    def __init__(self, path: str, target: str) -> None:
        self.path = path
        self.target = target
        self.entries = {}  # type: dict[str, Entry]
        self.digest = ""
        self.left = frozenset()  # type: frozenset[str] # of earlier syncs, no longer the client's
        self._lines = 0
        self._pending = []  # type: list[bytes]
        self._read()

    def _read(self) -> None:
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return
        lines = data[: data.rfind(b"\n") + 1].splitlines()
        try:
            found = json.loads((b"[" + b",".join(lines) + b"]").decode())
        except ValueError:
            found = [line for line in map(_line, lines) if line is not None]
        if found and isinstance(found[0], dict) and found[0].get("version") != VERSION:
            return  # its hashes are others
        for line in found:
            if isinstance(line, list) and line:
                self._take(line)
        # what was torn must not swallow the line behind it
        self._lines = len(lines) if data.endswith(b"\n") else 1 << 60

    def _take(self, line: list[Any]) -> None:
        path = line[0]
        try:
            if not path:
                self.digest, self.left = line[1], frozenset(line[2])
            elif len(line) == 1:
                self.entries.pop(path, None)
            else:
                self.entries[path] = Entry(*line[1:])
        except (TypeError, IndexError):
            return  # of no version that we know

    def reset(self) -> None:
        """Forget everything: the folder is empty, or not there."""
        self.entries, self.digest, self.left = {}, "", frozenset()
        self._lines = 0  # so that the file is written anew

    def put(self, path: str, entry: Entry) -> None:
        """Record an entry; `flush` writes it."""
        self.entries[path] = entry
        self._pending.append(entry.line(path))

    def drop(self, path: str) -> None:
        """Forget a path; `flush` writes it."""
        if self.entries.pop(path, None) is not None:
            self._pending.append(json.dumps([path]).encode() + b"\n")

    def count_left(self) -> int:
        """Return how many files of earlier syncs are no longer the client's."""
        return sum(self.entries[path].kind != "d" for path in self.left if path in self.entries)

    def unmark(self) -> None:
        """Say that what is recorded is no client's tree any more."""
        if self.digest:
            self.mark("", self.left)

    def mark(self, digest: str, left: frozenset[str]) -> None:
        """Say of which tree the entries are, less those that are `left`."""
        self.digest, self.left = digest, left
        self._pending.append(json.dumps(["", digest, sorted(left)]).encode() + b"\n")

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
        head = json.dumps({"version": VERSION, "target": self.target}).encode() + b"\n"
        mark = json.dumps(["", self.digest, sorted(self.left)]).encode() + b"\n"
        lines = [entry.line(path) for path, entry in self.entries.items()]
        part = "%s.%d" % (self.path, os.getpid())
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            try:
                safe_paths.write_all(fd, b"".join([head, *lines, mark]))
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


def place(home: str, target: bytes) -> str:
    """Return where records of a folder lie, without their ending."""
    name = hashlib.blake2b(target, digest_size=12).hexdigest()
    return os.path.join(home, "sync", name)


def of(home: str, target: bytes) -> Manifest:
    """Return the record of a folder, an empty one for a folder that is not there.

    The inode is part of the name: machines that share a home have folders of the same path.
    """
    try:
        inode = os.stat(target).st_ino
    except OSError:
        inode = 0
    return Manifest("%s-%x.jsonl" % (place(home, target), inode), safe_paths.decode(target))


# -- one writer at a time --------------------------------------------------------------------------


class Busy(OSError):  # noqa: N818 - reads as what happened
    """Another sync writes there. `idle`: the seconds since it last did."""

    def __init__(self, idle: float) -> None:
        super().__init__(errno.EBUSY, "another sync of this folder is going on")
        self.idle = idle


class Hold(object):
    """The right to write into a folder: a lock that ends with its process, or is taken over."""

    def __init__(self, path: str, *, take_over: bool) -> None:
        self.path = path
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _locked(self._fd):
            idle = time.time() - os.fstat(self._fd).st_mtime
            os.close(self._fd)
            if not take_over:
                raise Busy(idle)
            self._fd = _replaced(path)
        self._sweep()

    def beat(self) -> None:
        """Say that we still write. Raises OSError once another has taken over."""
        try:
            ours = os.stat(self.path).st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:
            ours = False
        if not ours:
            raise OSError(errno.EBUSY, "another sync of this folder took over")
        os.utime(self._fd)

    def working_in(self, folder: bytes) -> None:
        """Note the folder in which a file may be half-written, for whom comes after a kill."""
        line = json.dumps([os.getpid(), safe_paths.decode(folder)]).encode()
        os.pwrite(self._fd, line + b" " * (os.fstat(self._fd).st_size - len(line)), 0)

    def _sweep(self) -> None:
        try:
            pid, folder = json.loads(os.pread(self._fd, 1 << 16, 0).decode() or "[]")
            safe_paths.sweep(safe_paths.encode(folder), int(pid))
        except (ValueError, TypeError):
            return

    def close(self) -> None:
        """Let others write."""
        os.close(self._fd)


def _locked(fd: int) -> bool:
    import fcntl  # noqa: PLC0415 - this module is imported on Windows too

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: then nobody has one
    return True


def _replaced(path: str) -> int:
    part = "%s.%d" % (path, os.getpid())
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    _locked(fd)
    os.rename(part, path)
    return fd


def is_stale(info: os.stat_result) -> bool:
    """Whether the beginning of a large file was left alone for so long that nobody goes on."""
    return stat.S_ISREG(info.st_mode) and time.time() - info.st_mtime > STALE
