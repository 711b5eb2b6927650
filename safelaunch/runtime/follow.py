"""Follows the files that the ranks and the launcher write, and merges whole lines of them.

Nothing stands between a process and its file; this only reads behind them. CR ends a line too, so
progress bars move.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from safelaunch.runtime.extra import Finder

# The prefixed chunk must stay below malloc's 128 KiB: above it each one is mapped and faulted in
# anew, and the same replace() takes three times as long (mallopt(3), M_MMAP_THRESHOLD; measured).
CHUNK = 1 << 16
LOOK = 16 * CHUNK  # bytes in one look: signals, ends of processes and limits must not wait for long
LONGEST = 1 << 16  # a longer line is cut in the merged log; its own file has it whole
ENDS = (b"\r", b"\n")
SLICE, LAST = 0.002, 0.5  # seconds for a look at what `logs:` names; the last one may be long
MOST_EXTRA = 64  # files that the job's `logs:` may bring: each costs a descriptor and a look

IN_MODIFY, IN_CREATE = 0x2, 0x100  # inotify(7)
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO would block the open


class Source(object):
    """One log file that grows; with `prefix` None its bytes pass as they are."""

    def __init__(
        self, path: str, prefix: bytes | None, offset: int = 0, is_extra: bool = False
    ) -> None:
        self.path = path
        self.prefix = prefix
        self.offset = offset
        self.is_extra = is_extra  # the job's own file, not the run's
        self.is_echo = False  # what is written there comes from the merged log
        self.fd = -1
        self.rest = b""

    def read(self) -> bytes:
        """Return what has come since, a chunk at most: prefixed lines; a partial line waits."""
        data = self._more()
        if data:
            return data if self.prefix is None else self.take(data, self.prefix)
        if self.rest.endswith(ENDS):
            return self.finish()  # no LF has followed the CR: it is a line of its own
        return b""

    def _more(self) -> bytes:
        if self.is_echo:
            return b""
        try:
            if self.fd < 0:
                self.fd = os.open(self.path, OPEN_FLAGS)
            data = os.pread(self.fd, CHUNK, self.offset)
            if not data and os.fstat(self.fd).st_size < self.offset:
                self.begin_anew()  # it was truncated
                data = os.pread(self.fd, CHUNK, 0)
        except OSError:
            self.close()  # or it would seem to hold more, and be asked again at once
            return b""
        self.offset += len(data)
        return b"" if self.is_extra and self._repeats(data) else data

    def _repeats(self, data: bytes) -> bool:
        """Whether the file gets our own lines: `run --follow > out.log`, or another run's copy.

        To follow it would let each line come back, longer each time, until the disk is full.
        """
        mark = self.prefix or b""
        if data.startswith(mark) or b"\n" + mark in data or b"] " + mark in data:
            self.is_echo = True
            self.close()
        return self.is_echo

    def take(self, data: bytes, prefix: bytes) -> bytes:
        """Prefix each line of new bytes; what may not be a whole line yet waits for more."""
        if b"\r" in data or self.rest.endswith(ENDS):
            return self._take_with_cr(data, prefix)
        end = data.rfind(b"\n")
        if end < 0:
            self.rest += data
            return b"" if len(self.rest) <= LONGEST else self.finish()
        out = prefix + self.rest + data[:end].replace(b"\n", b"\n" + prefix) + b"\n"
        self.rest = data[end + 1 :]
        return out

    def _take_with_cr(self, data: bytes, prefix: bytes) -> bytes:
        lines = (self.rest + data).splitlines(True)
        self.rest = b""
        # a CR at the very end may be the first half of CR LF
        if lines[-1][-1:] != b"\n" and len(lines[-1]) <= LONGEST:
            self.rest = lines.pop()
        elif lines[-1][-1:] not in b"\r\n":
            lines[-1] += b"\n"
        return prefix + prefix.join(lines) if lines else b""

    def finish(self) -> bytes:
        """Return a last line that has no end, with one."""
        rest, self.rest = self.rest, b""
        if not rest:
            return b""
        return (self.prefix or b"") + rest + (b"" if rest.endswith(ENDS) else b"\n")

    def begin_anew(self) -> None:
        """Go back to the start of the file; a line that waits for its end has none."""
        self.offset = 0
        if self.rest:
            self.rest += b"\n"

    def size(self) -> int:
        """Return how long the open file is, 0 where that cannot be told."""
        try:
            return os.fstat(self.fd).st_size if self.fd >= 0 else 0
        except OSError:
            return 0

    def key(self) -> tuple[int, int]:
        """Return device and inode of the open file, zeros where none is open."""
        try:
            info = os.fstat(self.fd)
        except OSError:
            return 0, 0
        return info.st_dev, info.st_ino

    def is_replaced(self) -> bool:
        """Whether the path names another file now, or none."""
        try:
            return self.fd >= 0 and not os.path.samestat(os.fstat(self.fd), os.stat(self.path))
        except OSError:
            return True

    def close(self) -> None:
        """Let the file go: one that was removed must not hold its space."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Merger(object):
    """Merges the logs of one attempt: launcher.log, and rank-<r>.log as they appear.

    A job without ranks has one file only: its merged log is the same bytes. `extra` are globs
    below `cwd` of the framework's own log files; those that are there already are followed from
    their present end, new ones whole; `skip` are paths that they may not name: what is written
    there comes from here. `since` is the attempt's start, in seconds since 1970.
    """

    def __init__(  # noqa: PLR0917 - all but two are for jobs with `logs:`
        self,
        folder: str,
        prefixed: bool,
        extra: Sequence[str] = (),
        cwd: str = "",
        since: float | None = None,
        skip: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.prefixed = prefixed
        self.sources: dict[str, Source] = {}
        self.finder: Finder | None = None
        self.total = 0  # bytes read so far
        self.is_flooded = False
        if extra:
            # <home>/runs/<run-id>/node-0/logs/attempt-1: no run may follow another's logs
            runs = os.path.join(folder, *[os.pardir] * 4)
            self.finder = _extra().Finder(extra, cwd, since, runs, skip)

    def pieces(self) -> Iterator[bytes]:
        """Yield the next merged lines in pieces of a chunk; nothing when nothing new has come.

        Each file gives a chunk in turn, so that a flood of one does not hide the others, and all
        together not much more than LOOK bytes: whoever asks has other things to do as well.
        """
        # a flood must not pay for a look at the folder each time; the next dry look has it
        if not self.is_flooded:
            self._discover()
        left, turn = LOOK, list(self.sources.values())
        while turn and left > 0:
            still = []
            for source in turn:
                before = source.offset
                piece = source.read()
                if piece:
                    yield piece
                got = max(0, source.offset - before)
                if got:
                    left -= got
                    self.total += got
                    still.append(source)
            turn = still
        self.is_flooded = left <= 0 and not self.is_flooded

    def read(self) -> bytes:
        """Return the next merged lines as one; empty when nothing new has come."""
        return b"".join(self.pieces())

    def is_behind(self) -> bool:
        """Whether there is more to read at once."""
        return any(source.size() > source.offset for source in self.sources.values())

    def offsets(self) -> dict[str, int]:
        """Return {path: bytes that have been read} of the run's own files, not of the job's."""
        return {s.path: s.offset for s in self.sources.values() if not s.is_extra and s.fd >= 0}

    def remaining(self) -> Iterator[bytes]:
        """Yield all that is left, in pieces, with last lines that have no end.

        The writers are gone; one that is not does not keep us: what is there at the call counts.
        """
        self._discover()
        if self.finder is not None:
            self.finder.look_again()
            self._add_extra(self.finder, LAST)
        sources = list(self.sources.values())
        for source in sources:
            before = source.offset
            piece = source.read()  # opens it
            self.total += max(0, source.offset - before)
            yield piece
            end = source.size()
            while source.offset < end:
                before = source.offset
                piece = source.read()
                if source.offset == before:
                    break  # it cannot be read
                self.total += max(0, source.offset - before)
                yield piece
            yield source.finish()

    def drain(self) -> bytes:
        """Return all that is left as one; see `remaining`."""
        return b"".join(self.remaining())

    def close(self) -> None:
        """Let all files go."""
        for source in self.sources.values():
            source.close()

    def _discover(self) -> None:
        try:
            names = os.listdir(self.folder)
        except OSError:
            names = []
        for name in sorted(names):
            if name in self.sources or not name.endswith(".log") or name == "combined.log":
                continue
            # with other files beside it, also a log without ranks must be merged by lines
            prefix = b"" if self.prefixed or self.finder is not None else None
            if self.prefixed and name.startswith("rank-"):
                prefix = ("[%s] " % name[len("rank-") : -len(".log")]).encode()
            self.sources[name] = Source(os.path.join(self.folder, name), prefix)
        if self.finder is not None and self.finder.is_due():
            self._add_extra(self.finder, SLICE)

    def _add_extra(self, finder: Finder, limit: float) -> None:
        extra = {s.path: s for s in self.sources.values() if s.is_extra}
        for source in extra.values():
            if source.is_replaced() and source.size() <= source.offset:
                finder.offsets[source.key()] = source.offset  # it may go on under another name
                source.close()
                source.begin_anew()
        followed = {source.key() for source in extra.values()}
        for path, key, offset in finder.tick(limit):
            if path in extra or key in followed or len(extra) >= MOST_EXTRA:
                continue
            followed.add(key)
            extra[path] = self.sources[path] = Source(path, b"", offset, is_extra=True)
        for path, name in _extra().short_names(list(extra)).items():
            extra[path].prefix = b"[" + os.fsencode(name) + b"] "


def _extra() -> Any:
    """Import what finds the job's own files: most jobs name none."""
    from safelaunch.runtime import extra  # noqa: PLC0415

    return extra


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

    def close(self) -> None:
        """Watch no more."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
