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
LONGEST = 1 << 26  # of a block, packed and unpacked; what claims more is garbled
_BLOCK = struct.Struct(">cI")
_HEAD = struct.Struct(">I")


def pack(head: dict[str, Any], contents: list[bytes], level: int) -> bytes:
    """Return one block; a level of 0 stores, as does a body that does not get smaller."""
    text = json.dumps(head, separators=(",", ":")).encode()
    body = b"".join([_HEAD.pack(len(text)), text, *contents])
    if level:
        deflated = zlib.compress(body, level)
        if len(deflated) < len(body):
            return _BLOCK.pack(DEFLATED, len(deflated)) + deflated
    return _BLOCK.pack(STORED, len(body)) + body


def unpack(pieces: Iterable[bytes]) -> Iterator[tuple[dict[str, Any], memoryview]]:
    """Yield head and contents of each block of a stream. Raises wire.Broken for a garbled one."""
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= _BLOCK.size:
            kind, length = _BLOCK.unpack_from(held)
            if length > LONGEST:
                raise wire.Broken("what came is no block of files")
            end = _BLOCK.size + length
            if len(held) < end:
                break
            body = bytes(memoryview(held)[_BLOCK.size : end])
            del held[:end]
            yield _read(kind, body)
    if held:
        raise wire.Broken("a block of files ends in the middle")


def _read(kind: bytes, body: bytes) -> tuple[dict[str, Any], memoryview]:
    if kind == DEFLATED:
        body = _inflate(body)
    elif kind != STORED:
        raise wire.Broken("what came is no block of files")
    if len(body) < _HEAD.size:
        raise wire.Broken("a block of files is too short")
    (length,) = _HEAD.unpack_from(body)
    begin = _HEAD.size + length
    if begin > len(body):
        raise wire.Broken("a block of files is too short")
    return wire.parse(body[_HEAD.size : begin]), memoryview(body)[begin:]


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        whole = inflater.decompress(body, LONGEST)
    except zlib.error as e:
        raise wire.Broken("a block of files is garbled: %s" % e) from None
    if not inflater.eof:  # cut short, or larger than any block is
        raise wire.Broken("a block of files is garbled")
    return whole


def rows(found: list[Any]) -> bytes:
    """Return a list as deflated JSON."""
    return zlib.compress(json.dumps(found, separators=(",", ":")).encode(), 1)


def read_rows(data: bytes) -> list[Any]:
    """Return what `rows` packed. Raises wire.Broken."""
    try:
        found = json.loads(zlib.decompress(data).decode())
    except (zlib.error, ValueError) as e:
        raise wire.Broken("a list of files is garbled: %s" % e) from None
    if not isinstance(found, list):
        raise wire.Broken("a list of files is garbled")
    return found
