"""Follows the files that the ranks and the launcher write, and merges whole lines of them.

Nothing stands between a process and its file; this only reads behind them. CR ends a line too, so
progress bars move.
"""

from __future__ import annotations

import os

CHUNK = 1 << 16
LONGEST = 1 << 16  # a longer line is cut in the merged log; its own file has it whole


class Source(object):
    """One log file that grows."""

    def __init__(self, path: str, prefix: bytes) -> None:
        self.path = path
        self.prefix = prefix
        self.fd = -1
        self.rest = b""
        self.after_cr = False

    def read(self) -> bytes:
        """Return what has come since, merged lines with the prefix; partial lines wait."""
        if self.fd < 0:
            try:
                self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return b""
        data = os.read(self.fd, CHUNK)
        return self.take(data) if data else b""

    def take(self, data: bytes) -> bytes:
        """Split new bytes into lines and prefix each."""
        if self.after_cr and data[:1] == b"\n":
            data = data[1:]  # CR LF is one end of a line
        self.after_cr = data[-1:] == b"\r"
        data = self.rest + data
        out = []
        start = 0
        while True:
            end = _line_end(data, start)
            if end < 0:
                break
            out.append(self.prefix + data[start:end])
            start = end
        self.rest = data[start:]
        if len(self.rest) > LONGEST:
            out.append(self.prefix + self.rest + b"\n")
            self.rest = b""
        return b"".join(out)

    def finish(self) -> bytes:
        """Return a last line without an end."""
        rest, self.rest = self.rest, b""
        return self.prefix + rest + b"\n" if rest else b""

    def close(self) -> None:
        """Close the file."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _line_end(data: bytes, start: int) -> int:
    """Return the index behind the next end of a line (LF, CR LF or CR), or -1."""
    lf = data.find(b"\n", start)
    cr = data.find(b"\r", start, lf if lf >= 0 else len(data))
    if cr < 0:
        return lf + 1 if lf >= 0 else -1
    return cr + 2 if data[cr + 1 : cr + 2] == b"\n" else cr + 1


class Merger(object):
    """Merges the logs of one attempt: launcher.log, and rank-<r>.log as they appear."""

    def __init__(self, folder: str, prefixed: bool) -> None:
        self.folder = folder
        self.prefixed = prefixed
        self.sources: dict[str, Source] = {}

    def read(self) -> bytes:
        """Return the next merged lines; empty when nothing new has come."""
        self._discover()
        return b"".join(source.read() for source in self.sources.values())

    def drain(self) -> bytes:
        """Return all that is left, with last lines that have no end. The writers are gone."""
        out = []
        while True:
            data = self.read()
            if not data and not any(_behind(s) for s in self.sources.values()):
                break
            out.append(data)
        out += [source.finish() for source in self.sources.values()]
        return b"".join(out)

    def _discover(self) -> None:
        try:
            names = os.listdir(self.folder)
        except OSError:
            return
        for name in sorted(names):
            if name in self.sources or not name.endswith(".log") or name == "combined.log":
                continue
            prefix = b""
            if self.prefixed and name.startswith("rank-"):
                prefix = ("[%s] " % name[len("rank-") : -len(".log")]).encode()
            self.sources[name] = Source(os.path.join(self.folder, name), prefix)

    def close(self) -> None:
        """Close all files."""
        for source in self.sources.values():
            source.close()


def _behind(source: Source) -> bool:
    if source.fd < 0:
        return False
    return os.fstat(source.fd).st_size > os.lseek(source.fd, 0, os.SEEK_CUR)
