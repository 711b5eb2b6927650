"""Contents of code that no commit has, by their hash, below safelaunch's folder.

What one run adds is one file, the pack: thousands of small files would take seconds. `index` has a
line for each content: its hash, its pack, and where it is in it. Readable by their owner only; a
content is written once, however many runs have it.
"""

from __future__ import annotations

import os
import time
import zlib

from safelaunch.runtime import json_files
from safelaunch.runtime.code import manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from typing import BinaryIO

_FOLDER, _INDEX, _PART = "code", "index", ".part"
_ABANDONED = 86400  # seconds after which no start works on a file any more
# An edit is compressed: half of the size at a fifth of the time of the default level. A whole
# project is not, at level 0: to compress it takes longer than all else of a start.
_LEVEL, _WHOLE_LEVEL = 1, 0
_EDIT = 1 << 20  # bytes in the pack of one run
_FIELDS = 4  # of a line of the index
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


class ContentStore:
    """The contents below safelaunch's folder `home`; `close` makes what was added last."""

    def __init__(self, home: str) -> None:
        self._folder = os.path.join(home, _FOLDER)
        self._places = self._read_index()
        self._reused: set[str] = set()  # packs that `sweep` leaves alone
        self._added: dict[str, tuple[int, int]] = {}  # content -> position and size in the pack
        self._pack: BinaryIO | None = None
        self._pack_name = os.urandom(8).hex()
        self._size = 0

    def _read_index(self) -> dict[str, tuple[str, int, int]]:
        try:
            with open(self._path(_INDEX), encoding="ascii", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError:
            return {}
        try:
            packs = set(os.listdir(self._folder))
        except OSError:
            return {}
        places = {}
        for row in map(str.split, lines):  # tens of thousands, at each start
            if len(row) == _FIELDS and row[1] in packs:  # not torn, and not swept since
                try:
                    places[row[0]] = (row[1], int(row[2]), int(row[3]))
                except ValueError:
                    pass
        return places

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, os.path.basename(name))

    def has(self, content: str) -> bool:
        """Whether the content with a hash is there; then it stays for some hours at least."""
        if content not in self._places:
            return content in self._added
        pack = self._places[content][0]
        if pack not in self._reused:
            try:
                if time.time() - os.stat(self._path(pack)).st_mtime > _ABANDONED / 2:
                    os.utime(self._path(pack))
            except OSError:
                return False  # swept just now
            self._reused.add(pack)
        return True

    def put(self, data: bytes, content: str | None = None) -> str:
        """Add a content, if it is not there yet, and return its hash. Raises OSError.

        `content`: the hash, where the caller has computed it.
        """
        content = content or manifest.digest(data)
        if not self.has(content):
            if self._pack is None:
                os.makedirs(self._folder, 0o700, exist_ok=True)
                self._sweep()
                flags = _APPEND | os.O_EXCL
                fd = os.open(self._path(self._pack_name + _PART), flags, 0o600)
                self._pack = os.fdopen(fd, "wb")
            packed = zlib.compress(data, _LEVEL if self._size < _EDIT else _WHOLE_LEVEL)
            self._pack.write(packed)
            self._added[content] = self._size, len(packed)
            self._size += len(packed)
        return content

    def matching(self, digits: str) -> list[str]:
        """Return the hashes that begin with some digits."""
        return [content for content in self._places if digits and content.startswith(digits)]

    def sweep(self, needed: Container[str], *, is_dry: bool) -> Iterator[int]:
        """Remove packs without any needed content; yield the bytes of each.

        Those of the last day stay: a start may not have recorded yet what it needs. The lines of
        the index stay too, and count for nothing without their pack.
        """
        packs = {pack for pack, _, _ in self._places.values()}
        packs -= {place[0] for content, place in self._places.items() if content in needed}
        for pack in sorted(packs):
            try:
                info = os.stat(self._path(pack))
                if time.time() - info.st_mtime > _ABANDONED:
                    if not is_dry:
                        os.unlink(self._path(pack))
                    yield info.st_size
            except OSError:
                pass

    def _sweep(self) -> None:
        """Remove what starts that were killed have left."""
        for name in os.listdir(self._folder):
            path = self._path(name)
            if name.endswith(_PART) and time.time() - os.stat(path).st_mtime > _ABANDONED:
                json_files.remove(path)

    def close(self) -> None:
        """Write what was added: all of it, or nothing. Raises OSError."""
        if self._pack is None:
            return
        pack, self._pack = self._pack, None
        part, name = self._path(self._pack_name + _PART), self._pack_name
        try:
            pack.close()
            os.replace(part, self._path(name))
            lines = [f"{c} {name} {at} {size}\n" for c, (at, size) in self._added.items()]
            fd = os.open(self._path(_INDEX), _APPEND, 0o600)
            with os.fdopen(fd, "ab") as index:
                # a line of its own first: an earlier writer may have been cut off in the middle
                index.write("".join(["\n", *lines]).encode("ascii"))
        except OSError:
            json_files.remove(part)
            raise
        self._places.update({c: (name, *place) for c, place in self._added.items()})

    def get(self, content: str) -> bytes | None:
        """Return the content with a hash; None where it is not there, or damaged."""
        pack, at, size = self._places.get(content, ("", 0, 0))
        try:
            with open(self._path(pack), "rb") as file:
                file.seek(at)
                data = zlib.decompress(file.read(size))
        except (OSError, zlib.error, OverflowError, ValueError):
            return None
        return data if manifest.digest(data) == content else None
