"""Asks a rank for its NCCL flight recorder: what each collective was, and how far it got.

Armed by the user with TORCH_NCCL_DEBUG_INFO_PIPE_FILE=<stem>: torch >= 2.4 then makes the named
pipe `<stem><rank>.pipe`, and whatever is written there makes it dump, once a second at most, into
`<prefix><rank>`, while the job goes on (ProcessGroupNCCL.cpp, DumpPipe; FlightRecorder.cpp). The
prefix is TORCH_FR_DUMP_TEMP_FILE (2.9), its older name, or a default of its own.
`torchfrtrace <folder> -p nccl-rank-` reads the copies.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
NAMES = (PIPE, *PREFIXES, "XDG_CACHE_HOME", "HOME")
SETTLE = 0.5  # seconds without growth after which a dump counts as complete
PIECE = 1 << 20  # bytes copied at a time: about 1 ms
MOST = 64 << 20  # bytes of a dump that are kept: 2,000 entries are 2 MB


class Flight(object):
    """One rank's recorder, asked and copied piece by piece; nothing here waits."""

    def __init__(self, rank: int, environ: dict[str, str], cwd: str) -> None:
        self.rank = rank
        self.asked = False
        self.copied = ""  # where the copy lies
        self.copying = None  # type: Iterator[None] | None
        self.size = -1
        self.since = 0.0
        self.stem = os.path.join(cwd, environ.get(PIPE, "")) if environ.get(PIPE) else ""
        self.dumps = [os.path.join(cwd, p) + str(rank) for p in _prefixes(environ)]
        self.before = {path: _stamp(path) for path in self.dumps} if self.stem else {}

    def ask(self) -> bool:
        """Ask for a dump; False where nobody listens."""
        if not self.stem:
            return False
        try:
            fd = os.open(
                "%s%d.pipe" % (self.stem, self.rank),
                os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC,
            )
        except OSError:
            return False  # no such pipe, or no reader: ENXIO
        try:
            self.asked = stat.S_ISFIFO(os.fstat(fd).st_mode) and os.write(fd, b"1\n") > 0
        except OSError:
            self.asked = False
        finally:
            os.close(fd)
        return self.asked

    def tick(self, now: float, folder: str) -> bool:
        """Copy a dump that is complete into the folder; True once there is nothing to wait for."""
        if not self.asked:
            return True
        if self.copying is not None:
            return next(self.copying, self) is self
        for path in self.dumps:
            seen = _stamp(path)
            if seen is None or seen == self.before.get(path):
                continue
            if seen[1] != self.size:
                self.size, self.since = seen[1], now
            elif now - self.since >= SETTLE:
                target = os.path.join(folder, "nccl-rank-%d" % self.rank)
                self.copying = self._copy(path, target)
        return False

    def _copy(self, source: str, target: str) -> Iterator[None]:
        """Copy piece by piece; where there is no room for a copy, the source is named."""
        self.copied = source
        try:
            with open(source, "rb") as file, open(target, "wb") as copy:
                left = MOST
                while left > 0:
                    data = file.read(min(PIECE, left))
                    if not data:
                        break
                    copy.write(data)
                    left -= len(data)
                    yield
        except OSError:
            return
        self.copied = target


def _prefixes(environ: dict[str, str]) -> list[str]:
    for name in PREFIXES:
        if environ.get(name):
            return [environ[name]]
    home = environ.get("HOME") or "/tmp"  # noqa: S108 - torch's own default
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    # the second is that of torch < 2.8
    return [os.path.join(cache, "torch", "comm_lib_trace_rank_"), "/tmp/nccl_trace_rank_"]  # noqa: S108


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return (seen.st_mtime_ns, seen.st_size) if stat.S_ISREG(seen.st_mode) else None
