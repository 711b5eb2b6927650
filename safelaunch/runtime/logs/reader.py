"""Reading a log file: as it grows, its last lines, and across what log_cap has cut out."""

from __future__ import annotations

import errno
import os
import sys
import time

from safelaunch.runtime.units import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TICK = 0.015  # seconds between two looks at a growing log
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
    if sys.platform == "win32":
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
    if end and _at(fd, end - 1, 1) == b"\n":
        count += 1  # the end of the last line begins no other
    while end > 0:
        begin = max(0, end - _CHUNK)
        data = _at(fd, begin, end - begin)
        found = data.count(b"\n")
        if found >= count:
            cut = len(data)
            for _ in range(count):
                cut = data.rindex(b"\n", 0, cut)
            return begin + cut + 1
        count -= found
        end = begin
    return 0


def _at(fd: int, position: int, length: int) -> bytes:
    os.lseek(fd, position, os.SEEK_SET)  # Windows has no pread
    return os.read(fd, length)


def growing(
    path: str, goes_on: Callable[[], bool], position: int = 0
) -> Iterator[tuple[int, bytes]]:
    """Yield a file's bytes as they come, each piece with the position behind it.

    Until `goes_on` says no and the end is reached; an empty piece at each pause.
    """
    last_look, going = 0.0, True
    while True:
        position, data = read_on(path, position)
        if data:
            yield position, data
            continue
        if not going:
            return
        yield position, b""
        if time.monotonic() - last_look > 4 * TICK:
            last_look = time.monotonic()
            going = goes_on()
            if not going:
                continue  # one more read: the end may have come with the last lines
        time.sleep(TICK)


def attempts(node_dir: str) -> list[int]:
    """Return the numbers of the attempts that have logs, the newest last."""
    try:
        names = os.listdir(os.path.join(node_dir, "logs"))
    except OSError:
        return []
    return sorted(int(n[8:]) for n in names if n.startswith("attempt-") and n[8:].isdigit())


def log_path(node_dir: str, which: str | None, attempt: int) -> str:
    """Return the path of the combined log, or of one rank's or the launcher's (`rank-3`)."""
    name = "combined.log" if which is None else which + ".log"
    return os.path.join(node_dir, "logs", "attempt-%d" % attempt, name)


def following(
    node_dir: str,
    which: str | None,
    begin: tuple[int, int],
    is_done: Callable[[], bool],
    *,
    on: bool,
) -> Iterator[tuple[int, int, bytes]]:
    """Yield attempt, position behind it, and the log's bytes as they come, to the run's end.

    `begin` is attempt and position. Without `on` only what is there of that attempt.
    """
    attempt, position = begin
    while True:
        number = attempt

        def goes_on(number: int = number) -> bool:
            return on and not is_done() and max(attempts(node_dir), default=1) <= number

        for at, data in growing(log_path(node_dir, which, number), goes_on, position):
            yield number, at, data
        later = [n for n in attempts(node_dir) if n > number]
        if not later or not on:
            return
        attempt, position = later[0], 0
