"""Reads a log file: as it grows, its last lines, and across holes that log_cap has cut."""

from __future__ import annotations

import errno
import os
import sys
import time

from safelaunch.runtime.records import Status
from safelaunch.runtime.units import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

END = "end"
TICK = 0.015  # seconds between two polls of a growing log
CHECK = 4 * TICK  # seconds between two checks of a run that records nothing
_CHUNK = 1 << 16
_BLOCK = 4096
_NULS = bytes(_CHUNK)  # a hole that a copy has filled with zeros: no program logs so many


def read_from(path: str, position: int) -> tuple[int, bytes]:
    """Return the new position and the data read; a truncated file is read from its start.

    A hole that log_cap has cut is replaced by a line that says so.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size < position:
                position = 0
            start, end = _data(file.fileno(), position)
            file.seek(start)
            data = file.read(min(_CHUNK, end - start))
            if data.endswith(_NULS[:_BLOCK]):
                data = data.rstrip(b"\0") or data  # a filled hole may follow
            while data == _NULS:
                start += len(data)
                data = file.read(_CHUNK)
    except OSError:
        return position, b""
    if start > position:
        gap = f"\n[safelaunch: {size(start - position)} left out here by log_cap]\n".encode()
        return start + len(data), gap + data
    return position + len(data), data


def _data(fd: int, position: int) -> tuple[int, int]:
    """Return start and end of the next part that is no hole; equal at the end of the file."""
    end = os.fstat(fd).st_size
    if sys.platform == "win32":
        return position, end
    try:
        start = os.lseek(fd, position, os.SEEK_DATA)
        return start, os.lseek(fd, start, os.SEEK_HOLE)
    except OSError as e:
        # ENXIO: no data behind it; EINVAL: a file system without holes
        return position, position if e.errno == errno.ENXIO else end


def last_lines(path: str, count: int) -> int:
    """Return the position where the last `count` lines start; 0 if the file has no more."""
    try:
        with open(path, "rb", buffering=0) as file:
            return _find_back(file.fileno(), os.fstat(file.fileno()).st_size, count)
    except OSError:
        return 0


def _find_back(fd: int, end: int, count: int) -> int:
    if count == 0:
        return end
    if end and _at(fd, end - 1, 1) == b"\n":
        count += 1  # the end of the last line starts no other line
    while end > 0:
        start = max(0, end - _CHUNK)
        data = _at(fd, start, end - start)
        newlines = data.count(b"\n")
        if newlines >= count:
            cut = len(data)
            for _ in range(count):
                cut = data.rindex(b"\n", 0, cut)
            return start + cut + 1
        count -= newlines
        end = start
    return 0


def _at(fd: int, position: int, length: int) -> bytes:
    os.lseek(fd, position, os.SEEK_SET)  # Windows has no pread
    return os.read(fd, length)


def follow_file(
    path: str, goes_on: Callable[[], bool], position: int = 0
) -> Iterator[tuple[int, bytes]]:
    """Yield a file's bytes as they come, each piece with the position after it.

    Ends when `goes_on` returns False and the end is reached; yields b"" at each pause.
    """
    going = True
    while True:
        position, data = read_from(path, position)
        if data:
            yield position, data
            continue
        if not going:
            return
        yield position, b""
        going = goes_on()
        if going:  # else one more read: the end may have come with the last lines
            time.sleep(TICK)


def whole_file(path: str) -> Callable[[int], Iterator[tuple[int, int, bytes]]]:
    """Return what yields a file as the log of a first attempt, from a position on."""

    def read(position: int) -> Iterator[tuple[int, int, bytes]]:
        for at, data in follow_file(path, lambda: False, position):
            yield 1, at, data

    return read


def _sparing(goes_on: Callable[[], bool], node_dir: str) -> Callable[[], bool]:
    """Return `goes_on` for frequent calls: it is asked after each new status, and else seldom.

    It looks for the processes of the run, which takes longer than a look at one file.
    """
    status, due = None, 0.0

    def is_going() -> bool:
        nonlocal status, due
        newest, now = _stamp(node_dir), time.monotonic()
        if newest == status and now < due:
            return True
        status, due = newest, now + CHECK
        return goes_on()

    return is_going


def _stamp(node_dir: str) -> tuple[int, int] | None:
    """Return what changes with each status that the supervisor records; None without one."""
    try:
        info = os.stat(os.path.join(node_dir, Status.FILE))
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ino


def attempts(node_dir: str) -> list[int]:
    """Return the numbers of the attempts that have logs, the newest last."""
    try:
        names = os.listdir(os.path.join(node_dir, "logs"))
    except OSError:
        return []
    return sorted(int(n[8:]) for n in names if n.startswith("attempt-") and n[8:].isdigit())


def log_path(node_dir: str, which: str | None, attempt: int) -> str:
    """Return the path of the combined log, or of the log `which`: `rank-3`, `launcher`, `end`.

    The last is of what followed the end of the run: of no attempt.
    """
    if which == END:
        return os.path.join(node_dir, "logs", END + ".log")
    name = "combined.log" if which is None else which + ".log"
    return os.path.join(node_dir, "logs", f"attempt-{attempt}", name)


def follow_attempts(
    node_dir: str,
    which: str | None,
    start: tuple[int, int],
    is_done: Callable[[], bool],
    *,
    on: bool,
) -> Iterator[tuple[int, int, bytes]]:
    """Yield (attempt, position after the piece, piece) of the log, to the end of the run.

    `start` is attempt and position. Without `on` only the existing bytes of that attempt.
    """
    attempt, position = start
    while True:
        number = attempt

        def goes_on(number: int = number) -> bool:
            return on and not is_done() and max(attempts(node_dir), default=1) <= number

        path = log_path(node_dir, which, number)
        for at, data in follow_file(path, _sparing(goes_on, node_dir), position):
            yield number, at, data
        later = [n for n in attempts(node_dir) if n > number]
        if not later or not on:
            return
        attempt, position = later[0], 0
