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

    from safelaunch.runtime.logs.framework_logs import Finder

# The prefixed chunk must stay below malloc's 128 KiB: above it each one is mapped and faulted in
# anew, and the same replace() takes three times as long (mallopt(3), M_MMAP_THRESHOLD; measured).
CHUNK = 1 << 16
LOOK = 16 * CHUNK  # bytes in one look: signals, ends of processes and limits must not wait for long
LONGEST = 1 << 16  # a longer line is cut in the merged log; its own file has it whole
ENDS = (b"\r", b"\n")
SLICE, LAST = 0.002, 0.5  # seconds for a look at what `logs:` names; the last one may be long
MOST_EXTRA = 64  # files of `logs:` that are followed at once: each costs a descriptor and a look
MARK = 64  # bytes before the offset by which a file that was given up is known again

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
        self.grown = 0  # the look in which it had something new the last time
        self.taken = 0  # the look in which it was found
        self.fd = -1
        self.key = (0, 0)  # device and inode of the file that is, or was, open
        self.rest = b""
        self.is_dry = False  # whether the last read brought nothing

    def read(self) -> bytes:
        """Return what has come since, a chunk at most: prefixed lines; a partial line waits."""
        data = self._more()
        was_dry, self.is_dry = self.is_dry, not data
        if data:
            return data if self.prefix is None else self.take(data, self.prefix)
        # no LF has followed the CR by the next look either: it is a line of its own
        return self.finish() if was_dry and self.rest.endswith(ENDS) else b""

    def open(self) -> None:
        """Open the file. Raises OSError."""
        self.fd = os.open(self.path, OPEN_FLAGS)
        info = os.fstat(self.fd)
        self.key = (info.st_dev, info.st_ino)

    def _more(self) -> bytes:
        if self.is_echo:
            return b""
        try:
            if self.fd < 0:
                self.open()
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

    def is_replaced(self) -> bool:
        """Whether the path names another file now, or none."""
        try:
            return self.fd < 0 or not os.path.samestat(os.fstat(self.fd), os.stat(self.path))
        except OSError:
            return True

    def is_removed(self) -> bool:
        """Whether the open file has no name any more: its inode is another file's soon."""
        try:
            return self.fd >= 0 and os.fstat(self.fd).st_nlink == 0
        except OSError:
            return False

    def mark(self) -> bytes:
        """Return what stands just before the offset: another file of that inode has it not."""
        begin = max(0, self.offset - MARK)
        try:
            return os.pread(self.fd, self.offset - begin, begin) if self.fd >= 0 else b""
        except OSError:
            return b""

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
    there comes from here. `since` is the attempt's start, in seconds since 1970. Of these files
    MOST_EXTRA are followed at once; for another one that grows, the one that has not grown for the
    longest time is given up. It comes back when it grows.
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
        self.looks = 0
        self.is_full = False  # whether `logs:` names more files than can be remembered
        self.given_up: dict[tuple[int, int], tuple[int, bytes]] = {}  # key -> look, mark
        self.said: list[bytes] = []  # lines that the next look gives first
        if extra:
            # <home>/runs/<run-id>/node-0/logs/attempt-1: no run may follow another's logs
            runs = os.path.join(folder, *[os.pardir] * 4)
            try:
                self.finder = _extra().Finder(extra, cwd, since, runs, skip)
            except Exception as e:  # noqa: BLE001 - as above
                self._cannot_look(e)

    def pieces(self) -> Iterator[bytes]:
        """Yield the next merged lines in pieces of a chunk; nothing when nothing new has come.

        Each file gives a chunk in turn, so that a flood of one does not hide the others, and all
        together not much more than LOOK bytes: whoever asks has other things to do as well.
        """
        # a flood must not pay for a look at the folder each time; the next dry look has it
        if not self.is_flooded:
            self._discover()
            self._look_for_extra()
        yield from self._told()
        self.looks += 1
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
                    source.grown = self.looks
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
        yield from self._told()
        for source in list(self.sources.values()):
            yield from self._rest_of(source)
        # after these: then each may give its place to a new one
        for source in self._last_extra():
            yield from self._told()
            yield from self._rest_of(source)
        yield from self._told()

    def _rest_of(self, source: Source) -> Iterator[bytes]:
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
            source.grown = self.looks
            yield piece
        yield source.finish()

    def _told(self) -> Iterator[bytes]:
        said, self.said = self.said, []
        return iter(said)

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

    # -- the job's own files -------------------------------------------------------------------

    def _look_for_extra(self) -> None:
        """Let go what has ended, take what has begun. It never raises."""
        finder = self.finder
        if finder is None or not finder.is_due():
            return
        try:
            self._let_go(finder)
            found = self._news(finder, SLICE)
            for path, key, offset in found[:MOST_EXTRA]:  # the others come with a later look
                self._take(finder, path, key, offset)
            if found:
                self._name()
        except Exception as e:  # noqa: BLE001 - as above
            self._cannot_look(e)

    def _last_extra(self) -> Iterator[Source]:
        """Yield what has come to be since the last look, one after the other."""
        finder = self.finder
        if finder is None:
            return
        try:
            finder.look_again()
            self._let_go(finder)
            for found in self._news(finder, LAST):
                self.looks += 1
                source = self._take(finder, *found)
                if source is not None:
                    self._name()
                    yield source
        except Exception as e:  # noqa: BLE001 - as above
            self._cannot_look(e)

    def _cannot_look(self, error: Exception) -> None:
        self.finder = None
        said = "[safelaunch] `logs:` is followed no further: %s: %s\n"
        self.said.append((said % (type(error).__name__, error)).encode("utf-8", "replace"))

    def _followed(self) -> list[Source]:
        return [source for source in self.sources.values() if source.is_extra]

    def _let_go(self, finder: Finder) -> None:
        for source in self._followed():
            if source.is_echo:
                finder.skip_file(source.key)
                del self.sources[source.path]
            elif source.is_replaced() and source.size() <= source.offset:
                self._give_up(finder, source)

    def _give_up(self, finder: Finder, source: Source) -> None:
        """Follow a file no more; one that still has a name comes back when it grows."""
        is_idle = source.grown < self.looks and source.size() <= source.offset
        if is_idle or source.is_replaced():
            self.said.append(source.finish())
        else:
            source.offset -= len(source.rest)  # its last line may go on: it is read again, whole
        if source.is_removed():
            finder.offsets.pop(source.key, None)
        else:
            finder.offsets[source.key] = source.offset
            self.given_up[source.key] = (self.looks, source.mark())
        source.close()
        del self.sources[source.path]

    def _news(self, finder: Finder, limit: float) -> list[tuple[str, tuple[int, int], int]]:
        """Return files with something new that are not followed: first those that never were."""
        followed = {source.key for source in self._followed()}
        found = {}
        for path, key, offset in finder.tick(limit):
            if path not in self.sources and key not in followed:
                found[key] = (path, key, offset)
        if len(self.given_up) > len(finder.offsets):  # the finder has forgotten some
            self.given_up = {k: v for k, v in self.given_up.items() if k in finder.offsets}
        never = (-1, b"")
        return sorted(found.values(), key=lambda one: self.given_up.get(one[1], never)[0])

    def _has_room(self, finder: Finder) -> bool:
        """Whether one more can be followed; the one that grew least recently makes room."""
        followed = self._followed()
        if len(followed) < MOST_EXTRA:
            return True
        # what was taken just now is to be read first
        old = [source for source in followed if source.taken < self.looks]
        for source in sorted(old, key=lambda one: (one.grown, one.taken)):
            # what has no name any more could not come back
            if source.size() <= source.offset or not source.is_replaced():
                self._give_up(finder, source)
                return True
        return False

    def _take(self, finder: Finder, path: str, key: tuple[int, int], offset: int) -> Source | None:
        if not finder.remembers(key):
            if not self.is_full:
                self.is_full = True
                self.said.append(b"[safelaunch] `logs:` names too many files: not all are read\n")
            return None
        source = Source(path, b"", offset, is_extra=True)
        try:
            source.open()
        except OSError:
            return None
        if source.key != key or not self._has_room(finder):
            source.close()
            return None
        _, mark = self.given_up.pop(key, (0, b""))
        if mark and source.mark() != mark:
            source.offset = 0  # another file of the same inode, or written anew
        source.taken = source.grown = self.looks
        self.sources[path] = source
        return source

    def _name(self) -> None:
        extra = {source.path: source for source in self._followed()}
        for path, name in _extra().short_names(list(extra)).items():
            extra[path].prefix = b"[" + os.fsencode(name) + b"] "


def _extra() -> Any:
    """Import what finds the job's own files: most jobs name none."""
    from safelaunch.runtime.logs import framework_logs  # noqa: PLC0415

    return framework_logs


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
