"""Reads the bytes of a log in chunks: files with holes, pipes, gzip, UTF-16.

An unreadable part is reported with `note` and ends the log there; memory stays at a few blocks.
"""

from __future__ import annotations

import codecs
import os
import select
import zlib
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO, Protocol

    class ByteStream(Protocol):
        """A readable byte stream: a file, a pipe, the log of a run."""

        def read(self, size: int = -1, /) -> bytes | None:
            """Return bytes, b"" at the end, None while none have arrived."""


BLOCK_BYTES = 1 << 20  # read at once
MAX_LOG_BYTES = 8 << 30  # a log that never ends must not hang us
SILENCE_SECONDS = 10.0  # without a byte, after which the wait is reported
COMPRESSED_BLOCK_BYTES = 64 << 10  # decompressed at once, to up to a thousand times as many
_ZEROS = bytes(BLOCK_BYTES)
_GZIP = b"\x1f\x8b"
_MAGIC_BYTES = 6  # that show the compression, or a byte order mark
# magic numbers: RFC 8878, tukaani.org/xz/xz-file-format.txt, bzip2's manual, PKWARE's APPNOTE
_COMPRESSIONS = {
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc"),
    b"\xfd7zXZ": ("xz", "xz -dc"),
    b"BZh": ("bzip2", "bzip2 -dc"),
    b"PK\x03\x04": ("zip", "unzip -p"),
}


def read_file(file: BinaryIO, note: Callable[[str], None]) -> Iterator[bytes]:
    """Yield the content that a regular file had when it was opened; holes are skipped."""
    offset, size = 0, os.fstat(file.fileno()).st_size
    while offset < size:
        data = file.read(min(BLOCK_BYTES, size - offset))
        if not data:
            note("the file shrank while it was read")
            return
        offset += len(data)
        if not _is_zeros(data):
            yield data
        elif hasattr(os, "SEEK_DATA"):
            try:
                offset = file.seek(offset, os.SEEK_DATA)
            except OSError:  # a hole up to the end
                return


def _is_zeros(data: bytes) -> bool:
    return data[0] == 0 == data[-1] and data == _ZEROS[: len(data)]


def read_stream(file: ByteStream, on_silence: Callable[[], None]) -> Iterator[bytes]:
    """Yield data as soon as it arrives; call `on_silence` once after a long time without any."""
    # the raw stream: of one that does not block, read1() returns b"" also before its end
    read = getattr(file, "raw", file).read
    wait_for_data = _poll(file)
    is_reported = False
    while True:
        if not is_reported and wait_for_data is not None and not wait_for_data(SILENCE_SECONDS):
            is_reported = True
            on_silence()
        data = read(BLOCK_BYTES)
        if data is not None and not data:
            return
        if data:
            yield data
        elif wait_for_data is not None:  # the parent process made it non-blocking
            wait_for_data(None)


def _poll(file: ByteStream) -> Callable[[float | None], bool] | None:
    """Return a function that waits some seconds for data; None where polling is impossible."""
    try:
        poll = select.poll()  # type: ignore[attr-defined, unused-ignore]
        poll.register(file.fileno(), select.POLLIN)  # type: ignore[attr-defined, unused-ignore]
    except (AttributeError, OSError, ValueError):  # Windows; no descriptor behind it
        return None
    return lambda seconds: bool(poll.poll(None if seconds is None else seconds * 1000))


def limit(chunks: Iterator[bytes], note: Callable[[str], None]) -> Iterator[bytes]:
    """Yield chunks up to the size limit of one log."""
    remaining = MAX_LOG_BYTES
    for data in chunks:
        yield data
        remaining -= len(data)
        if remaining <= 0:
            note(f"stopped after {MAX_LOG_BYTES >> 30} GiB; the rest was not read")
            return


def decompress(chunks: Iterator[bytes], note: Callable[[str], None]) -> Iterator[bytes]:
    """Yield the data, decompressed if it is gzip."""
    head = _read_head(chunks)
    data = chain([head], chunks) if head else chunks
    return _inflate_gzip(data, note) if head.startswith(_GZIP) else data


def _read_head(chunks: Iterator[bytes]) -> bytes:
    head = b""
    for data in chunks:
        head += data
        if len(head) >= _MAGIC_BYTES:
            break
    return head


def unsupported_compression(data: bytes) -> tuple[str, str] | None:
    """Return the name of a compression other than gzip, and a command that decompresses it."""
    return next((names for magic, names in _COMPRESSIONS.items() if data.startswith(magic)), None)


def _inflate_gzip(chunks: Iterator[bytes], note: Callable[[str], None]) -> Iterator[bytes]:
    """Yield decompressed gzip; consecutive members are one file (RFC 1952)."""
    inflater, is_started = zlib.decompressobj(wbits=31), False
    step = COMPRESSED_BLOCK_BYTES
    small = (data[i : i + step] for data in chunks for i in range(0, len(data), step))
    for data in small:
        remaining, is_full = data, False
        while remaining or is_full:
            if not is_started and not (remaining := remaining.lstrip(b"\0")):
                break  # padding
            if not is_started and not remaining.startswith(_GZIP[:1]):
                note("data after the end of the gzip data; it was not read")
                return
            is_started = True
            try:
                out = inflater.decompress(remaining, BLOCK_BYTES)
            except zlib.error:
                note("the gzip data is damaged; the rest was not read")
                return
            if out:
                yield out
            remaining, is_full = inflater.unconsumed_tail, len(out) == BLOCK_BYTES
            if inflater.eof:
                remaining, is_full, is_started = inflater.unused_data, False, False
                inflater = zlib.decompressobj(wbits=31)
    if is_started:
        note("the gzip data is truncated")


def decode_text(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield UTF-8 text without zero bytes; UTF-16, as PowerShell writes it, is decoded."""
    head = _read_head(chunks)
    decoder = None
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for data in chain([head.removeprefix(codecs.BOM_UTF8)], chunks):
        if decoder is not None:
            yield decoder.decode(data).encode("utf-8", "replace")
        elif data and b"\0" not in data:
            yield data
        elif data and not _is_zeros(data):
            yield data.translate(None, b"\0")
