"""Finds the framework's own log files: the files that match the globs of a job's `logs:`.

A project may be a huge tree on a slow file system, and the supervisor must stay idle: a walk is
done in slices, and takes a small share of the time.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Tuple

    Key = Tuple[int, int]  # device and inode: a file keeps it when it is renamed
    NewPart = Tuple[str, Key, int]  # path, key, offset

FIRST_WALK = 0.1  # seconds of the first walk, before the job starts: it records the existing files
# walks take 1/250 of a core: idle, the whole supervisor may take 1/200. They take 1/10 of the time:
# a walk may wait for a slow file system, or for a core on a busy machine
PAUSE_FACTOR, WAIT_FACTOR = 250, 10
PAUSE = 2.0  # seconds between two walks of a small tree
# a file's time lags behind time.time() by up to a tick of the kernel, 10 ms at 100 Hz (time(7))
CLOCK_TICK = 0.02
MAX_INITIAL_SIZES = 4096  # files whose size at the start is recorded: about 1 MB
MAX_TRACKED = 16384  # files whose read offset is recorded: about 5 MB
UNSURE_TAIL = 1 << 16  # bytes read of an old file found late: it may have grown since the start
MAX_DEPTH = 32  # levels of nested folders


class GlobWatcher:
    """Finds the files that match globs below `cwd`, and the offset of the new part of each.

    `since` is the attempt's start (seconds since 1970). Files in the folder of all runs are never
    returned, nor are the paths in `skip`: the run itself writes there.
    """

    def __init__(
        self, globs: Sequence[str], cwd: str, since: float | None, runs: str, skip: Sequence[str]
    ) -> None:
        self.globs = [_split(glob, cwd) for glob in globs]
        self.since = (time.time() if since is None else since) - CLOCK_TICK
        self.runs = os.path.join(os.path.realpath(runs), "")
        self.skip = {os.path.realpath(path) for path in skip if path}
        self.offsets: dict[Key, int] = {}  # bytes of a file that are old or have been read
        self.echo_files: set[Key] = set()  # files that get the output of the merged log
        self.walked: set[Key] | None = None  # files of this walk, if others are to be dropped
        self.is_first = True
        self.is_started = False  # whether the job may have written
        self.walk = self._walk()
        self.next_walk_at = 0.0
        self.tick(FIRST_WALK)  # records sizes; no file is new yet
        self.is_started = True

    def restart_walk(self) -> None:
        """Start a new walk."""
        self.walk = self._walk()
        self.walked = set() if len(self.offsets) >= MAX_TRACKED // 2 else None

    def skip_file(self, key: Key) -> None:
        """Never return this file again."""
        if len(self.echo_files) < MAX_INITIAL_SIZES:
            self.echo_files.add(key)

    def can_track(self, key: Key) -> bool:
        """Return whether the read offset of this file can be recorded."""
        return key in self.offsets or len(self.offsets) < MAX_TRACKED

    def tick(self, limit: float) -> list[NewPart]:
        """Walk on for `limit` seconds; return the files with new bytes."""
        started, cpu_before = time.monotonic(), time.thread_time()
        files: list[NewPart] = []
        pause = 0.0
        for path in self.walk:
            if path:
                files += self._new_part(path)
            if time.monotonic() - started > limit:
                break
        else:
            self.is_first = False
            if self.walked is not None:
                self.offsets = {k: v for k, v in self.offsets.items() if k in self.walked}
            self.restart_walk()
            pause = PAUSE
        now = time.monotonic()
        cpu_pause = (time.thread_time() - cpu_before) * PAUSE_FACTOR
        self.next_walk_at = now + max(pause, cpu_pause, (now - started) * WAIT_FACTOR)
        return files

    def _new_part(self, path: str) -> list[NewPart]:
        try:
            info = os.stat(path)
        except OSError:
            return []
        if not stat.S_ISREG(info.st_mode):
            return []
        key = (info.st_dev, info.st_ino)
        if self.walked is not None:
            self.walked.add(key)
        if key in self.echo_files:
            return []
        if self.is_first and len(self.offsets) < MAX_INITIAL_SIZES:
            is_old = not self.is_started or info.st_mtime < self.since
            old_size = info.st_size if is_old else max(0, info.st_size - UNSURE_TAIL)
            self.offsets.setdefault(key, old_size)
        offset = self.offsets.get(key)
        if offset is None and info.st_mtime < self.since:
            return []  # an old file, beyond those that are recorded
        if offset is None or info.st_size < offset:
            offset = 0  # a new file, or an old one that was rewritten
        if info.st_size <= offset:
            return []
        real = os.path.realpath(path)
        is_ours = real in self.skip or real.startswith(self.runs)
        return [] if is_ours else [(path, key, offset)]

    def _walk(self) -> Iterator[str]:
        for folder, parts in self.globs:
            yield from matches(folder, parts)


def matches(folder: str, parts: Sequence[str], depth: int = 0) -> Iterator[str]:
    """Yield the paths below a folder that match a split glob, and "" for each other entry.

    As in a shell, hidden names must be named; `**` is any number of folders, links not followed.
    """
    head, tail = parts[0], parts[1:]
    if depth > MAX_DEPTH:
        return
    if head == "**":
        yield from matches(folder, tail or ("*",), depth)
        for entry in _entries(folder):
            yield ""
            if not entry.name.startswith(".") and _is_folder(entry):
                yield from matches(entry.path, parts, depth + 1)
        return
    if not any(mark in head for mark in "*?["):
        paths = iter([os.path.join(folder, head)])
    else:
        paths = (
            entry.path
            if (head[0] == "." or entry.name[0] != ".") and fnmatch.fnmatchcase(entry.name, head)
            else ""
            for entry in _entries(folder)
        )
    for path in paths:
        if path and tail:
            yield from matches(path, tail, depth + 1)
        else:
            yield path


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # the entry has no type (NFS, FUSE), and stat() fails too
        return False


def _split(glob: str, cwd: str) -> tuple[str, Sequence[str]]:
    parts = os.path.normpath(glob).split(os.sep)
    return (os.sep, parts[1:]) if os.path.isabs(glob) else (cwd, parts)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return {path: the fewest last parts that are unique}."""
    names = {}
    for path in paths:
        parts = path.split(os.sep)
        for count in range(1, len(parts) + 1):
            short = os.sep.join(parts[-count:])
            if sum(("/" + other).endswith("/" + short) for other in paths) == 1:
                break
        names[path] = short
    return names
