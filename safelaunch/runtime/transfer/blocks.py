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


def unpack(pieces: Iterable[bytes]) -> Iterator[tuple[dict[str, Any], memoryview]]:
    """Yield head and contents of each block of a stream. Raises wire.Broken for a garbled one."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= _BLOCK.size:
            kind, length = _BLOCK.unpack_from(buffer)
            if length > MAX_BLOCK:
                raise wire.Broken("received data is no block of files")
            end = _BLOCK.size + length
            if len(buffer) < end:
                break
            body = bytes(memoryview(buffer)[_BLOCK.size : end])
            del buffer[:end]
            yield _read(kind, body)
    if buffer:
        raise wire.Broken("a block of files ends in the middle")


def _read(kind: bytes, body: bytes) -> tuple[dict[str, Any], memoryview]:
    if kind == DEFLATED:
        body = _inflate(body)
    elif kind != STORED:
        raise wire.Broken("received data is no block of files")
    if len(body) < _HEAD.size:
        raise wire.Broken("a block of files is too short")
    (length,) = _HEAD.unpack_from(body)
    start = _HEAD.size + length
    if start > len(body):
        raise wire.Broken("a block of files is too short")
    return wire.parse(body[_HEAD.size : start]), memoryview(body)[start:]


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(body, MAX_BLOCK)
    except zlib.error as e:
        raise wire.Broken(f"a block of files is garbled: {e}") from None
    if not inflater.eof:  # truncated, or larger than any block
        raise wire.Broken("a block of files is garbled")
    return inflated


def rows(values: list[Any]) -> bytes:
    """Return a list as deflated JSON."""
    return zlib.compress(json.dumps(values, separators=(",", ":")).encode(), 1)


def read_rows(data: bytes) -> list[Any]:
    """Return the list that `rows` packed. Raises wire.Broken."""
    try:
        values = json.loads(zlib.decompress(data).decode())
    except (zlib.error, ValueError) as e:
        raise wire.Broken(f"a list of files is garbled: {e}") from None
    if not isinstance(values, list):
        raise wire.Broken("a list of files is garbled")
    return values
