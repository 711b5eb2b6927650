"""Lets a process go on whose log file has no room left: what it prints then is dropped.

`sys.stdout` and `sys.stderr` write to files of the run directory. On a full disk a `print` would
raise OSError there, and end a job that does not need that disk. Only the lowest of their layers is
replaced, and only where the descriptor is such a file; other errors are raised as ever. A process
that is no rank (a launcher's child, a worker) is treated alike, but records nothing.

Imported, often compiled, at each start of a process of the job. Syntax of Python 3.5.
"""

import io
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from safelaunch_rank import _Rank  # type: ignore[import-not-found,unused-ignore]

FULL = (28, 122)  # ENOSPC, EDQUOT; `errno` is built in, and yet an import


def install(logs: "list[int]", rank: "_Rank | None") -> None:
    """Replace the lowest layer of stdout and stderr where they write to these descriptors."""
    kind = _log_class(rank)
    for fd, name in ((1, "stdout"), (2, "stderr")):
        if fd in logs:
            old = getattr(sys, name)
            # a stream that other code (a .pth file) has put there stays
            if old is getattr(sys, "__%s__" % name) and type(old) is io.TextIOWrapper:
                new = _replacement(old, kind, fd)
                setattr(sys, name, new)
                setattr(sys, "__%s__" % name, new)


def _replacement(old: "TextIO", kind: "type[io.FileIO]", fd: int) -> "TextIO":
    """Return a stream like the old one, with a lowest layer of that kind."""
    old.flush()
    raw = kind(fd, "wb", closefd=False)
    raw.name = old.name
    unbuffered = isinstance(old.buffer, io.FileIO)
    size = getattr(raw, "_blksize", io.DEFAULT_BUFFER_SIZE)  # as open() has it
    options = {}
    if hasattr(old, "write_through"):  # Python >= 3.7
        options["write_through"] = old.write_through
    new = io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw, size),  # type: ignore[arg-type,unused-ignore]
        encoding=old.encoding,
        errors=old.errors,
        newline="\n",
        line_buffering=bool(old.line_buffering),
        **options,
    )
    new.mode = "w"  # type: ignore[misc,unused-ignore]
    return new


def _log_class(rank: "_Rank | None") -> "type[io.FileIO]":
    """Return the class; its names are cells, not globals: at shutdown it outlives this module."""
    write_out, full, error = io.FileIO.write, FULL, OSError

    class Log(io.FileIO):
        """A log file; data without room on the disk counts as written."""

        def write(self, data: bytes) -> int:  # type: ignore[override]
            try:
                return write_out(self, data)
            except error as e:
                if e.errno not in full:
                    raise
                size = memoryview(data).nbytes
                if rank is not None:
                    rank.count_dropped(size)
                return size

    return Log
