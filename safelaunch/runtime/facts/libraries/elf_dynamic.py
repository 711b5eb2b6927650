"""Reads what a shared library needs of others: libraries, symbols, the version of glibc.

Only the tables for the dynamic loader are read, of files of any size (System V ABI, chapters 4 and
5): the file is mapped, and nothing of it is loaded.
"""

from __future__ import annotations

import mmap
import os
import re
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_HEADER = b"\x7fELF\x02\x01"  # 64 bit, little endian
_DYNAMIC, _DYNSYM = 6, 11  # types of sections
_NEEDED = 1  # tag of an entry of the dynamic section
_GLOBAL = 1  # binding of a symbol; a weak one may stay undefined
_MAX_SYMBOLS = 1 << 20
_GLIBC = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)")


class LibraryNeeds:
    """What a library needs: names of libraries, undefined symbols, the newest glibc."""

    def __init__(self, libraries: list[str], symbols: list[str], glibc: tuple[int, int]) -> None:
        self.libraries = libraries
        self.symbols = symbols
        self.glibc = glibc


class _Tables:
    """The dynamic section, symbols and strings of a mapped library."""

    def __init__(self, data: mmap.mmap) -> None:
        if data[:6] != _HEADER:
            raise ValueError("no library of 64 bit")
        offset = struct.unpack_from("<Q", data, 0x28)[0]
        size, count = struct.unpack_from("<HH", data, 0x3A)
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + n * size) for n in range(count)]
        self.data = data
        self.dynamic = self.symbols = self.strings = (0, 0)
        for header in headers:
            where = (header[4], min(header[5], len(data)))
            if header[1] == _DYNAMIC:
                self.dynamic = where
            elif header[1] == _DYNSYM:
                self.symbols = where
                self.strings = (headers[header[6]][4], headers[header[6]][5])

    def text(self, at: int) -> bytes:
        """Return a string of the table by its offset."""
        begin = self.strings[0] + at
        return self.data[begin : max(begin, self.data.find(b"\0", begin))]


def needs(path: str) -> LibraryNeeds:
    """Return what a library needs of others. Raises OSError, ValueError."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _needs(_Tables(data))
    except (struct.error, IndexError, OverflowError) as e:
        raise ValueError(path) from e


def _needs(tables: _Tables) -> LibraryNeeds:
    data = tables.data
    begin, size = tables.dynamic
    entries = struct.iter_unpack("<qQ", data[begin : begin + size // 16 * 16])
    libraries = [tables.text(value).decode() for tag, value in entries if tag == _NEEDED]
    begin, size = tables.symbols
    size = min(size // 24, _MAX_SYMBOLS) * 24
    symbols = [
        tables.text(name).decode("ascii", "replace")
        for name, info, _, section, _, _ in struct.iter_unpack(
            "<IBBHQQ", data[begin : begin + size]
        )
        if section == 0 and info >> 4 == _GLOBAL and name
    ]
    strings = data[tables.strings[0] : sum(tables.strings)]
    versions = [(int(major), int(minor)) for major, minor in _GLIBC.findall(strings)]
    return LibraryNeeds(libraries, symbols, max(versions, default=(0, 0)))


def lacking(symbols: Iterable[str], libraries: Iterable[str]) -> list[str]:
    """Return those symbols that no library names. Libraries that cannot be read are left out."""
    missing = list(symbols)
    for path in libraries:
        if missing:
            try:
                missing = _lacking(missing, path)
            except (OSError, ValueError, struct.error, IndexError, OverflowError):
                continue
    return missing


def _lacking(symbols: list[str], path: str) -> list[str]:
    if os.path.getsize(path) == 0:
        return symbols
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        begin, size = _Tables(data).strings
        end = begin + size
        return [s for s in symbols if data.find(b"\0" + s.encode() + b"\0", begin, end) < 0]
