"""The folder of this machine that a pull writes into: through no link, and never outside of it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import sys
from typing import BinaryIO

from safelaunch.runtime.transfer import safe_paths

_CHUNK = 1 << 20
_BINARY = getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_HAS_DIR_FD = os.open in os.supports_dir_fd  # not on Windows
_REPARSE = getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0x400)  # a link or junction of Windows


class DownloadFolder:
    """A folder; all names are relative to it, with `/`. Calls raise OSError.

    On POSIX each folder is opened below the one above it, so that a link that appears meanwhile is
    not followed either. Windows has no such calls: there each folder is looked at before.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._root: safe_paths.RootFolder | None = None

    def close(self) -> None:
        """Close the folder."""
        if self._root is not None:
            self._root.close()

    def free_space(self) -> int:
        """Return the free bytes of the disk."""
        folder = os.path.abspath(self.path)
        while not os.path.isdir(folder) and folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
        return shutil.disk_usage(folder).free

    def lookup(self, name: str) -> os.stat_result | None:
        """Return the lstat of a path, None where it or a folder above it is missing."""
        if self._root is None and not os.path.isdir(self.path):
            return None
        try:
            base, fd = self._at(name)
            return os.stat(base, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def make_folders(self, name: str) -> None:
        """Create the folders above a path, and the destination itself."""
        os.makedirs(self.path, exist_ok=True)
        parts = name.split("/")
        for depth in range(1, len(parts)):
            base, fd = self._at("/".join(parts[:depth]))
            with contextlib.suppress(FileExistsError):
                os.mkdir(base, dir_fd=fd)

    def open(self, name: str, *, resume: bool = False) -> BinaryIO:
        """Open a file for reading and writing; without `resume` it is empty at first."""
        flags = os.O_RDWR | os.O_CREAT | (0 if resume else os.O_TRUNC)
        return os.fdopen(self._open(name, flags), "r+b")

    def rename(self, part: str, name: str, mtime: int) -> None:
        """Put a file that is complete at its path; a file or link there is replaced."""
        base, fd = self._at(part)
        with contextlib.suppress(OSError, OverflowError, ValueError):
            os.utime(base, ns=(mtime, mtime), dir_fd=fd)
        target, _ = self._at(name)  # in the same folder
        os.replace(base, target, src_dir_fd=fd, dst_dir_fd=fd)

    def remove(self, name: str) -> None:
        """Remove a file."""
        base, fd = self._at(name)
        os.unlink(base, dir_fd=fd)

    def copy(self, name: str, target: str) -> None:
        """Copy a file's contents."""
        source = os.fdopen(self._open(name, os.O_RDONLY), "rb")
        with source, self.open(target) as out:
            shutil.copyfileobj(source, out, _CHUNK)

    def hash(self, name: str, length: int | None = None) -> str:
        """Return the hash of a file's first bytes, or of all."""
        hasher = hashlib.sha256()
        remaining = sys.maxsize if length is None else length
        with os.fdopen(self._open(name, os.O_RDONLY), "rb", buffering=0) as file:
            while data := file.read(min(_CHUNK, remaining)):
                hasher.update(data)
                remaining -= len(data)
        return hasher.hexdigest()

    def _open(self, name: str, flags: int) -> int:
        base, fd = self._at(name)
        # opening a FIFO must not block
        flags |= _BINARY | _NO_LINK | getattr(os, "O_NONBLOCK", 0)
        file = os.open(base, flags, 0o666, dir_fd=fd)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "not a file", os.path.join(self.path, name))
        return file

    def _at(self, name: str) -> tuple[str | bytes, int | None]:
        """Return what the calls of `os` take for a path: its name, and the open folder of it."""
        parts = name.split("/")
        try:
            if not _HAS_DIR_FD:
                return self._checked_path(parts), None
            if self._root is None:
                self._root = safe_paths.RootFolder(os.fsencode(self.path))
            names = safe_paths.split(name)
            return names[-1], self._root.folder(names[:-1])
        except OSError as e:
            if e.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            folder = os.path.join(self.path, *parts[:-1])
            text = "a folder of its path is a link, or a file"
            raise NotADirectoryError(errno.ENOTDIR, text, folder) from e

    def _checked_path(self, parts: list[str]) -> str:
        folder = self.path
        for part in parts[:-1]:
            folder = os.path.join(folder, part)
            info = os.lstat(folder)
            attributes = getattr(info, "st_file_attributes", 0)
            if not stat.S_ISDIR(info.st_mode) or attributes & _REPARSE:
                raise NotADirectoryError(errno.ENOTDIR, "a link", folder)
        return os.path.join(folder, parts[-1])
