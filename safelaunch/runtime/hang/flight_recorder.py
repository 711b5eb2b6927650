"""Requests a dump of a rank's NCCL flight recorder: each collective and how far it got.

Enabled with TORCH_NCCL_DEBUG_INFO_PIPE_FILE=<stem>, by the user, or by the rank for itself, which
/proc does not show (site/safelaunch_evidence.py). torch >= 2.4 then makes the named pipe
`<stem><rank>.pipe`, and whatever is written there makes it dump, once a second at most, into
`<prefix><rank>`, while the job goes on (ProcessGroupNCCL.cpp, DumpPipe; FlightRecorder.cpp). The
prefix is TORCH_FR_DUMP_TEMP_FILE (2.8), its older name, or a default of its own.
`torchfrtrace <folder> -p nccl-rank-` reads the copies.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
NAMES = (PIPE, *PREFIXES, "XDG_CACHE_HOME", "HOME")
COPY = "nccl-rank-"  # name of a copy, before the rank
SETTLE = 0.5  # seconds without growth after which a dump counts as complete
PIECE = 1 << 20  # bytes copied at a time: about 1 ms
MAX_DUMP = 64 << 20  # bytes of a dump that are copied: 2,000 entries are 2 MB


class FlightRecorder:
    """One rank's recorder: requests a dump and copies it piece by piece; never blocks."""

    def __init__(self, rank: int, environ: dict[str, str], cwd: str, own: str = "") -> None:
        """Prepare for one rank; `own` is the stem that ranks set for themselves."""
        self.rank = rank
        self.requested = False
        self.copied = ""  # path of the copy
        self.copying: Iterator[None] | None = None
        self.size = -1
        self.since = 0.0
        self.stem = os.path.join(cwd, environ.get(PIPE, "")) if environ.get(PIPE) else ""
        self.dumps = [os.path.join(cwd, p) + str(rank) for p in _prefixes(environ)]
        if not self.stem and own and os.path.exists(f"{own}{rank}.pipe"):
            self.stem, self.dumps = own, [f"{own}{rank}"]
        self.before = {path: _stamp(path) for path in self.dumps} if self.stem else {}

    def request(self) -> None:
        """Request a dump; `requested` is then whether the rank reads its pipe."""
        if not self.stem:
            return
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(f"{self.stem}{self.rank}.pipe", flags)
        except OSError:
            return  # no such pipe, or no reader: ENXIO
        try:
            self.requested = stat.S_ISFIFO(os.fstat(fd).st_mode) and os.write(fd, b"1\n") > 0
        except OSError:
            pass
        finally:
            os.close(fd)

    def tick(self, now: float, folder: str) -> bool:
        """Copy a complete dump into the folder, a piece each call; return whether it is done."""
        if not self.requested:
            return True
        if self.copying is not None:
            return next(self.copying, self) is self
        for path in self.dumps:
            stamp = _stamp(path)
            if stamp is None or stamp == self.before.get(path):
                continue
            if stamp[1] != self.size:
                self.size, self.since = stamp[1], now
            elif now - self.since >= SETTLE:
                self.copying = self._copy(path, os.path.join(folder, f"{COPY}{self.rank}"))
        return False

    def _copy(self, source: str, target: str) -> Iterator[None]:
        """Copy piece by piece; `copied` is the source where there is no room for a copy."""
        self.copied = source
        try:
            with open(source, "rb") as file, open(target, "wb") as copy:
                for _ in range(MAX_DUMP // PIECE):
                    data = file.read(PIECE)
                    if not data:
                        break
                    copy.write(data)
                    yield
        except OSError:
            return
        self.copied = target


def request_dumps(stem: str, ranks: Iterable[int]) -> list[int]:
    """Request a dump of each of these ranks; return those that will write one, beside their pipe.

    `stem` is the one that ranks set for themselves.
    """
    recorders = [FlightRecorder(rank, {}, "/", stem) for rank in sorted(ranks)]
    for recorder in recorders:
        recorder.request()
    return [recorder.rank for recorder in recorders if recorder.requested]


def _prefixes(environ: dict[str, str]) -> list[str]:
    prefixes = [environ[name] for name in PREFIXES if environ.get(name)]
    if prefixes:
        return prefixes[:1]
    home = environ.get("HOME") or "/tmp"  # noqa: S108 - torch's own default
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    # the second path is the default of torch < 2.8
    return [os.path.join(cache, "torch", "comm_lib_trace_rank_"), "/tmp/nccl_trace_rank_"]  # noqa: S108


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return (info.st_mtime_ns, info.st_size) if stat.S_ISREG(info.st_mode) else None
