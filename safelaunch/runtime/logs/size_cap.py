"""Keeps log files from growing without end: cuts a hole between their head and their tail.

Offsets never move, so neither a process that appends nor one that reads is disturbed. Where a file
system cannot cut holes, files grow as they did before, and that is said once.
"""

from __future__ import annotations

import os

from safelaunch.runtime.units import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LIMIT = 4 << 30  # bytes that one log keeps, unless the job's `log_cap` says otherwise
# The head tells what was started: versions, configuration, the first steps; hardly ever much. Of
# the rest the newest half stays, and what is cut at once is then large: a cut is not for each look.
HEAD, TAIL = 8, 2  # parts of the limit: an eighth and a half
KEEP_SIZE, PUNCH_HOLE = 0x1, 0x2  # fallocate(2)


class Cap(object):
    """The limit of each log file of a run, in bytes; 0 for none."""

    def __init__(self, libc: Any, limit: int) -> None:
        self.limit = limit
        self.cut = {}  # type: dict[tuple[int, int], int]  # {device and inode: end of the hole}
        self.told = set()  # type: set[str]
        self.fallocate = _typed(libc)

    def tick(self, offsets: Mapping[str, int], fds: Sequence[int]) -> str:
        """Cut what is too long; return what the user must know, each thing once, or nothing.

        `offsets` is {path: bytes that have been read}, beyond which nothing is cut; of `fds`, open
        for writing, everything may be; -1 is passed over. A file may be longer than the limit by
        what comes between two looks.
        """
        if self.limit <= 0:
            return ""
        said = [self._look(fd, None) for fd in fds if fd >= 0]
        for path, offset in offsets.items():
            try:
                if os.stat(path).st_size <= self.limit:
                    continue  # nearly all: only a long one is opened
                fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            except OSError:
                continue  # the run directory was removed
            try:
                said.append(self._look(fd, offset))
            finally:
                os.close(fd)
        fresh = [text for text in said if text and text not in self.told]
        self.told.update(fresh)
        return "; ".join(sorted(set(fresh)))

    def _look(self, fd: int, read: int | None) -> str:
        info = os.fstat(fd)
        key = (info.st_dev, info.st_ino)
        head = _up(self.limit // HEAD, info.st_blksize)
        begin = max(head, self.cut.get(key, 0))
        if info.st_size < begin:
            self.cut.pop(key, None)  # it was emptied and begins anew
            begin = head
        # by its length too: xfs counts blocks ahead of the end (xfs(5), allocsize)
        kept = min(info.st_blocks * 512, head + info.st_size - begin)
        if kept <= self.limit:
            return ""
        end = info.st_size - self.limit // TAIL
        end -= max(0, end - read) if read is not None else 0
        end -= end % info.st_blksize
        if end <= begin:
            return ""
        error = self._punch(fd, begin, end - begin)
        if error:
            return "log_cap is not kept, logs grow without end: %s" % error
        self.cut[key] = end
        return "a log grew over log_cap (%s): its middle is left out" % size(self.limit)

    def _punch(self, fd: int, begin: int, length: int) -> str:
        if self.fallocate is None:
            return "this Python cannot ask the file system for it"
        if self.fallocate(fd, KEEP_SIZE | PUNCH_HOLE, begin, length) == 0:
            return ""
        import ctypes  # noqa: PLC0415 - a Python may be built without it

        return os.strerror(ctypes.get_errno())  # EOPNOTSUPP: old NFS, FAT


def _up(number: int, block: int) -> int:
    return -(-number // block) * block


def _typed(libc: Any) -> Any:
    try:
        import ctypes  # noqa: PLC0415 - a Python may be built without it

        call = getattr(libc, "fallocate64", None) or libc.fallocate
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    except (AttributeError, ImportError):
        return None
    return call
