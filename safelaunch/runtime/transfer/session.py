"""One sync on the host: what exists in the target, and what may be written there.

Nothing is written outside the target, no link is followed in it, and a file that no sync wrote, or
that was changed since, is a Conflict unless the client forces it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time

from safelaunch.runtime.home import home
from safelaunch.runtime.transfer import compression, manifest, safe_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from safelaunch.runtime.transfer.safe_paths import Parts

PIECE = 1 << 20
# seconds: far below the silence after which another client takes the lock over
LISTING_AGE = 5.0
STALE_AFTER = 7 * 86400.0  # seconds until the part of a large file is removed


class Conflict(Exception):  # noqa: N818 - reads as what happened
    """A path exists that no sync wrote, or that was changed since; str says which of both."""


class Session:
    """A running sync; `suffix` is what another owner of the folder has added to its name."""

    def __init__(
        self, target: str, *, take_over: bool = False, owner: str = "", force: bool = False
    ) -> None:
        path = os.path.join(os.path.expanduser("~"), os.path.expanduser(target))
        self.suffix = place_suffix(path, owner, force=force) if owner else ""
        self.owner = owner
        self.target = os.path.realpath(safe_paths.encode(path + self.suffix))
        lock_path = manifest.record_path(home(), self.target) + ".lock"
        self.lock = manifest.FolderLock(lock_path, take_over=take_over)
        try:
            self.fresh = _is_fresh(self.target)
            self.root: safe_paths.RootFolder | None = None
            self.manifest = manifest.load(home(), self.target)
            if self.fresh:
                self.manifest.reset()
            if owner and not force and self.manifest.head.owner not in ("", owner):
                raise manifest.Busy(0.0)  # another checkout's first sync has just ended: ask again
        except OSError:
            self.lock.close()
            raise
        self.created: set[Parts] = set()  # folders that this sync created
        self.blocked: dict[Parts, bool] = {(): False}
        self.folders: dict[str, bytes | None] = {}  # their paths, with a final slash, or blocked
        self.large: dict[str, Large] = {}
        self.listing: list[list[Any]] | None = None  # rows for a `compare` that is still to come
        self._listed_for: dict[str, Any] = {}  # what asked for them
        self._listed = 0.0  # monotonic
        self.expander = compression.Expander()
        self.result = Result()

    def own(self) -> None:
        """Record the owner of the folder, if it exists. Raises OSError."""
        if self.owner and os.path.isdir(self.target):
            self.manifest.set_origin(self.owner)

    def close(self) -> None:
        """End the sync; the files that have arrived are recorded."""
        for large in self.large.values():
            os.close(large.fd)
        if self.root is not None:
            self.root.close()
        self.lock.close()

    def drop_large(self, path: str) -> None:
        """Close the part of a large file, if it is open; a new `prefix` may resume it."""
        large = self.large.pop(path, None)
        if large is not None:
            os.close(large.fd)

    def root_folder(self) -> safe_paths.RootFolder:
        """Return the target folder; create it if it does not exist. Raises OSError."""
        if self.root is None:
            if not os.path.isdir(self.target):
                mask = os.umask(0o077)  # its files may be readable by all: nobody gets to them
                try:
                    os.makedirs(self.target, exist_ok=True)
                finally:
                    os.umask(mask)
                self.manifest = manifest.load(home(), self.target)  # now it has an inode
            self.root = safe_paths.RootFolder(self.target)
        return self.root

    # -- existing files

    def list_rows(self, request: dict[str, Any]) -> None:
        """Keep the rows for the `compare` that follows with the same words."""
        self.listing, self._listed_for = self.rows(), request
        self._listed = time.monotonic()

    def serves(self, request: dict[str, Any]) -> bool:
        """Whether there are rows for these words, not yet used and not old."""
        is_fresh = time.monotonic() - self._listed < LISTING_AGE
        return self.listing is not None and is_fresh and self._listed_for == request

    def rows(self) -> list[list[Any]]:
        """Return a row for each recorded path."""
        if self.fresh:
            return []
        rows = []
        for path, entry in sorted(self.manifest.entries.items()):
            if entry.kind == "p":
                self._drop_stale(path)
            else:
                rows.append(self._row(path, entry))
        self.manifest.flush()
        return rows

    def _row(self, path: str, entry: manifest.ManifestEntry) -> list[Any]:
        folder, _, name = path.rpartition("/")
        row = [path, entry.kind, entry.mode, entry.content, entry.size]
        if folder not in self.folders:  # thousands of files lie in few folders
            parts = safe_paths.split(folder) if folder else ()
            is_blocked = self._is_blocked(parts)
            self.folders[folder] = None if is_blocked else os.path.join(self.target, *parts, b"")
        place, encoded = self.folders[folder], safe_paths.encoded_name(name)
        if place is None:
            return [*row, "b"]
        try:
            info = os.lstat(place + encoded)
        except OSError:
            return [*row, "g"]
        if entry.kind == "d":
            return [path, "d", entry.mode, "", 0, "" if stat.S_ISDIR(info.st_mode) else "c"]
        key = safe_paths.key(info)
        if key == entry.key:
            return [*row, ""]
        kind, content, mode, size = self._present(safe_paths.split(path), info, entry)
        if (kind, content) != (entry.kind, entry.content):
            return [path, kind, mode, content, size, "c"]
        self.manifest.put(path, manifest.ManifestEntry(kind, mode, content, size, key, entry.own))
        return [path, kind, mode, content, size, ""]

    def _present(
        self, parts: Parts, info: os.stat_result, entry: manifest.ManifestEntry | None = None
    ) -> tuple[str, str, int, int]:
        """Return the present kind, content, mode and size of a path."""
        if stat.S_ISLNK(info.st_mode):
            return "l", safe_paths.decode(self.root_folder().read_link(parts)), 0o777, 0
        if stat.S_ISDIR(info.st_mode):
            return "d", "", info.st_mode & 0o777, 0
        if not stat.S_ISREG(info.st_mode):
            return "?", "", 0, 0
        mode = info.st_mode & 0o777
        if entry is not None and mode == entry.mode & ~umask():
            mode = entry.mode  # the mode is unchanged
        try:
            fd = self.root_folder().open(parts)
        except OSError:
            return "?", "", mode, info.st_size  # a file that cannot be read is not ours
        try:
            return "f", hash_of(fd, self.lock.refresh), mode, info.st_size
        finally:
            os.close(fd)

    def _is_blocked(self, folder: Parts) -> bool:
        """Return whether the folder or one of its parents is no folder."""
        if folder not in self.blocked:
            is_blocked = self._is_blocked(folder[:-1])
            if not is_blocked:
                try:
                    info = os.lstat(os.path.join(self.target, *folder))
                    is_blocked = not stat.S_ISDIR(info.st_mode)
                except OSError:
                    pass  # removed: it can be created again
            self.blocked[folder] = is_blocked
        return self.blocked[folder]

    def _drop_stale(self, path: str) -> None:
        parts = safe_paths.split(path)
        try:
            info = os.lstat(os.path.join(self.target, *parts))
            if not stat.S_ISREG(info.st_mode) or time.time() - info.st_mtime <= STALE_AFTER:
                return
            self.root_folder().remove(parts, is_folder=False)
        except OSError:
            pass
        self.manifest.drop(path)

    def stat_paths(self, paths: list[list[Any]]) -> list[list[Any]]:
        """Return rows of the existing paths; the content only where the size is the same."""
        rows = []
        for path, size in paths:
            parts = safe_paths.split(path)
            if self._is_blocked(parts[:-1]):
                rows.append([path, "?", 0, "", 0, "b"])
                continue
            try:
                info = os.lstat(os.path.join(self.target, *parts))
            except OSError:
                continue
            if stat.S_ISREG(info.st_mode) and info.st_size != size:
                rows.append([path, "f", 0, "", info.st_size, ""])
            else:
                kind, content, mode, now = self._present(parts, info)
                rows.append([path, kind, mode, content, now, ""])
        return rows

    # -- writing

    def check(self, path: str, parts: Parts, *, force: bool) -> None:
        """Raise Conflict where writing a file would replace one that is not ours."""
        if parts[:-1] in self.created:
            return
        try:
            info = self.root_folder().lookup(parts)
        except OSError as e:
            raise Conflict(_conflict_text(e)) from None
        if info is None:
            return
        if stat.S_ISDIR(info.st_mode):
            self._replace_folder(path, parts)
        elif force:
            return
        elif path not in self.manifest.entries:
            raise Conflict("is there, and no sync put it there")
        elif self.manifest.entries[path].key != safe_paths.key(info):
            raise Conflict("was changed on the host meanwhile")

    def _replace_folder(self, path: str, parts: Parts) -> None:
        entry = self.manifest.entries.get(path)
        try:
            if entry is not None and entry.own:
                self.root_folder().remove(parts, is_folder=True)
                self.manifest.drop(path)
                return
        except OSError:
            pass  # it is not empty
        raise Conflict("is a folder on the host")

    def record(self, path: str, kind: str, mode: int, content: str, info: os.stat_result) -> None:
        """Record a path that was written."""
        key = safe_paths.key(info)
        size = info.st_size if kind == "f" else 0
        self.manifest.put(path, manifest.ManifestEntry(kind, mode, content, size, key))

    def folder(self, path: str, mode: int, *, force: bool) -> None:
        """Create a folder; replace a file of an earlier sync. Raises Conflict, OSError."""
        parts, root = safe_paths.split(path), self.root_folder()
        try:
            info = root.lookup(parts)
        except OSError as e:
            raise Conflict(_conflict_text(e)) from None
        if info is not None and not stat.S_ISDIR(info.st_mode):
            entry = self.manifest.entries.get(path)
            is_ours = entry is not None and entry.own and entry.key == safe_paths.key(info)
            if not force and not is_ours:
                raise Conflict("is no folder on the host")
            root.remove(parts, is_folder=False)
        own = root.make(parts, mode)
        if own:
            self.created.add(parts)
        self.manifest.put(path, manifest.ManifestEntry("d", mode, "", 0, (), own))

    def link(self, path: str, target: str, *, force: bool) -> None:
        """Create a symbolic link. Raises Conflict, OSError."""
        parts = safe_paths.split(path)
        self.check(path, parts, force=force)
        self.record(
            path, "l", 0o777, target, self.root_folder().link(parts, safe_paths.encode(target))
        )

    def file(self, path: str, row: list[Any], data: memoryview, *, force: bool) -> None:
        """Write a whole file. Raises Conflict, OSError."""
        mode, content = row[1:3]
        parts = safe_paths.split(path)
        self.check(path, parts, force=force)
        self.record(path, "f", mode, content, self.root_folder().write(parts, data, mode & 0o777))

    def adopt(self, path: str, kind: str, mode: int, content: str) -> None:
        """Record an existing path with the same content; set the client's mode. Raises OSError."""
        parts = safe_paths.split(path)
        entry = self.manifest.entries.get(path)
        if kind == "f":
            fd = self.root_folder().open(parts)
            try:
                os.fchmod(fd, mode & 0o777 & ~umask())
                info = os.fstat(fd)
            finally:
                os.close(fd)
        else:
            link = self.root_folder().lookup(parts)
            if link is None:
                return
            info = link
        self.record(path, kind, mode, content, info)
        self.manifest.entries[path].own = entry is not None and entry.own

    def remove(self, path: str, *, force: bool) -> bool:
        """Remove an unchanged path of an earlier sync; return whether it was a file.

        Raises Conflict.
        """
        entry, parts = self.manifest.entries.get(path), safe_paths.split(path)
        if entry is None:
            return False
        is_folder = entry.kind == "d"
        try:
            info = self.root_folder().lookup(parts)
            if info is not None:
                if not entry.own:
                    return False
                changed = entry.key != safe_paths.key(info) and not is_folder
                if stat.S_ISDIR(info.st_mode) != is_folder or (changed and not force):
                    raise Conflict("was changed on the host, and stays")
                self.root_folder().remove(parts, is_folder=is_folder)
        except OSError as e:
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise Conflict(f"stays: {e.strerror}") from None
            return False  # the folder has files that are not ours
        self.manifest.drop(path)
        return info is not None and not is_folder


def place_suffix(path: str, owner: str, *, force: bool = False) -> str:
    """Return what a checkout adds to a path that is another one's: "", or part of its own id.

    A folder that no checkout owns is taken over, as is any with `force`: it may have been synced
    by a version that recorded no owner.
    """
    suffix = f"-{owner[:6]}"
    holders = [
        manifest.owner(home(), os.path.realpath(safe_paths.encode(path + end)))
        for end in ("", suffix)
    ]
    if holders[0] == owner or (holders[1] != owner and (force or not holders[0])):
        return ""
    return suffix


class Result:
    """What became of a sync so far."""

    def __init__(self) -> None:
        self.conflicts: list[tuple[str, str]] = []  # paths that were not written, and why
        self.not_removed: list[tuple[str, str]] = []  # paths that were not removed, and why
        self.removed = 0  # files
        self.finished = False
        self.failed = False  # by an error: nothing more is written


class Large:
    """A large file that is written to a part next to its path."""

    def __init__(self, fd: int, name: Parts) -> None:
        self.fd = fd
        self.name = name
        self.hash = hashlib.sha256()
        self.size = 0


def hash_of(fd: int, each: Callable[[], None]) -> str:
    """Return the hash of the unread bytes; `each` is called for each piece. Raises OSError."""
    hasher = hashlib.sha256()
    while True:
        each()
        data = os.read(fd, PIECE)
        if not data:
            return hasher.hexdigest()
        hasher.update(data)


def umask() -> int:
    """Return the umask of the process."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _is_fresh(target: bytes) -> bool:
    """Return whether the target is empty or missing. Raises OSError if it is no folder."""
    try:
        with os.scandir(target) as entries:
            return next(entries, None) is None
    except FileNotFoundError:
        return True


def existing(path: bytes) -> bytes:
    """Return the innermost existing folder of a path."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _conflict_text(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a folder of its path is a link, or a file, on the host"
    raise error
