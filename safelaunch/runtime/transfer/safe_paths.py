"""File access below a folder that never follows a link.

Names are bytes: the locale of the shell that started the agent must not change the name of a file.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Tuple

    from safelaunch.runtime.agent.wire import Link

    Verb = Callable[[dict[str, Any], Link], dict[str, Any]]
    Parts = Tuple[bytes, ...]
    Key = Tuple[int, int, int, int]

# a client on Windows imports this module too, which has none of these
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
_PART = b".safelaunch-%d.part"
_NO_NAMES = (b"", b".", b"..")


def encode(path: str) -> bytes:
    """Return the bytes of a path of a message: UTF-8, other bytes as lone surrogates."""
    return path.encode("utf-8", "surrogateescape")


def decode(path: bytes) -> str:
    """Return the text of a path for a message."""
    return path.decode("utf-8", "surrogateescape")


def split(path: str) -> Parts:
    """Return the names of a relative path. Raises OSError for one that could leave the folder."""
    return tuple(map(encoded_name, path.split("/")))


def encoded_name(name: str) -> bytes:
    """Return the bytes of one name of a path. Raises OSError for one that is none."""
    data = encode(name)
    if data in _NO_NAMES or b"\0" in data:
        raise OSError(errno.EINVAL, "no path below a folder", name)
    return data


def key(info: os.stat_result) -> Key:
    """Return size, times and inode: they change when a file changes."""
    return info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino


class RootFolder:
    """A folder, with open descriptors of the chain of folders below it that was used last."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self._fds = [os.open(path, _FOLDER & ~getattr(os, "O_NOFOLLOW", 0))]
        self._names: list[bytes] = []

    def close(self) -> None:
        """Close all descriptors."""
        self._close_below(0)
        os.close(self._fds.pop())

    def _close_below(self, depth: int) -> None:
        while len(self._names) > depth:
            self._names.pop()
            os.close(self._fds.pop())

    def folder(self, parts: Parts) -> int:
        """Return a descriptor, valid until the next call. Raises OSError: also for a link."""
        depth = 0
        for opened, name in zip(self._names, parts):  # noqa: B905 - Python 3.8
            if opened != name:
                break
            depth += 1
        self._close_below(depth)
        for name in parts[depth:]:
            self._fds.append(os.open(name, _FOLDER, dir_fd=self._fds[-1]))
            self._names.append(name)
        return self._fds[-1]

    def lookup(self, parts: Parts) -> os.stat_result | None:
        """Return the lstat of a path, None if missing. Raises OSError where a folder is a link."""
        try:
            return os.stat(parts[-1], dir_fd=self.folder(parts[:-1]), follow_symlinks=False)
        except FileNotFoundError:
            return None

    def make(self, parts: Parts, mode: int) -> bool:
        """Create a folder in an existing parent; False if it exists already. Raises OSError."""
        fd = self.folder(parts[:-1])
        try:
            os.mkdir(parts[-1], mode | stat.S_IRWXU, dir_fd=fd)
        except FileExistsError:
            self.folder(parts)  # raises if it is no folder
            return False
        return True

    def write(self, parts: Parts, data: memoryview, mode: int) -> os.stat_result:
        """Write a whole file atomically: readers see the old or the new one. Raises OSError."""
        fd = self.folder(parts[:-1])
        part = _PART % os.getpid()
        try:
            file = os.open(part, _NEW, mode | stat.S_IWUSR, dir_fd=fd)
        except FileExistsError:  # left by a killed process with this pid
            os.unlink(part, dir_fd=fd)
            file = os.open(part, _NEW, mode | stat.S_IWUSR, dir_fd=fd)
        try:
            try:
                write_all(file, data)
                os.rename(part, parts[-1], src_dir_fd=fd, dst_dir_fd=fd)
            except OSError:
                _discard(part, fd)
                raise
            return os.fstat(file)
        finally:
            os.close(file)

    def link(self, parts: Parts, target: bytes) -> os.stat_result:
        """Create a symbolic link; replace an existing file or link. Raises OSError."""
        fd = self.folder(parts[:-1])
        part = _PART % os.getpid()
        try:
            os.symlink(target, part, dir_fd=fd)
        except FileExistsError:
            os.unlink(part, dir_fd=fd)
            os.symlink(target, part, dir_fd=fd)
        try:
            os.rename(part, parts[-1], src_dir_fd=fd, dst_dir_fd=fd)
        except OSError:
            _discard(part, fd)
            raise
        return os.stat(parts[-1], dir_fd=fd, follow_symlinks=False)

    def remove(self, parts: Parts, *, is_folder: bool) -> None:
        """Remove a file or link, or an empty folder. Raises OSError."""
        if is_folder:
            self._close_below(0)  # its descriptor may be open
            os.rmdir(parts[-1], dir_fd=self.folder(parts[:-1]))
        else:
            os.unlink(parts[-1], dir_fd=self.folder(parts[:-1]))

    def read_link(self, parts: Parts) -> bytes:
        """Return the target of a link. Raises OSError."""
        return os.readlink(parts[-1], dir_fd=self.folder(parts[:-1]))

    def open(self, parts: Parts, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
        """Open a file that is no link. Raises OSError."""
        # opening a fifo must not block
        flags |= _NO_LINK | getattr(os, "O_NONBLOCK", 0)
        return os.open(parts[-1], flags, mode, dir_fd=self.folder(parts[:-1]))


def write_all(fd: int, data: memoryview | bytes) -> None:
    """Write all data. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _discard(part: bytes, fd: int) -> None:
    try:
        os.unlink(part, dir_fd=fd)
    except OSError:
        pass  # the earlier error is the one to report


def sweep(path: bytes, pid: int) -> None:
    """Remove the partly written file of a killed process from a folder."""
    try:
        os.unlink(os.path.join(path, _PART % pid))
    except OSError:
        pass


def with_path_errors(function: Verb, target: Callable[[], bytes] = bytes) -> Verb:
    """Return a verb whose OSErrors have a path as text: the target where it is relative."""

    def verb(request: dict[str, Any], link: Link) -> dict[str, Any]:
        try:
            return function(request, link)
        except OSError as e:
            path = e.filename or b""
            path = path if isinstance(path, bytes) else encode(path)
            if not os.path.isabs(path):
                path = target() or path
            text = decode(path) or request.get("target")
            raise OSError(e.errno, e.strerror or str(e), text) from e

    return verb
