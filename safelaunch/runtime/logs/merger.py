"""Follows the log files of the ranks and the launcher, and merges them by whole lines.

The copier (copier.py) writes the files; this only reads them. CR ends a line too, so that progress
bars move.
"""

# ruff: noqa: PLC0415 - framework_logs is imported late: most jobs have no `logs:`

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from safelaunch.runtime.logs.framework_logs import GlobWatcher, Key, NewPart

# The prefixed chunk must stay below malloc's 128 KiB: above it each chunk is mapped and faulted in
# again, and the same replace() takes three times as long (mallopt(3), M_MMAP_THRESHOLD; measured).
CHUNK = 1 << 16
MAX_POLL = 16 * CHUNK  # bytes of one poll: signals, exits and limits must not wait for long
# A poll costs as much as some thousands of lines. More than FLOOD bytes in a pause are read by
# nobody as they come: they are merged in larger parts.
PAUSE, FLOOD_PAUSE = 0.01, 0.05  # seconds from one poll to the next, while output comes
FLOOD = 1 << 13
MAX_LINE = 1 << 16  # a longer line is cut in the merged log; its own file has it whole
LINE_ENDS = (b"\r", b"\n")
SCAN_SECONDS, FINAL_SCAN_SECONDS = 0.002, 0.5  # of a scan for files of `logs:`, and of the last
MAX_EXTRA = 64  # files of `logs:` that are followed at once: each costs a descriptor and a poll
MARK_SIZE = 64  # bytes before the offset that identify a file that is followed again

IN_MODIFY, IN_CREATE = 0x2, 0x100  # inotify(7)
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO would block the open


class RankLog:
    """One log file that grows; with `prefix` None its bytes are not changed."""

    def __init__(
        self, path: str, prefix: bytes | None, offset: int = 0, is_extra: bool = False
    ) -> None:
        self.path = path
        self.prefix = prefix
        self.offset = offset
        self.is_extra = is_extra  # the job's own file, not the run's
        self.is_echo = False  # whether it is written from the merged log
        self.last_growth = 0  # number of the last poll in which it had new bytes
        self.added_in = 0  # number of the poll in which it was added
        self.fd = -1
        self.key = (0, 0)  # device and inode of the file that is, or was, open
        self.partial = b""
        self.is_idle = False  # whether the last read returned nothing

    def read(self) -> bytes:
        """Return up to a chunk of new prefixed lines; a partial line is held back."""
        data = self._read_chunk()
        was_idle, self.is_idle = self.is_idle, not data
        if data:
            return data if self.prefix is None else self.prefix_lines(data, self.prefix)
        # no LF followed the CR in the next poll either: the CR ends the line
        return self.finish() if was_idle and self.partial.endswith(LINE_ENDS) else b""

    def open(self) -> None:
        """Open the file. Raises OSError."""
        self.fd = os.open(self.path, OPEN_FLAGS)
        info = os.fstat(self.fd)
        self.key = (info.st_dev, info.st_ino)

    def _read_chunk(self) -> bytes:
        if self.is_echo:
            return b""
        try:
            if self.fd < 0:
                self.open()
            data = os.pread(self.fd, CHUNK, self.offset)
            if not data and os.fstat(self.fd).st_size < self.offset:
                self.rewind()  # it was truncated
                data = os.pread(self.fd, CHUNK, 0)
        except OSError:
            self.close()  # an open file would seem to hold more, and be polled again at once
            return b""
        self.offset += len(data)
        return b"" if self.is_extra and self._repeats(data) else data

    def _repeats(self, data: bytes) -> bool:
        """Return whether the file gets our own lines: `run --follow > out.log`, or a copy of it.

        If it were followed, each line would come back, longer each time, until the disk is full.
        """
        mark = self.prefix or b""
        if data.startswith(mark) or b"\n" + mark in data or b"] " + mark in data:
            self.is_echo = True
            self.close()
        return self.is_echo

    def prefix_lines(self, data: bytes, prefix: bytes) -> bytes:
        """Prefix each whole line of new bytes; a partial line is held back."""
        if b"\r" in data or self.partial.endswith(LINE_ENDS):
            return self._prefix_cr_lines(data, prefix)
        end = data.rfind(b"\n")
        if end < 0:
            self.partial += data
            return b"" if len(self.partial) <= MAX_LINE else self.finish()
        lines = data[:end].replace(b"\n", b"\n" + prefix)
        out = b"".join((prefix, self.partial, lines, b"\n"))  # `+` would copy them three times
        self.partial = data[end + 1 :]
        return out

    def _prefix_cr_lines(self, data: bytes, prefix: bytes) -> bytes:
        lines = (self.partial + data).splitlines(True)
        self.partial = b""
        # a CR at the very end may be the first half of CR LF
        if lines[-1][-1:] != b"\n" and len(lines[-1]) <= MAX_LINE:
            self.partial = lines.pop()
        elif lines[-1][-1:] not in b"\r\n":
            lines[-1] += b"\n"
        return prefix + prefix.join(lines) if lines else b""

    def finish(self) -> bytes:
        """Return the partial line, ended by LF."""
        line, self.partial = self.partial, b""
        if not line:
            return b""
        return (self.prefix or b"") + line + (b"" if line.endswith(LINE_ENDS) else b"\n")

    def rewind(self) -> None:
        """Go back to the start of the file, and end the partial line."""
        self.offset = 0
        if self.partial:
            self.partial += b"\n"

    def size(self) -> int:
        """Return how long the open file is, 0 where that cannot be read."""
        try:
            return os.fstat(self.fd).st_size if self.fd >= 0 else 0
        except OSError:
            return 0

    def is_replaced(self) -> bool:
        """Return whether the path names another file now, or none."""
        try:
            return self.fd < 0 or not os.path.samestat(os.fstat(self.fd), os.stat(self.path))
        except OSError:
            return True

    def is_removed(self) -> bool:
        """Return whether the open file was removed: its inode may soon be another file's."""
        try:
            return self.fd >= 0 and os.fstat(self.fd).st_nlink == 0
        except OSError:
            return False

    def mark(self) -> bytes:
        """Return the bytes just before the offset: another file of that inode has others."""
        start = max(0, self.offset - MARK_SIZE)
        try:
            return os.pread(self.fd, self.offset - start, start) if self.fd >= 0 else b""
        except OSError:
            return b""

    def close(self) -> None:
        """Close the file: a removed one must not keep its disk space."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Merger:
    """Merges the logs of one attempt: launcher.log, and rank-<r>.log as they appear.

    A job without ranks has one file only: its merged log is the same bytes. `extra` are globs
    below `cwd` of the framework's own log files; existing files are followed from their present
    end, new ones from their start; the paths in `skip` are never followed: they are written from
    the merged log. `since` is the attempt's start, in seconds since 1970. Of these files
    MAX_EXTRA are followed at once; when another one grows, the one that has not last_growth for the
    longest time is dropped. It is followed again when it grows.
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
        self.sources: dict[str, RankLog] = {}
        self.finder: GlobWatcher | None = None
        self.total = 0  # bytes read so far
        self.is_flooded = False
        self.pause = PAUSE  # seconds from the last poll to the next, 0 where there is more to read
        self.polls = 0
        self.is_full = False  # whether `logs:` matches more files than can be tracked
        self.unfollowed: dict[Key, tuple[int, bytes]] = {}  # key -> poll, mark
        self.notices: list[bytes] = []  # lines that the next poll returns first
        if extra:
            # <home>/runs/<run-id>/node-0/logs/attempt-1: no run may follow another's logs
            runs = os.path.join(folder, *[os.pardir] * 4)
            try:
                from safelaunch.runtime.logs import framework_logs

                self.finder = framework_logs.GlobWatcher(extra, cwd, since, runs, skip)
            except Exception as e:  # noqa: BLE001 - a fault in `logs:` must not end the job
                self._disable_extra(e)

    def pieces(self) -> Iterator[bytes]:
        """Yield the next merged lines in pieces of a chunk; none if there are no new lines.

        Each file is read by a chunk in turn, so that a flood of one does not hide the others, and
        all together not much more than MAX_POLL bytes: the supervisor has other work to do as well.
        """
        # do not list the folder at each poll of a flood, but at the next poll that reads it all
        if not self.is_flooded:
            self._discover()
            self._scan_extra()
        yield from self._pop_notices()
        self.polls += 1
        start, turn = self.total, list(self.sources.values())
        end = start + MAX_POLL
        while turn and self.total < end:
            growing = []
            for source in turn:
                piece, has_grown = self._read(source)
                if piece:
                    yield piece
                if has_grown:
                    growing.append(source)
            turn = growing
        count = self.total - start
        self.pause = 0.0 if count >= MAX_POLL else FLOOD_PAUSE if count >= FLOOD else PAUSE
        self.is_flooded = not self.pause and not self.is_flooded

    def _read(self, source: RankLog) -> tuple[bytes, bool]:
        """Return the next piece of a file, and whether the file had new bytes."""
        before = source.offset
        piece = source.read()
        count = max(0, source.offset - before)
        self.total += count
        source.last_growth = self.polls if count else source.last_growth
        return piece, count > 0

    def read(self) -> bytes:
        """Return the next merged lines as one; empty if there are no new ones."""
        return b"".join(self.pieces())

    def offsets(self) -> dict[str, int]:
        """Return {path: bytes that have been read} of the run's own files, not of the job's."""
        return {s.path: s.offset for s in self.sources.values() if not s.is_extra and s.fd >= 0}

    def remaining(self) -> Iterator[bytes]:
        """Yield all that is left, in pieces, partial last lines too.

        The writers have ended; if one still writes, only its bytes up to this call are read.
        """
        self._discover()
        yield from self._pop_notices()
        for source in list(self.sources.values()):
            yield from self._drain_source(source)
        # after the others: then each of them may be dropped for a new one
        for source in self._final_scan():
            yield from self._pop_notices()
            yield from self._drain_source(source)
        yield from self._pop_notices()

    def _drain_source(self, source: RankLog) -> Iterator[bytes]:
        piece, _ = self._read(source)  # opens it
        yield piece
        end = source.size()
        while source.offset < end:
            before = source.offset
            piece, _ = self._read(source)
            if source.offset == before:
                break  # it cannot be read
            yield piece
        yield source.finish()

    def _pop_notices(self) -> Iterator[bytes]:
        notices, self.notices = self.notices, []
        return iter(notices)

    def drain(self) -> bytes:
        """Return all that is left as one; see `remaining`."""
        return b"".join(self.remaining())

    def close(self) -> None:
        """Close all files."""
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
            # beside files of `logs:` even a log without ranks must be merged by lines
            prefix = b"" if self.prefixed or self.finder is not None else None
            if self.prefixed and name.startswith("rank-"):
                prefix = f"[{name[len('rank-') : -len('.log')]}] ".encode()
            self.sources[name] = RankLog(os.path.join(self.folder, name), prefix)

    # -- the job's own files -------------------------------------------------------------------

    def _scan_extra(self) -> None:
        """Drop files that were replaced, follow new ones. It never raises."""
        finder = self.finder
        if finder is None or time.monotonic() < finder.next_walk_at:
            return
        try:
            self._drop_replaced(finder)
            files = self._new_files(finder, SCAN_SECONDS)
            for path, key, offset in files[:MAX_EXTRA]:  # the others come with a later poll
                self._follow(finder, path, key, offset)
            if files:
                self._set_prefixes()
        except Exception as e:  # noqa: BLE001 - a fault in `logs:` must not end the job
            self._disable_extra(e)

    def _final_scan(self) -> Iterator[RankLog]:
        """Yield the files that are new or have grown since the last scan."""
        finder = self.finder
        if finder is None:
            return
        try:
            finder.restart_walk()
            self._drop_replaced(finder)
            for file in self._new_files(finder, FINAL_SCAN_SECONDS):
                self.polls += 1
                source = self._follow(finder, *file)
                if source is not None:
                    self._set_prefixes()
                    yield source
        except Exception as e:  # noqa: BLE001 - a fault in `logs:` must not end the job
            self._disable_extra(e)

    def _disable_extra(self, error: Exception) -> None:
        self.finder = None
        why = f"{type(error).__name__}: {error}"
        line = f"[safelaunch] files of `logs:` are no longer followed: {why}\n"
        self.notices.append(line.encode("utf-8", "replace"))

    def _followed(self) -> list[RankLog]:
        return [source for source in self.sources.values() if source.is_extra]

    def _drop_replaced(self, finder: GlobWatcher) -> None:
        for source in self._followed():
            if source.is_echo:
                finder.skip_file(source.key)
                del self.sources[source.path]
            elif source.is_replaced() and source.size() <= source.offset:
                self._unfollow(finder, source)

    def _unfollow(self, finder: GlobWatcher, source: RankLog) -> None:
        """Stop to follow a file; if it is not removed, it is followed again when it grows."""
        is_idle = source.last_growth < self.polls and source.size() <= source.offset
        if is_idle or source.is_replaced():
            self.notices.append(source.finish())
        else:  # its last line may go on: read it again from its start
            source.offset -= len(source.partial)
        if source.is_removed():
            finder.offsets.pop(source.key, None)
        else:
            finder.offsets[source.key] = source.offset
            self.unfollowed[source.key] = (self.polls, source.mark())
        source.close()
        del self.sources[source.path]

    def _new_files(self, finder: GlobWatcher, limit: float) -> list[NewPart]:
        """Return files with new bytes that are not followed: first those that never were."""
        followed = {source.key for source in self._followed()}
        files = {}
        for path, key, offset in finder.tick(limit):
            if path not in self.sources and key not in followed:
                files[key] = (path, key, offset)
        if len(self.unfollowed) > len(finder.offsets):  # the watcher has dropped some
            self.unfollowed = {k: v for k, v in self.unfollowed.items() if k in finder.offsets}
        never = (-1, b"")
        return sorted(files.values(), key=lambda file: self.unfollowed.get(file[1], never)[0])

    def _make_room(self, finder: GlobWatcher) -> bool:
        """Return whether one more can be followed; drop the one that grew least recently."""
        followed = self._followed()
        if len(followed) < MAX_EXTRA:
            return True
        # a source that was added in this poll has not been read yet
        old = [source for source in followed if source.added_in < self.polls]
        for source in sorted(old, key=lambda source: (source.last_growth, source.added_in)):
            # a replaced file could not be found again
            if source.size() <= source.offset or not source.is_replaced():
                self._unfollow(finder, source)
                return True
        return False

    def _follow(self, finder: GlobWatcher, path: str, key: Key, offset: int) -> RankLog | None:
        if not finder.can_track(key):
            notice = b"[safelaunch] `logs:` matches too many files: not all are read\n"
            self.notices += [] if self.is_full else [notice]
            self.is_full = True
            return None
        source = RankLog(path, b"", offset, is_extra=True)
        try:
            source.open()
        except OSError:
            return None
        if source.key != key or not self._make_room(finder):
            source.close()
            return None
        _, mark = self.unfollowed.pop(key, (0, b""))
        if mark and source.mark() != mark:
            source.offset = 0  # another file of the same inode, or rewritten
        source.added_in = source.last_growth = self.polls
        self.sources[path] = source
        return source

    def _set_prefixes(self) -> None:
        from safelaunch.runtime.logs import framework_logs

        extra = {source.path: source for source in self._followed()}
        for path, name in framework_logs.short_names(list(extra)).items():
            extra[path].prefix = b"[" + os.fsencode(name) + b"] "


class Watch:
    """Wakes the supervisor when a log has grown, by inotify; `fd` is -1 where there is none."""

    def __init__(self, libc: Any) -> None:
        self.libc = libc
        has_inotify = hasattr(libc, "inotify_init1")
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if has_inotify else -1

    def add(self, folder: str) -> None:
        """Watch the files of a folder."""
        mask = IN_MODIFY | IN_CREATE
        if self.fd >= 0 and self.libc.inotify_add_watch(self.fd, os.fsencode(folder), mask) < 0:
            self.close()

    def clear(self) -> None:
        """Discard the pending events: the files themselves are polled."""
        try:
            os.read(self.fd, CHUNK)
        except OSError:
            pass

    def close(self) -> None:
        """Close the inotify descriptor."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
