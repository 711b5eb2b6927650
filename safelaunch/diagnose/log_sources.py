"""The logs that are read: files, folders of them, what is packed, a stream.

Bytes come in blocks of whole lines. A file may grow, vanish, be sparse, end in the middle, hold
UTF-16 or lines of any length: what can be read is read, and a note says what could not.
"""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from safelaunch.diagnose import byte_streams, log_folders
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.runtime.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from safelaunch.diagnose.byte_streams import Stream

STDIN = "-"
LONGEST = 256 << 10  # bytes of a line that are held; of a longer one its beginning and its end
KEPT = 64 << 10  # bytes of each of the two
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b\x07\x08\0"))
_SAMPLE = 64 << 10  # bytes at the beginning that tell whether it is text
_BINARY = 0.02  # share of control characters in it that no text has
_FEW = 16  # control characters that prove nothing, however short it is


class Source(NamedTuple):
    """One log: its path (`-` is standard input), and the rank and host that its name tells."""

    path: str
    rank: int | None = None
    host: str = ""

    @property
    def name(self) -> str:
        """The path as one line of text that can be printed, whatever bytes it has."""
        return printable(self.path)

    @property
    def shown(self) -> str:
        """The name for people."""
        return "standard input" if self.path == STDIN else self.name


class Block(NamedTuple):
    """Whole lines: the number of the first (from 1), their bytes, and how many they are."""

    number: int
    data: bytes
    lines: int


def choose(paths: Iterable[str]) -> list[Source]:
    """Return the logs that paths name, those of a folder in the order of their names.

    A log that two of them name, or a link and a name, is read once. Raises ConfigError for a path
    that is not there, and for a folder without logs.
    """
    found: dict[object, Source] = {}
    for path in paths:
        if path == STDIN:
            found[path] = Source(path)
        elif os.path.isdir(path):
            for below in log_folders.logs(path):
                said = below[len(path) :]
                found.setdefault(_identity(below), _source(below, said))
        elif os.path.exists(path):
            found.setdefault(_identity(path), _source(path, path))
        else:
            raise _absent(path)
    return list(found.values())


def _identity(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError:  # gone since; whoever opens it says so
        return path
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else path


def _source(path: str, said: str) -> Source:
    return Source(path, log_folders.rank(said), log_folders.host(said))


def _absent(path: str) -> ConfigError:
    name = Source(path).name
    if os.path.islink(path):
        target = Source(os.readlink(path)).name
        return ConfigError(f"`{name}` is a link to `{target}`, which is not there")
    folder = os.path.dirname(path) or "."
    try:
        names = os.listdir(folder)
    except OSError:
        where = Source(folder).name
        return ConfigError(f"no file or folder `{name}`", hint=f"there is no folder `{where}`")
    near = did_you_mean(os.path.basename(path), names)
    return ConfigError(f"no file or folder `{name}`", hint=near or "`-` reads standard input")


class Pieces:
    """Bytes that come piece by piece, as a stream that can be read."""

    def __init__(self, found: Iterator[bytes]) -> None:
        self._found = found

    def read(self, _: int = -1, /) -> bytes:
        """Return the next piece, b"" at the end."""
        return next((piece for piece in self._found if piece), b"")


class Reader:
    """Reads one log once. `notes` tells afterwards what could not be read.

    `waiting` is called once where a stream stays silent for long.
    """

    def __init__(
        self,
        source: Source,
        stream: Stream | None = None,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self.stream = stream
        self.notes: list[str] = []
        self.lines = 0
        self.is_refused = False  # nothing of it could be read; the last note says why
        self.is_interrupted = False
        self._waiting = waiting
        self._held: list[bytes] = []
        self._size = 0  # bytes that are held
        self._is_known = False  # that it is text

    def blocks(self) -> Iterator[Block]:
        """Yield the log in blocks of whole lines; the last line may have no end."""
        try:
            if self.stream is not None:
                yield from self._of(self.stream)
            else:
                with open(self.source.path, "rb") as file:
                    yield from self._of(file)
        except OSError as e:
            yield from self.rest()
            if self.lines:
                self._note(f"{e.strerror or e}; read up to line {self.lines:,}")
            else:
                self._refuse(e.strerror or str(e))

    def rest(self) -> Iterator[Block]:
        """Yield what was read and not yet yielded: all that came of a log that was broken off."""
        data = b"".join(self._held)
        self._held = [data] if not data or data.endswith(b"\n") else [data, b"\n"]
        block = self._taken()
        if block is not None:
            yield block

    def interrupt(self) -> None:
        """Write down that a person has ended the reading."""
        self.is_interrupted = True
        self._note(f"interrupted; read up to line {self.lines:,}")

    def _note(self, said: str) -> None:
        self.notes.append(f"{self.source.shown}: {said}")

    def _refuse(self, said: str) -> None:
        self.is_refused = True
        self._held = []
        self._note(f"{said}; it was not read")

    def _of(self, file: Stream | BinaryIO) -> Iterator[Block]:
        for data in byte_streams.text(byte_streams.limited(self._raw(file), self._note)):
            self._held.append(data)
            self._size += len(data)
            if self._size >= byte_streams.BLOCK:
                block = self._taken()
                if block is not None:
                    yield block
                if self.is_refused:
                    return
        yield from self.rest()

    def _raw(self, file: Stream | BinaryIO) -> Iterator[bytes]:
        found = byte_streams.of_stream(file, self._waiting)
        if self.stream is None and _is_regular(file):  # type: ignore[arg-type]
            found = byte_streams.of_file(file, self._note)  # type: ignore[arg-type]
        return byte_streams.unpacked(found, self._note)

    def _taken(self) -> Block | None:
        """Return the whole lines of what is held, None where there are none."""
        data = b"".join(self._held)
        if not self._is_known and data.strip():
            self._is_known = True
            said = self._not_text(data[:_SAMPLE])
            if said:
                self._refuse(said)
                return None
        end = data.rfind(b"\n") + 1
        rest = _shortened(data[end:])
        self._held, self._size = [rest], len(rest)
        if not end:
            return None
        block = Block(self.lines + 1, data[:end], data.count(b"\n"))
        self.lines += block.lines
        return block

    def _not_text(self, sample: bytes) -> str:
        """Return what a log is that is no text, "" for text."""
        packed = byte_streams.packer(sample)
        if packed is not None:
            name, command = packed
            file = "FILE" if self.stream is not None else shlex.quote(self.source.name)
            return f"is packed with {name} (try `{command} {file} | safelaunch diagnose -`)"
        control = len(sample) - len(sample.translate(None, _CONTROL))
        return "is no text" if control > max(_FEW, _BINARY * len(sample)) else ""


def _is_regular(file: BinaryIO) -> bool:
    """Whether a file has a size: those of /proc have none, though they hold something."""
    status = os.fstat(file.fileno())
    return stat.S_ISREG(status.st_mode) and status.st_size > 0


def _shortened(line: bytes) -> bytes:
    if len(line) <= LONGEST:
        return line
    return line[:KEPT] + b" ... " + line[-KEPT:]
