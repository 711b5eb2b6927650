"""Follows the files that the ranks and the launcher write, and merges whole lines of them.

Nothing stands between a process and its file; this only reads behind them. CR ends a line too, so
progress bars move.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHUNK = 1 << 16
BURST = 16  # chunks of one file in one look: a flood of one rank must not hide the others
LONGEST = 1 << 16  # a longer line is cut in the merged log; its own file has it whole

IN_MODIFY, IN_CREATE = 0x2, 0x100  # inotify(7)


class Source(object):
    """One log file that grows; with `prefix` None its bytes pass as they are."""

    def __init__(self, path: str, prefix: bytes | None) -> None:
        self.path = path
        self.prefix = prefix
        self.fd = -1
        self.rest = b""

    def read(self) -> bytes:
        """Return what has come since: lines with the prefix, a partial line waits."""
        out = []
        for _ in range(BURST):
            data = self._more()
            if not data:
                break
            out.append(data if self.prefix is None else self.take(data, self.prefix))
        if not out and self.rest[-1:] == b"\r":
            out.append(self.finish())  # no LF has followed the CR: it is a line of its own
        return b"".join(out)

    def _more(self) -> bytes:
        try:
            if self.fd < 0:
                self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.read(self.fd, CHUNK)
        except OSError:
            return b""

    def take(self, data: bytes, prefix: bytes) -> bytes:
        """Prefix each line of new bytes; what may not be a whole line yet waits for more."""
        lines = (self.rest + data).splitlines(True)
        self.rest = b""
        # a CR at the very end may be the first half of CR LF
        if lines[-1][-1:] != b"\n" and len(lines[-1]) <= LONGEST:
            self.rest = lines.pop()
        elif lines[-1][-1:] not in b"\r\n":
            lines[-1] += b"\n"
        return b"".join([prefix + line for line in lines])

    def finish(self) -> bytes:
        """Return a last line that has no end, with one."""
        rest, self.rest = self.rest, b""
        if not rest:
            return b""
        return (self.prefix or b"") + rest + (b"" if rest[-1:] == b"\r" else b"\n")

    def is_behind(self) -> bool:
        """Whether the file holds more than was read."""
        try:
            return self.fd >= 0 and os.fstat(self.fd).st_size > os.lseek(self.fd, 0, os.SEEK_CUR)
        except OSError:
            return False


class Merger(object):
    """Merges the logs of one attempt: launcher.log, and rank-<r>.log as they appear.

    A job without ranks has one file only: its merged log is the same bytes.
    """

    def __init__(self, folder: str, prefixed: bool) -> None:
        self.folder = folder
        self.prefixed = prefixed
        self.sources: dict[str, Source] = {}

    def read(self) -> bytes:
        """Return the next merged lines; empty when nothing new has come."""
        self._discover()
        return b"".join([source.read() for source in self.sources.values()])

    def is_behind(self) -> bool:
        """Whether there is more to read at once."""
        return any(source.is_behind() for source in self.sources.values())

    def drain(self) -> bytes:
        """Return all that is left, with last lines that have no end. The writers are gone."""
        out = [self.read()]
        while self.is_behind():
            data = self.read()
            if not data:
                break  # a file that cannot be read
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
            prefix = b"" if self.prefixed else None
            if self.prefixed and name.startswith("rank-"):
                prefix = ("[%s] " % name[len("rank-") : -len(".log")]).encode()
            self.sources[name] = Source(os.path.join(self.folder, name), prefix)


class Watch(object):
    """Says at once when a log has grown, by inotify; where there is none, `fd` is -1."""

    def __init__(self, libc: Any) -> None:
        self.libc = libc
        self.fd = -1
        try:
            self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError:
            return

    def add(self, folder: str) -> None:
        """Watch the files of a folder."""
        if self.fd >= 0:
            number = self.libc.inotify_add_watch(
                self.fd, os.fsencode(folder), IN_MODIFY | IN_CREATE
            )
            if number < 0:
                os.close(self.fd)
                self.fd = -1

    def clear(self) -> None:
        """Forget what was said; the files themselves are looked at."""
        try:
            os.read(self.fd, CHUNK)
        except OSError:
            pass
