"""Reads names and versions out of libraries, without loading them: the bytes of their constants.

Of an ELF file only the section of constants is looked at (a libtorch_cuda.so has 1.5 GB, nearly all
of it code for GPUs), piece by piece, and never after a deadline.
"""

from __future__ import annotations

import mmap
import re
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 12 << 30  # bytes of a library that is searched
PIECE = 1 << 22  # bytes searched at a time
OVERLAP = 256  # of two pieces: longer than any name
NCCL_VERSION = re.compile(rb"NCCL version (\d+\.\d+(?:\.\d+)?)(?:\+cuda(\d+\.\d+))?")
NAMES = re.compile(rb"(?<![A-Za-z0-9_])(?:TORCH_)?NCCL_[A-Z0-9][A-Z0-9_]{1,80}(?![A-Za-z0-9_=])")
# What torch.cuda.get_arch_list() returns, as it stands in libtorch_python.so. What is before it may
# be part of another constant: compilers put them side by side.
_ARCH = rb"(?:(?:sm|compute)_\d{2,3}[af]?|gfx[0-9a-f]{3,4}(?::[a-z]+[+-])*)"
ARCHES = re.compile(rb"(" + _ARCH + rb"(?: " + _ARCH + rb"){0,40}) ?\0")


class Late(Exception):  # noqa: N818 - reads as what happened
    """The time was not enough for the whole file."""


def constants(path: str, until: float) -> Iterator[bytes]:
    """Yield the constants of a library, in overlapping pieces. Raises OSError, ValueError, Late."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if len(data) > LARGEST:
            raise ValueError(path)
        for begin, end in sections(data):
            for at in range(begin, end, PIECE - OVERLAP):
                if time.monotonic() > until:
                    raise Late(path)
                first, last = at == begin, at + PIECE >= end
                # a match at the edge of a piece may be a part of a name: the ends get one of ours
                yield b"\0" * first + data[at : min(at + PIECE, end)] + b"\0" * last
                if last:
                    break


def sections(data: mmap.mmap) -> list[tuple[int, int]]:
    """Return where the constants of an ELF file are; all of a file that is none, or is stripped."""
    whole = [(0, len(data))]
    if data[:6] != b"\x7fELF\x02\x01":  # 64 bit, little endian
        return whole
    try:
        offset = struct.unpack_from("<Q", data, 0x28)[0]
        size, count, names_at = struct.unpack_from("<HHH", data, 0x3A)
        headers = [
            struct.unpack_from("<IIQQQQ", data, offset + number * size) for number in range(count)
        ]
        strings = headers[names_at][4]
    except (struct.error, IndexError, OverflowError):
        return whole
    constants = []
    for name_at, _, _, _, begin, length in headers:
        at = strings + name_at
        name = data[at : at + 32].split(b"\0", 1)[0]
        if name.startswith(b".rodata") and begin + length <= len(data):
            constants.append((begin, begin + length))
    return constants or whole


def names(path: str, until: float) -> list[str]:
    """Return the variables that a library reads. Raises OSError, ValueError, Late."""
    variables: set[bytes] = set()
    for piece in constants(path, until):
        if b"NCCL_" in piece:
            whole = (m for m in NAMES.finditer(piece) if m.start() > 0 and m.end() < len(piece))
            variables.update(match.group() for match in whole)
    return sorted(name.decode() for name in variables)


def nccl_version(path: str, until: float) -> tuple[str, str | None] | None:
    """Return the version in an NCCL library, and the CUDA that it was built with.

    Raises OSError, ValueError, Late.
    """
    for piece in constants(path, until):
        match = NCCL_VERSION.search(piece)
        if match is not None:
            return match.group(1).decode(), match.group(2).decode() if match.group(2) else None
    return None


def arches(path: str, until: float) -> list[str] | None:
    """Return the architectures that a torch was built for. Raises OSError, ValueError, Late."""
    lists = [
        match.group(1).decode().split()
        for piece in constants(path, until)
        for match in ARCHES.finditer(piece)
    ]
    return max(lists, key=len, default=None)
