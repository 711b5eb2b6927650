"""Small shared libraries, with just the tables that a loader, and a reader of them, looks at."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_DYNAMIC, _DYNSYM, _STRTAB = 6, 11, 3
_GLOBAL, _WEAK = 1 << 4, 2 << 4


def library(
    path: Path,
    *,
    needs: Sequence[str] = (),
    undefined: Sequence[str] = (),
    weak: Sequence[str] = (),
    defined: Sequence[str] = (),
    versions: Sequence[str] = (),
) -> Path:
    """Write a library of 64 bit that needs others, and has these symbols."""
    strings, places = bytearray(b"\0"), {}
    for name in (*needs, *undefined, *weak, *defined, *versions):
        places[name] = len(strings)
        strings += name.encode() + b"\0"
    dynamic = b"".join(struct.pack("<qQ", 1, places[name]) for name in needs) + bytes(16)
    symbols = bytes(24)
    for names, binding, section in (
        (undefined, _GLOBAL, 0),
        (weak, _WEAK, 0),
        (defined, _GLOBAL, 1),
    ):
        for name in names:
            symbols += struct.pack("<IBBHQQ", places[name], binding, 0, section, 0, 0)
    parts = ((_STRTAB, bytes(strings), 0), (_DYNSYM, symbols, 1), (_DYNAMIC, dynamic, 1))
    headers, body, at = bytes(64), b"", 64
    for kind, data, link in parts:
        headers += struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, at, len(data), link, 0, 1, 0)
        body += data
        at += len(data)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, at, 0, 64, 0, 0, 64, len(parts) + 1, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + body + headers)
    return path
