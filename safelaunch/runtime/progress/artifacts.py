"""Which files of `success.artifacts` a run has written: those that were there before do not count.

A file is compared with its own state before the start (inode, size, time of change), not with a
clock: that of a network file system is another one.
"""

from __future__ import annotations

import glob
import os
import time

from safelaunch.runtime.progress import checkpoints
from safelaunch.runtime.units import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SLACK = 2.0  # seconds: file systems round times down to whole seconds, FAT to even ones


class EarlierFiles:
    """The state of what the globs matched before the start."""

    def __init__(self, patterns: Iterable[str] = (), cwd: str = "/") -> None:
        self.at = time.time()
        budget = [checkpoints.SCAN_LIMIT]
        paths = [path for p in patterns for path in checkpoints.matches(p, cwd, budget)]
        self.states = {os.path.realpath(path): _state(path) for path in paths}
        self.is_complete = budget[0] > 0  # a huge tree is not walked to its end

    def is_new(self, path: str) -> bool:
        """Whether a path has come or changed since; of one that was not seen its time decides."""
        state, real = _state(path), os.path.realpath(path)
        if state is None or real in self.states:
            return state is not None and state != self.states[real]
        return self.is_complete or state[2] / 1e9 >= self.at - SLACK


def missing(pattern: str, cwd: str, before: EarlierFiles) -> str:
    """Return why no match of a glob is of this run: `there is none`; "" where one is."""
    paths = glob.glob(os.path.join(cwd, pattern), recursive=True)
    if any(before.is_new(path) for path in paths):
        return ""
    dated = [(state[2], path) for path in paths for state in [_state(path)] if state is not None]
    if not dated:
        return "there is none"
    changed, path = max(dated)
    seconds, name = time.time() - changed / 1e9, os.path.relpath(path, cwd)
    age = f" ({duration(seconds)} old)" if seconds > 0 else ""  # else the clocks differ
    return f"but {name}{age} was there before, and this run did not write it anew"


def _state(path: str) -> tuple[int, int, int] | None:
    """Return inode, size and time of change of a file, or of a folder with what is in it."""
    try:
        about = os.stat(path)
        size, changed = about.st_size, about.st_mtime_ns
        if os.path.isdir(path):  # its files may be written in place
            with os.scandir(path) as entries:
                for entry in entries:
                    inside = entry.stat()
                    size += inside.st_size
                    changed = max(changed, inside.st_mtime_ns)
    except OSError:
        return None
    return about.st_ino, size, changed
