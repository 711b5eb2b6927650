"""One sync as the host sees it: what stands in the target, and what may be put there.

Nothing is written but below the target, no link is followed there, and what no sync put there, or
somebody changed since, is a Conflict unless the client forces it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat

from safelaunch.runtime.home import home
from safelaunch.runtime.transfer import manifest, safe_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from safelaunch.runtime.transfer.safe_paths import Parts

PIECE = 1 << 20


class Conflict(Exception):  # noqa: N818 - reads as what happened
    """Something is there that no sync put there, or that was changed since; str says what."""


class Session(object):
    """A sync that is going on."""

    def __init__(self, target: str, *, take_over: bool = False) -> None:
        path = safe_paths.encode(os.path.join(os.path.expanduser("~"), _expanded(target)))
        self.target = os.path.realpath(path)
        lock = manifest.place(home(), self.target) + ".lock"
        self.hold = manifest.Hold(lock, take_over=take_over)
        try:
            self.fresh = _is_fresh(self.target)
            self.root = None  # type: safe_paths.Below | None
            self.manifest = manifest.of(home(), self.target)
            if self.fresh:
                self.manifest.reset()
        except OSError:
            self.hold.close()
            raise
        self.made = set()  # type: set[Parts] # folders that were not there before
        self.blocked = {(): False}  # type: dict[Parts, bool]
        self.large = {}  # type: dict[str, Large]

    def close(self) -> None:
        """End it; what has arrived is on record."""
        for large in self.large.values():
            os.close(large.fd)
        if self.root is not None:
            self.root.close()
        self.hold.close()

    def below(self) -> safe_paths.Below:
        """Return the target, made if it is not there. Raises OSError."""
        if self.root is None:
            if not os.path.isdir(self.target):
                os.makedirs(self.target, exist_ok=True)
                self.manifest = manifest.of(home(), self.target)  # its inode is known now
            self.root = safe_paths.Below(self.target)
        return self.root

    # -- what is there

    def rows(self) -> list[list[Any]]:
        """Return a row for each path on record."""
        if self.fresh:
            return []
        found = []
        for path, entry in sorted(self.manifest.entries.items()):
            if entry.kind == "p":
                self._drop_stale(path)
            else:
                found.append(self._row(path, entry))
        self.manifest.flush()
        return found

    def _row(self, path: str, entry: manifest.Entry) -> list[Any]:
        parts = safe_paths.split(path)
        info = None
        state, content, mode, size = "", entry.content, entry.mode, entry.size
        if self._is_blocked(parts[:-1]):
            return [path, entry.kind, mode, content, size, "b"]
        try:
            info = os.lstat(os.path.join(self.target, *parts))
        except OSError:
            return [path, entry.kind, mode, content, size, "g"]
        key = safe_paths.key(info)
        if entry.kind == "d":
            return [path, "d", mode, "", 0, "" if stat.S_ISDIR(info.st_mode) else "c"]
        if key != entry.key:
            kind, content, mode, size = self._today(parts, info, entry)
            same = (kind, content) == (entry.kind, entry.content)
            state = "" if same else "c"
            if same:
                new = manifest.Entry(kind, mode, content, size, key, entry.own)
                self.manifest.put(path, new)
            return [path, kind, mode, content, size, state]
        return [path, entry.kind, mode, content, size, state]

    def _today(
        self, parts: Parts, info: os.stat_result, entry: manifest.Entry | None = None
    ) -> tuple[str, str, int, int]:
        """Return kind, content, mode and size of what is there now."""
        if stat.S_ISLNK(info.st_mode):
            return "l", safe_paths.decode(self.below().read_link(parts)), 0o777, 0
        if stat.S_ISDIR(info.st_mode):
            return "d", "", info.st_mode & 0o777, 0
        if not stat.S_ISREG(info.st_mode):
            return "?", "", 0, 0
        mode = info.st_mode & 0o777
        if entry is not None and mode == entry.mode & ~umask():
            mode = entry.mode  # nobody changed it
        try:
            fd = self.below().open(parts)
        except OSError:
            return "?", "", mode, info.st_size  # it cannot be read: then it is not ours
        try:
            return "f", hash_of(fd, self.hold.beat), mode, info.st_size
        finally:
            os.close(fd)

    def _is_blocked(self, folder: Parts) -> bool:
        """Whether one of the folders on the way is no folder."""
        known = self.blocked.get(folder)
        if known is None:
            known = self._is_blocked(folder[:-1])
            if not known:
                try:
                    info = os.lstat(os.path.join(self.target, *folder))
                    known = not stat.S_ISDIR(info.st_mode)
                except OSError:
                    known = False  # gone: it can be made again
            self.blocked[folder] = known
        return known

    def _drop_stale(self, path: str) -> None:
        try:
            info = os.lstat(os.path.join(self.target, *safe_paths.split(path)))
            if not manifest.is_stale(info):
                return
            self.below().remove(safe_paths.split(path), is_folder=False)
        except OSError:
            pass
        self.manifest.drop(path)

    def look(self, paths: list[list[Any]]) -> list[list[Any]]:
        """Return rows of those that are there; the content only where the size is the same."""
        found = []
        for path, size in paths:
            parts = safe_paths.split(path)
            if self._is_blocked(parts[:-1]):
                found.append([path, "?", 0, "", 0, "b"])
                continue
            try:
                info = os.lstat(os.path.join(self.target, *parts))
            except OSError:
                continue
            if stat.S_ISREG(info.st_mode) and info.st_size != size:
                found.append([path, "f", 0, "", info.st_size, ""])
            else:
                kind, content, mode, now = self._today(parts, info)
                found.append([path, kind, mode, content, now, ""])
        return found

    # -- what is put there

    def check(self, path: str, parts: Parts, *, force: bool) -> None:
        """Raise Conflict where writing a file would take away what is not ours."""
        if parts[:-1] in self.made:
            return
        try:
            info = self.below().look(parts)
        except OSError as e:
            raise Conflict(_no_folder(e)) from None
        if info is None:
            return
        if stat.S_ISDIR(info.st_mode):
            self._give_way(path, parts)
        elif force:
            return
        elif path not in self.manifest.entries:
            raise Conflict("is there, and no sync put it there")
        elif self.manifest.entries[path].key != safe_paths.key(info):
            raise Conflict("was changed on the host meanwhile")

    def _give_way(self, path: str, parts: Parts) -> None:
        entry = self.manifest.entries.get(path)
        try:
            if entry is not None and entry.own:
                self.below().remove(parts, is_folder=True)
                self.manifest.drop(path)
                return
        except OSError:
            pass  # it is not empty
        raise Conflict("is a folder on the host")

    def record(self, path: str, kind: str, mode: int, content: str, info: os.stat_result) -> None:
        """Note what was put there."""
        key = safe_paths.key(info)
        size = info.st_size if kind == "f" else 0
        self.manifest.put(path, manifest.Entry(kind, mode, content, size, key))

    def folder(self, path: str, mode: int, *, force: bool) -> None:
        """Make a folder; a file of an earlier sync gives way. Raises Conflict, OSError."""
        parts, root = safe_paths.split(path), self.below()
        try:
            info = root.look(parts)
        except OSError as e:
            raise Conflict(_no_folder(e)) from None
        if info is not None and not stat.S_ISDIR(info.st_mode):
            entry = self.manifest.entries.get(path)
            ours = entry is not None and entry.own and entry.key == safe_paths.key(info)
            if not force and not ours:
                raise Conflict("is no folder on the host")
            root.remove(parts, is_folder=False)
        own = root.make(parts, mode)
        if own:
            self.made.add(parts)
        self.manifest.put(path, manifest.Entry("d", mode, "", 0, (), own))

    def link(self, path: str, target: str, *, force: bool) -> None:
        """Put a symbolic link. Raises Conflict, OSError."""
        parts = safe_paths.split(path)
        self.check(path, parts, force=force)
        self.record(path, "l", 0o777, target, self.below().link(parts, safe_paths.encode(target)))

    def file(self, path: str, row: list[Any], data: memoryview, *, force: bool) -> None:
        """Put a whole file. Raises Conflict, OSError."""
        mode, content = row[1:3]
        parts = safe_paths.split(path)
        self.check(path, parts, force=force)
        self.record(path, "f", mode, content, self.below().write(parts, data, mode & 0o777))

    def adopt(self, path: str, kind: str, mode: int, content: str) -> None:
        """Record what is there and the same, and give it the client's mode. Raises OSError."""
        parts = safe_paths.split(path)
        entry = self.manifest.entries.get(path)
        if kind == "f":
            fd = self.below().open(parts)
            try:
                os.fchmod(fd, mode & 0o777 & ~umask())
                info = os.fstat(fd)
            finally:
                os.close(fd)
        else:
            found = self.below().look(parts)
            if found is None:
                return
            info = found
        self.record(path, kind, mode, content, info)
        self.manifest.entries[path].own = entry is not None and entry.own

    def remove(self, path: str, *, force: bool) -> bool:
        """Remove what an earlier sync put there and nobody changed; whether a file went.

        Raises Conflict.
        """
        entry, parts = self.manifest.entries.get(path), safe_paths.split(path)
        if entry is None:
            return False
        is_folder = entry.kind == "d"
        try:
            info = self.below().look(parts)
            if info is not None:
                if not entry.own:
                    return False
                changed = entry.key != safe_paths.key(info) and not is_folder
                if stat.S_ISDIR(info.st_mode) != is_folder or (changed and not force):
                    raise Conflict("was changed on the host, and stays")
                self.below().remove(parts, is_folder=is_folder)
        except OSError as e:
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise Conflict("stays: %s" % e.strerror) from None
            return False  # it holds what is not ours
        self.manifest.drop(path)
        return info is not None and not is_folder


class Large(object):
    """A large file that is arriving in a part beside its place."""

    def __init__(self, fd: int, name: Parts) -> None:
        self.fd = fd
        self.name = name
        self.hash = hashlib.sha256()
        self.size = 0


# -- small things ----------------------------------------------------------------------------------


def hash_of(fd: int, each: Callable[[], None]) -> str:
    """Return the hash of what is left to read; `each` is called now and then. Raises OSError."""
    found = hashlib.sha256()
    while True:
        each()
        data = os.read(fd, PIECE)
        if not data:
            return found.hexdigest()
        found.update(data)


def umask() -> int:
    """Return the bits that new files do without here."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _expanded(target: str) -> str:
    return os.path.expanduser(target) if target.startswith("~") else target


def _is_fresh(target: bytes) -> bool:
    """Whether nothing can be there. Raises OSError for what is no folder."""
    try:
        with os.scandir(target) as found:
            return next(found, None) is None
    except FileNotFoundError:
        return True


def existing(path: bytes) -> bytes:
    """Return the innermost folder on the way to a path that is there."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _no_folder(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a folder of its path is a link, or a file, on the host"
    raise error
