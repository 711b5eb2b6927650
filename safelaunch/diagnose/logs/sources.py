"""Opens and reads logs: files, folders, gzip, streams.

Bytes come in blocks of whole lines. A file may grow, vanish, be sparse or truncated, hold UTF-16 or
lines of any length: all that is readable is read, and a note names what is not.
"""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.diagnose.logs import byte_streams, folders
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.runtime.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from safelaunch.diagnose.logs.byte_streams import ByteStream

STDIN = "-"
MAX_LINE_BYTES = 256 << 10  # of a longer line its start and end are kept
LINE_END_BYTES = 64 << 10  # kept of the start and of the end of a long line
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b\x07\x08\0"))
_SAMPLE = 64 << 10  # at the start, by which text is recognised
_BINARY = 0.02  # share of control characters that text does not reach
_FEW = 16  # control characters that text of any length may have


class LogSource(NamedTuple):
    """One log: its path (`-` is standard input), and the rank and host in its name."""

    path: str
    rank: int | None = None
    host: str = ""

    @property
    def name(self) -> str:
        """The path as one printable line of text."""
        return printable(self.path)

    @property
    def display_name(self) -> str:
        """The name in messages."""
        return "standard input" if self.path == STDIN else self.name


class LineBlock(NamedTuple):
    """Whole lines: the number of the first (from 1), their bytes, and how many they are."""

    number: int
    data: bytes
    lines: int


def find_sources(paths: Iterable[str]) -> list[LogSource]:
    """Return the logs at paths (files, folders, `-`), those of a folder in natural order.

    A log that is named twice, also by a link, is read once. Raises ConfigError for a path that does
    not exist, and for a folder without logs.
    """
    sources: dict[object, LogSource] = {}
    for path in paths:
        if path == STDIN:
            sources[path] = LogSource(path)
        elif os.path.isdir(path):
            for log in folders.find_logs(path):
                sources.setdefault(_identity(log), _source(log, log[len(path) :]))
        elif os.path.exists(path):
            sources.setdefault(_identity(path), _source(path, path))
        else:
            raise _missing_path_error(path)
    return list(sources.values())


def _identity(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError:  # deleted meanwhile; opening it will report that
        return path
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else path


def _source(path: str, label: str) -> LogSource:
    return LogSource(path, folders.rank_from_path(label), folders.host_from_path(label))


def _missing_path_error(path: str) -> ConfigError:
    name = LogSource(path).name
    if os.path.islink(path):
        target = LogSource(os.readlink(path)).name
        return ConfigError(f"`{name}` is a link to `{target}`, which does not exist")
    folder = os.path.dirname(path) or "."
    try:
        names = os.listdir(folder)
    except OSError:
        where = LogSource(folder).name
        return ConfigError(f"no file or folder `{name}`", hint=f"there is no folder `{where}`")
    suggestion = did_you_mean(os.path.basename(path), names)
    return ConfigError(f"no file or folder `{name}`", hint=suggestion or "`-` reads standard input")


class ChunkStream:
    """A readable stream over an iterator of chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read(self, _: int = -1, /) -> bytes:
        """Return the next chunk, b"" at the end."""
        return next((chunk for chunk in self._chunks if chunk), b"")


class LogReader:
    """Reads one log once; `notes` then lists what could not be read.

    `on_silence` is called once where a stream stays silent for long.
    """

    def __init__(
        self,
        source: LogSource,
        stream: ByteStream | None = None,
        on_silence: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self.stream = stream
        self.notes: list[str] = []
        self.lines = 0
        self.is_unreadable = False  # it could not be read at all; the last note says why
        self.is_interrupted = False
        self._on_silence = on_silence
        self._pending: list[bytes] = []
        self._size = 0  # of what is pending
        self._is_checked = False  # whether it is text

    def blocks(self) -> Iterator[LineBlock]:
        """Yield the log in blocks of whole lines; the last line may be unterminated."""
        try:
            if self.stream is not None:
                stream = byte_streams.read_stream(self.stream, self._on_silence)
                yield from self._read_blocks(stream)
            else:
                with open(self.source.path, "rb") as file:
                    status = os.fstat(file.fileno())
                    if stat.S_ISREG(status.st_mode) and status.st_size > 0:
                        chunks = byte_streams.read_file(file, self._note)
                    else:  # files of /proc have content, but size 0
                        chunks = byte_streams.read_stream(file, self._on_silence)
                    yield from self._read_blocks(chunks)
        except OSError as e:
            yield from self.remaining()
            if self.lines:
                self._note(f"{e.strerror or e}; read up to line {self.lines:,}")
            else:
                self._refuse(e.strerror or str(e))

    def remaining(self) -> Iterator[LineBlock]:
        """Yield what was read and not yet yielded, after the reading was broken off."""
        data = b"".join(self._pending)
        self._pending = [data] if not data or data.endswith(b"\n") else [data, b"\n"]
        if (block := self._next_block()) is not None:
            yield block

    def interrupt(self) -> None:
        """Note that Ctrl-C ended the reading."""
        self.is_interrupted = True
        self._note(f"interrupted; read up to line {self.lines:,}")

    def _note(self, reason: str) -> None:
        self.notes.append(f"{self.source.display_name}: {reason}")

    def _refuse(self, reason: str) -> None:
        self.is_unreadable = True
        self._pending = []
        self._note(f"{reason}; it was not read")

    def _read_blocks(self, chunks: Iterator[bytes]) -> Iterator[LineBlock]:
        decompressed = byte_streams.decompress(chunks, self._note)
        for data in byte_streams.decode_text(byte_streams.limit(decompressed, self._note)):
            self._pending.append(data)
            self._size += len(data)
            if self._size >= byte_streams.BLOCK_BYTES:
                if (block := self._next_block()) is not None:
                    yield block
                if self.is_unreadable:
                    return
        yield from self.remaining()

    def _next_block(self) -> LineBlock | None:
        """Return the whole lines of the pending data, None if there are none."""
        data = b"".join(self._pending)
        if not self._is_checked and data.strip():
            self._is_checked = True
            if problem := self._unreadable_format(data[:_SAMPLE]):
                self._refuse(problem)
                return None
        end = data.rfind(b"\n") + 1
        tail = _shorten_line(data[end:])
        self._pending, self._size = [tail], len(tail)
        if not end:
            return None
        block = LineBlock(self.lines + 1, data[:end], data.count(b"\n"))
        self.lines += block.lines
        return block

    def _unreadable_format(self, sample: bytes) -> str:
        """Return why a log is not text, "" for text."""
        packed = byte_streams.unsupported_compression(sample)
        if packed is not None:
            name, command = packed
            file = "FILE" if self.stream is not None else shlex.quote(self.source.name)
            return f"is compressed with {name} (try `{command} {file} | safelaunch diagnose -`)"
        control = len(sample) - len(sample.translate(None, _CONTROL))
        return "is not text" if control > max(_FEW, _BINARY * len(sample)) else ""


def _shorten_line(line: bytes) -> bytes:
    if len(line) <= MAX_LINE_BYTES:
        return line
    return line[:LINE_END_BYTES] + b" ... " + line[-LINE_END_BYTES:]
