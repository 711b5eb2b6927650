"""Reading a log file: on from a position, its last lines, and across what log_cap has cut out."""

from __future__ import annotations

import errno
import os

from safelaunch.runtime.cap import size

_CHUNK = 1 << 16
_BLOCK = 4096
_NULS = bytes(_CHUNK)  # a hole that a copy has filled: nobody logs so many of them


def read_on(path: str, position: int) -> tuple[int, bytes]:
    """Return the new position and what was read; a file that was begun anew is read anew.

    What has been cut out is named in a line of its own.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size < position:
                position = 0
            begin, end = _data(file.fileno(), position)
            file.seek(begin)
            data = file.read(min(_CHUNK, end - begin))
            if data.endswith(_NULS[:_BLOCK]):
                data = data.rstrip(b"\0") or data  # what follows may be such a hole
            while data == _NULS:
                begin += len(data)
                data = file.read(_CHUNK)
    except OSError:
        return position, b""
    if begin > position:
        data = (
            f"\n[safelaunch: {size(begin - position)} left out here by log_cap]\n".encode() + data
        )
        return begin + len(data), data
    return position + len(data), data


def _data(fd: int, position: int) -> tuple[int, int]:
    """Return begin and end of the next part that holds data; equal to each other at the end."""
    end = os.fstat(fd).st_size
    if not hasattr(os, "SEEK_DATA"):  # Windows
        return position, end
    try:
        begin = os.lseek(fd, position, os.SEEK_DATA)
        return begin, os.lseek(fd, begin, os.SEEK_HOLE)
    except OSError as e:
        # ENXIO: no data behind it; EINVAL: a file system without holes
        return position, position if e.errno == errno.ENXIO else end


def last_lines(path: str, count: int) -> int:
    """Return the position at which the last lines of a file begin; 0 if it has no more."""
    try:
        with open(path, "rb", buffering=0) as file:
            return _find_back(file.fileno(), os.fstat(file.fileno()).st_size, count)
    except OSError:
        return 0


def _find_back(fd: int, end: int, count: int) -> int:
    if count == 0:
        return end
    if end and os.pread(fd, 1, end - 1) == b"\n":
        count += 1  # the end of the last line begins no other
    while end > 0:
        begin = max(0, end - _CHUNK)
        data = os.pread(fd, end - begin, begin)
        found = data.count(b"\n")
        if found >= count:
            cut = len(data)
            for _ in range(count):
                cut = data.rindex(b"\n", 0, cut)
            return begin + cut + 1
        count -= found
        end = begin
    return 0
