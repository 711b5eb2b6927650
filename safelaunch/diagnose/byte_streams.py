"""The bytes of a log, piece by piece, whatever holds them: a stream, holes, gzip, UTF-16.

What cannot be read is told with `note` and ends the log there; memory stays at a few blocks.
"""

from __future__ import annotations

import os
import zlib
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO, Protocol

    class Stream(Protocol):
        """What can be read: a file, a pipe, the log of a run."""

        def read(self, size: int = -1, /) -> bytes | None:
            """Return bytes, b"" at the end, None while there are none."""


BLOCK = 1 << 20  # bytes that are read at once
LIMIT = 8 << 30  # bytes of one log: one that never ends must not hang us
SILENCE = 10.0  # seconds without a byte, after which it is told what is waited for
PACKED = 64 << 10  # bytes that are unpacked at once: each may become a thousand times as many
_ZEROS = bytes(BLOCK)
_GZIP = b"\x1f\x8b"
_HEAD = 6  # bytes that tell what a log is packed with, and a byte order mark
# magic numbers: RFC 8878, tukaani.org/xz/xz-file-format.txt, bzip2's manual, PKWARE's APPNOTE
_PACKERS = (
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"),
    (b"\xfd7zXZ", "xz", "xz -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (b"PK\x03\x04", "zip", "unzip -p"),
)


def of_file(file: BinaryIO, note: Callable[[str], None]) -> Iterator[bytes]:
    """Yield what a regular file holds as it was opened; holes are jumped over."""
    at, size = 0, os.fstat(file.fileno()).st_size
    while at < size:
        data = file.read(min(BLOCK, size - at))
        if not data:
            note("it became shorter while it was read")
            return
        at += len(data)
        if _is_empty(data):
            at = _behind_hole(file, at, size)
        else:
            yield data


def _behind_hole(file: BinaryIO, at: int, size: int) -> int:
    if not hasattr(os, "SEEK_DATA"):
        return at
    try:
        return file.seek(at, os.SEEK_DATA)
    except OSError:  # nothing but a hole up to the end
        return size


def _is_empty(data: bytes) -> bool:
    return data[0] == 0 == data[-1] and data == _ZEROS[: len(data)]


def of_stream(file: Stream, waiting: Callable[[], None]) -> Iterator[bytes]:
    """Yield what comes as soon as it is there; call `waiting` once when nothing does for long."""
    read = getattr(file, "read1", file.read)
    arrived = _poll(file)
    is_told = False
    while True:
        if not is_told and arrived is not None and not arrived(SILENCE):
            is_told = True
            waiting()
        data = read(BLOCK)
        if data is None:  # whoever started us has made it non-blocking
            if arrived is not None:
                arrived(None)
            continue
        if not data:
            return
        yield data


def _poll(file: Stream) -> Callable[[float | None], bool] | None:
    """Return what waits some seconds for bytes; None where that cannot be done."""
    import select  # noqa: PLC0415 - files do without

    try:
        poll = select.poll()  # type: ignore[attr-defined, unused-ignore]
        poll.register(file.fileno(), select.POLLIN)  # type: ignore[attr-defined, unused-ignore]
    except (AttributeError, OSError, ValueError):  # Windows; no descriptor behind it
        return None
    return lambda seconds: bool(poll.poll(None if seconds is None else seconds * 1000))


def limited(pieces: Iterator[bytes], note: Callable[[str], None]) -> Iterator[bytes]:
    """Yield pieces up to the limit of one log."""
    left = LIMIT
    for data in pieces:
        yield data
        left -= len(data)
        if left <= 0:
            note(f"read {LIMIT >> 30} GiB of it, and it goes on")
            return


def unpacked(pieces: Iterator[bytes], note: Callable[[str], None]) -> Iterator[bytes]:
    """Yield what pieces hold; of gzip what is packed in it."""
    head = _head(pieces)
    whole = chain([head], pieces) if head else pieces
    return _inflated(whole, note) if head.startswith(_GZIP) else whole


def _head(pieces: Iterator[bytes]) -> bytes:
    head = b""
    for data in pieces:
        head += data
        if len(head) >= _HEAD:
            break
    return head


def packer(data: bytes) -> tuple[str, str] | None:
    """Return with what a log is packed that is not unpacked here, and what unpacks it."""
    return next((found for magic, *found in _PACKERS if data.startswith(magic)), None)  # type: ignore[return-value]


def _inflated(pieces: Iterator[bytes], note: Callable[[str], None]) -> Iterator[bytes]:
    """Yield what gzip holds: one member behind the other is one file (RFC 1952)."""
    inflater, is_begun = zlib.decompressobj(wbits=31), False
    for data in _small(pieces):
        left, is_full = data, False
        while left or is_full:
            if not is_begun and not (left := left.lstrip(b"\0")):
                break  # padding
            if not is_begun and not left.startswith(_GZIP[:1]):
                note("no gzip follows; the rest was not read")
                return
            is_begun = True
            try:
                out = inflater.decompress(left, BLOCK)
            except zlib.error:
                note("the packed data is damaged; the rest was not read")
                return
            if out:
                yield out
            left, is_full = inflater.unconsumed_tail, len(out) == BLOCK
            if inflater.eof:
                left, is_full, is_begun = inflater.unused_data, False, False
                inflater = zlib.decompressobj(wbits=31)
    if is_begun:
        note("the packed data is cut off")


def _small(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for data in pieces:
        for at in range(0, len(data), PACKED):
            yield data[at : at + PACKED]


def text(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield text in UTF-8 without holes of zeros; UTF-16, as PowerShell writes it, is decoded."""
    import codecs  # noqa: PLC0415 - with its first use

    head = _head(pieces)
    decoder = None
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for data in chain([head.removeprefix(codecs.BOM_UTF8)], pieces):
        if decoder is not None:
            yield decoder.decode(data).encode("utf-8", "replace")
        elif data and b"\0" not in data:
            yield data
        elif data and not _is_empty(data):
            yield data.translate(None, b"\0")
