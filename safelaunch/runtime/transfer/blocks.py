"""Small files packed into blocks of a stream, for both directions and both machines.

A block is a byte of kind (compression.py), four bytes of length, the body. The body is four bytes
of length, a JSON head of that length, and the contents of the files that the head names, in order.
"""

from __future__ import annotations

import json
import struct
import zlib

from safelaunch.runtime.agent import wire
from safelaunch.runtime.transfer import compression

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

MAX_BLOCK = 1 << 26  # bytes of a block, packed and unpacked; a larger length is an error
MAX_EXTENT = 1 << 22  # bytes of one of a large file
HEAD = struct.Struct(">cI")
_LENGTH = struct.Struct(">I")


def pack(head: dict[str, Any], contents: list[bytes], level: int) -> bytes:
    """Return one block, deflated by itself at a level; 0 stores it."""
    return frame(*compression.deflate(body(head, contents), level))


def body(head: dict[str, Any], contents: list[bytes]) -> bytes:
    """Return the body of a block."""
    text = json.dumps(head, separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *contents])


def frame(kind: bytes, data: bytes) -> bytes:
    """Return the block of a body, which `data` is as a kind of compression.py."""
    return HEAD.pack(kind, len(data)) + data


def unpack(
    pieces: Iterable[bytes],
    limit: int = MAX_BLOCK,
    expander: compression.Expander | None = None,
) -> Iterator[tuple[dict[str, Any], memoryview]]:
    """Yield head and contents of each block of a stream.

    `expander` is that of the whole transfer, where that has several streams. Raises wire.Garbled,
    also for a block of more than `limit` bytes.
    """
    expander = expander or compression.Expander()
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= HEAD.size:
            kind, length = HEAD.unpack_from(buffer)
            if length > limit:
                raise wire.Garbled("received data is no block of files")
            end = HEAD.size + length
            if len(buffer) < end:
                break
            packed = bytes(memoryview(buffer)[HEAD.size : end])
            del buffer[:end]
            yield _parse(bytes(expander.expand(kind, packed, limit)))
    if buffer:
        raise wire.Garbled("a block of files ends in the middle")


def _parse(body: bytes) -> tuple[dict[str, Any], memoryview]:
    if len(body) < _LENGTH.size:
        raise wire.Garbled("a block of files is too short")
    (length,) = _LENGTH.unpack_from(body)
    start = _LENGTH.size + length
    if start > len(body):
        raise wire.Garbled("a block of files is too short")
    return wire.parse(body[_LENGTH.size : start]), memoryview(body)[start:]


def piece_data(piece: bytes) -> bytes | memoryview:
    """Return the data of a piece of a file, which `send` sends. Raises wire.Garbled."""
    if piece[:1] == compression.DEFLATED:
        return compression.inflate(memoryview(piece)[1:], wire.PIECE)
    if piece[:1] != compression.STORED:
        raise wire.Garbled("received data is no piece of a file")
    return memoryview(piece)[1:]


def extents(
    frames: Iterable[memoryview], expander: compression.Expander
) -> Iterator[bytes | memoryview]:
    """Yield the data of a part of a large file: its blocks without heads, each head a frame.

    What is stored is yielded as it comes, also of a block that breaks off. Raises wire.Garbled.
    """
    packed, kind, left = bytearray(), b"", 0
    for data in frames:
        if not left:
            if len(data) != HEAD.size:
                raise wire.Garbled("received data is no part of a file")
            kind, left = HEAD.unpack(data)
            if not 0 < left <= MAX_EXTENT:
                raise wire.Garbled("a part of a file is empty, or longer than accepted")
            continue
        left -= len(data)
        if left < 0:
            raise wire.Garbled("a part of a file is longer than it says")
        if kind == compression.STORED:
            yield data
            continue
        packed += data
        if not left:
            yield expander.expand(kind, bytes(packed), MAX_EXTENT)
            packed.clear()
    if left:
        raise wire.Garbled("a part of a file ends in the middle")


def rows(values: list[Any]) -> bytes:
    """Return a list as deflated JSON."""
    return zlib.compress(json.dumps(values, separators=(",", ":")).encode(), 1)


def read_rows(
    data: bytes, limit: int = wire.MESSAGE_LIMIT, values: int = wire.MESSAGE_LIMIT
) -> list[Any]:
    """Return the list that `rows` packed. Raises wire.Garbled, also for more than the limits."""
    text = wire.check_size(compression.inflate(data, limit), limit, values)
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise wire.Garbled(f"a list of files is garbled: {e}") from None
    if not isinstance(parsed, list):
        raise wire.Garbled("a list of files is garbled")
    return parsed
