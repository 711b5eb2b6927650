"""Limits the size of log files: cuts a hole between the head and the tail of a long one.

Offsets never move, so neither a process that appends nor one that reads is disturbed. Where a file
system cannot cut holes, files grow without limit, and one warning says so.
"""

# ruff: noqa: PLC0415 - a Python may be built without ctypes

from __future__ import annotations

import os

from safelaunch.runtime.units import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LIMIT = 4 << 30  # bytes that one log keeps, unless the job's `log_cap` says otherwise
# The head holds versions, configuration and the first steps, hardly ever much. Of the rest the
# newest half stays, so that each cut is large and cuts are rare.
HEAD, TAIL = 8, 2  # parts of the limit: an eighth and a half
KEEP_SIZE, PUNCH_HOLE = 0x1, 0x2  # fallocate(2)


class LogSizeCap:
    """The limit of each log file of a run, in bytes; 0 for none."""

    def __init__(self, libc: Any, limit: int) -> None:
        self.limit = limit
        self.holes: dict[tuple[int, int], int] = {}  # {device and inode: end of the hole}
        self.reported: set[str] = set()
        self.fallocate = _fallocate(libc)

    def tick(self, offsets: Mapping[str, int], fds: Sequence[int]) -> str:
        """Cut the files that are too long; return new warnings for the user, or "".

        `offsets` is {path: bytes that have been read}, beyond which nothing is cut; `fds`, open
        for writing, may be cut anywhere; -1 is skipped. A file may exceed the limit by what is
        written between two calls.
        """
        if self.limit <= 0:
            return ""
        warnings = [self._cut(fd, None) for fd in fds if fd >= 0]
        for path, offset in offsets.items():
            try:
                if os.stat(path).st_size <= self.limit:
                    continue  # most files: only a long one is opened
                fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            except OSError:
                continue  # the run directory was removed
            try:
                warnings.append(self._cut(fd, offset))
            finally:
                os.close(fd)
        new_warnings = [text for text in warnings if text and text not in self.reported]
        self.reported.update(new_warnings)
        return "; ".join(sorted(set(new_warnings)))

    def _cut(self, fd: int, read: int | None) -> str:
        info = os.fstat(fd)
        key = (info.st_dev, info.st_ino)
        head = _round_up(self.limit // HEAD, info.st_blksize)
        start = max(head, self.holes.get(key, 0))
        if info.st_size < start:
            self.holes.pop(key, None)  # it was truncated
            start = head
        # by its length too: xfs counts blocks ahead of the end (xfs(5), allocsize)
        used = min(info.st_blocks * 512, head + info.st_size - start)
        if used <= self.limit:
            return ""
        end = info.st_size - self.limit // TAIL
        end -= max(0, end - read) if read is not None else 0
        end -= end % info.st_blksize
        if end <= start:
            return ""
        error = self._punch(fd, start, end - start)
        if error:
            return f"log_cap does not work, logs grow without limit: {error}"
        self.holes[key] = end
        return f"a log grew over log_cap ({size(self.limit)}): its middle was cut out"

    def _punch(self, fd: int, start: int, length: int) -> str:
        if self.fallocate is None:
            return "this Python has no fallocate"
        if self.fallocate(fd, KEEP_SIZE | PUNCH_HOLE, start, length) == 0:
            return ""
        import ctypes

        return os.strerror(ctypes.get_errno())  # EOPNOTSUPP: old NFS, FAT


def _round_up(number: int, block: int) -> int:
    return -(-number // block) * block


def _fallocate(libc: Any) -> Any:
    try:
        import ctypes

        call = getattr(libc, "fallocate64", None) or libc.fallocate
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    except (AttributeError, ImportError):
        return None
    return call
