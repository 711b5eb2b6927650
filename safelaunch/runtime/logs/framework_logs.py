"""Finds the framework's own log files: what the globs of a job's `logs:` name, now and later.

A project may be a huge tree on a slow file system, and the supervisor must stay idle: a walk is
done in slices, and takes a small share of the time.
"""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIRST = 0.1  # seconds of the first walk, before the job starts: what is there already
SHARE = 250  # a walk takes 1/250 of the time: idle, the whole supervisor may take 1/200 of a core
PAUSE = 2.0  # seconds between two walks of a small tree
REMEMBERED = 4096  # sizes at the start that are kept: about 1 MB
MOST_KNOWN = 16384  # files of which is kept how much has been read: about 5 MB
UNSURE = 1 << 16  # bytes read of a file that may be an old one: found late, and written since
DEEPEST = 32  # folders below each other


class Finder(object):
    """The files that globs below `cwd` name, with where to begin in each.

    `since` is the attempt's start (seconds since 1970). What lies in the folder of all runs is
    never named, nor are the paths in `skip`: the run itself writes there.
    """

    def __init__(
        self, globs: Sequence[str], cwd: str, since: float | None, runs: str, skip: Sequence[str]
    ) -> None:
        self.globs = [_split(glob, cwd) for glob in globs]
        self.since = time.time() if since is None else since
        self.runs = os.path.join(os.path.realpath(runs), "")
        self.skip = {os.path.realpath(path) for path in skip if path}
        self.offsets: dict[tuple[int, int], int] = {}  # what of a file is old, or has been read
        self.ours: set[tuple[int, int]] = set()  # files that get what comes from here
        self.seen: set[tuple[int, int]] | None = None  # in this walk, where some must be forgotten
        self.is_first = True
        self.walk = self._walk()
        self.next = 0.0
        self.tick(FIRST)  # finds sizes; nothing can be new yet

    def is_due(self) -> bool:
        """Whether it is time to look on."""
        return time.monotonic() >= self.next

    def look_again(self) -> None:
        """Let the next tick begin a walk of its own."""
        self.walk = self._walk()
        self.seen = set() if len(self.offsets) >= MOST_KNOWN // 2 else None

    def skip_file(self, key: tuple[int, int]) -> None:
        """Never name this file again."""
        if len(self.ours) < REMEMBERED:
            self.ours.add(key)

    def remembers(self, key: tuple[int, int]) -> bool:
        """Whether it can be kept how much of this file has been read."""
        return key in self.offsets or len(self.offsets) < MOST_KNOWN

    def tick(self, limit: float) -> list[tuple[str, tuple[int, int], int]]:
        """Look on for `limit` seconds; return (path, key, offset) of files with something new.

        The key is device and inode: a file keeps it when it is renamed.
        """
        begun = time.monotonic()
        found: list[tuple[str, tuple[int, int], int]] = []
        pause = 0.0
        for path in self.walk:
            if path:
                found += self._judge(path)
            if time.monotonic() - begun > limit:
                break
        else:
            self.is_first = False
            if self.seen is not None:
                self.offsets = {k: v for k, v in self.offsets.items() if k in self.seen}
            self.look_again()
            pause = PAUSE
        now = time.monotonic()
        self.next = now + max(pause, (now - begun) * SHARE)
        return found

    def _judge(self, path: str) -> list[tuple[str, tuple[int, int], int]]:
        try:
            info = os.stat(path)
        except OSError:
            return []
        if not stat.S_ISREG(info.st_mode):
            return []
        key = (info.st_dev, info.st_ino)
        if self.seen is not None:
            self.seen.add(key)
        if key in self.ours:
            return []
        if self.is_first and len(self.offsets) < REMEMBERED:
            self.offsets.setdefault(key, self._old_part(info))
        offset = self.offsets.get(key)
        if offset is None and info.st_mtime < self.since:
            return []  # an old one, beyond those that are remembered
        if offset is None or info.st_size < offset:
            offset = 0  # a new file, or an old one that was begun anew
        if info.st_size <= offset or self._is_ours(path):
            return []
        return [(path, key, offset)]

    def _old_part(self, info: os.stat_result) -> int:
        if self.next == 0.0 or info.st_mtime < self.since:  # 0.0: nothing has been started yet
            return info.st_size
        return max(0, info.st_size - UNSURE)

    def _is_ours(self, path: str) -> bool:
        real = os.path.realpath(path)
        return real in self.skip or real.startswith(self.runs)

    def _walk(self) -> Iterator[str]:
        for folder, parts in self.globs:
            yield from matches(folder, parts)


def matches(folder: str, parts: Sequence[str], depth: int = 0) -> Iterator[str]:
    """Yield the paths that a split glob names below a folder, and "" for each that is passed by.

    As in a shell, hidden names must be named; `**` is any number of folders, links not followed.
    """
    head, rest = parts[0], parts[1:]
    if depth > DEEPEST:
        return
    if head == "**":
        yield from matches(folder, rest or ("*",), depth)
        for entry in _entries(folder):
            yield ""
            if not entry.name.startswith(".") and _is_folder(entry):
                yield from matches(entry.path, parts, depth + 1)
        return
    for path in _named(folder, head):
        if path and rest:
            yield from matches(path, rest, depth + 1)
        else:
            yield path


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # not known from the entry alone (NFS, FUSE), and not to be asked either
        return False


def _named(folder: str, glob: str) -> Iterator[str]:
    if not any(mark in glob for mark in "*?["):
        yield os.path.join(folder, glob)
        return
    for entry in _entries(folder):
        yield entry.path if _fits(entry.name, glob) else ""


def _split(glob: str, cwd: str) -> tuple[str, Sequence[str]]:
    parts = os.path.normpath(glob).split(os.sep)
    return (os.sep, parts[1:]) if os.path.isabs(glob) else (cwd, parts)


def _fits(name: str, glob: str) -> bool:
    import fnmatch  # noqa: PLC0415 - it brings re: only a job that names files pays for that

    return (glob[0] == "." or name[0] != ".") and fnmatch.fnmatchcase(name, glob)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return {path: its last parts}, as few as tell it from the others."""
    found = {}
    for path in paths:
        parts = path.split(os.sep)
        for count in range(1, len(parts) + 1):
            short = os.sep.join(parts[-count:])
            if sum(("/" + other).endswith("/" + short) for other in paths) == 1:
                break
        found[path] = short
    return found
