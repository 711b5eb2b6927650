"""Small files packed into blocks of a stream, for both directions and both machines.

A block is a byte of kind (stored, deflated), four bytes of length, the body. The body is four bytes
of length, a JSON head of that length, and the contents of the files that the head names, in order.
"""

from __future__ import annotations

import json
import struct
import zlib

from safelaunch.runtime.agent import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

STORED, DEFLATED = b"S", b"Z"
MAX_BLOCK = 1 << 26  # bytes of a block, packed and unpacked; a larger length is an error
_BLOCK = struct.Struct(">cI")
_HEAD = struct.Struct(">I")


def pack(head: dict[str, Any], contents: list[bytes], level: int) -> bytes:
    """Return one block; it is stored at level 0, and where deflating does not make it smaller."""
    text = json.dumps(head, separators=(",", ":")).encode()
    body = b"".join([_HEAD.pack(len(text)), text, *contents])
    if level:
        deflated = zlib.compress(body, level)
        if len(deflated) < len(body):
            return _BLOCK.pack(DEFLATED, len(deflated)) + deflated
    return _BLOCK.pack(STORED, len(body)) + body


def unpack(
    pieces: Iterable[bytes], limit: int = MAX_BLOCK
) -> Iterator[tuple[dict[str, Any], memoryview]]:
    """Yield head and contents of each block of a stream.

    Raises wire.Garbled, also for a block of more than `limit` bytes.
    """
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= _BLOCK.size:
            kind, length = _BLOCK.unpack_from(buffer)
            if length > limit:
                raise wire.Garbled("received data is no block of files")
            end = _BLOCK.size + length
            if len(buffer) < end:
                break
            body = bytes(memoryview(buffer)[_BLOCK.size : end])
            del buffer[:end]
            yield _read(kind, body, limit)
    if buffer:
        raise wire.Garbled("a block of files ends in the middle")


def _read(kind: bytes, body: bytes, limit: int) -> tuple[dict[str, Any], memoryview]:
    if kind == DEFLATED:
        body = inflate(body, limit)
    elif kind != STORED:
        raise wire.Garbled("received data is no block of files")
    if len(body) < _HEAD.size:
        raise wire.Garbled("a block of files is too short")
    (length,) = _HEAD.unpack_from(body)
    start = _HEAD.size + length
    if start > len(body):
        raise wire.Garbled("a block of files is too short")
    return wire.parse(body[_HEAD.size : start]), memoryview(body)[start:]


def inflate(data: bytes | memoryview, limit: int) -> bytes:
    """Return what was deflated. Raises wire.Garbled, also for more than `limit` bytes."""
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, limit)
        if not inflater.eof:  # the mark of the end may follow the last byte
            inflated += inflater.decompress(inflater.unconsumed_tail, 1)
    except zlib.error as e:
        raise wire.Garbled(f"deflated data is garbled: {e}") from None
    if not inflater.eof or len(inflated) > limit:
        raise wire.Garbled("deflated data is cut off, or longer than this machine accepts")
    return inflated


def piece_data(piece: bytes) -> bytes | memoryview:
    """Return the data of a piece of a file, which `send` sends. Raises wire.Garbled."""
    if piece[:1] == DEFLATED:
        return inflate(memoryview(piece)[1:], wire.PIECE)
    if piece[:1] != STORED:
        raise wire.Garbled("received data is no piece of a file")
    return memoryview(piece)[1:]


def rows(values: list[Any]) -> bytes:
    """Return a list as deflated JSON."""
    return zlib.compress(json.dumps(values, separators=(",", ":")).encode(), 1)


def read_rows(
    data: bytes, limit: int = wire.MESSAGE_LIMIT, values: int = wire.MESSAGE_LIMIT
) -> list[Any]:
    """Return the list that `rows` packed. Raises wire.Garbled, also for more than the limits."""
    text = wire.check_size(inflate(data, limit), limit, values)
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise wire.Garbled(f"a list of files is garbled: {e}") from None
    if not isinstance(parsed, list):
        raise wire.Garbled("a list of files is garbled")
    return parsed
