"""Compression of what is transferred: by which method for which rate of the link, and its inverse.

A body is stored, or compressed by itself (zlib, bzip2), or a part of a stream of Zstandard, whose
window reaches back over the bodies before it. What is expanded is bounded, in size and in memory.
"""

from __future__ import annotations

import importlib
import zlib

from safelaunch.runtime.agent import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

STORED, DEFLATED, BZIPPED = b"S", b"Z", b"B"
STREAM, CONTINUED = b"N", b"T"  # of Zstandard: the first body of a stream, and those behind it
BZIP2, ZSTD = "bzip2", "zstd"
FAST = 30e6  # bytes a second of a link: on a faster one compression takes longer than it saves
# Of source code zlib 1 takes 130 MB/s and leaves 28 %, zlib 6 35 MB/s and 23 %, bzip2 14 MB/s and
# 17 %, zstd with its window 1: 260 MB/s and 22 %, 6: 73 MB/s and 18 %, 12: 17 MB/s and 17 %: each
# limit is where the next method can still keep a link of that rate busy.
_ZLIB_LIMIT, _BZIP2_LIMIT = 8e6, 2e6  # bytes a second
_ZSTD_LEVELS = ((12e6, 1), (1.5e6, 6), (0.0, 12))  # from which rate on, in bytes a second
_WINDOW = 23  # log2 of the bytes that a stream of Zstandard reaches back, which both sides hold


_MODULES = {
    BZIP2: ("bz2",),  # a Python may be built without it
    ZSTD: ("compression.zstd", "backports.zstd"),  # since Python 3.14; a package for older ones
}


def _import(method: str) -> Any:
    """Return the module of a method, None where this Python lacks it."""
    for name in _MODULES[method]:
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    return None


def available() -> list[str]:
    """Return the methods beside zlib that this Python has."""
    return [method for method in (BZIP2, ZSTD) if _import(method) is not None]


def deflate(data: bytes, level: int) -> tuple[bytes, bytes]:
    """Return kind and body of data: stored at level 0, and where deflating saves nothing."""
    deflated = zlib.compress(data, level) if level else data
    return (DEFLATED, deflated) if len(deflated) < len(data) else (STORED, data)


class Compressor:
    """Compresses the bodies of one transfer, as far as its link is slower than that.

    `methods` are those beside zlib that the other side has. While `is_awaited`, the link is idle
    until the next body is there. `measured` may be called by another thread.
    """

    def __init__(self, methods: Collection[str] = ()) -> None:
        self._zstd: Any = _import(ZSTD) if ZSTD in methods else None
        self._bz2: Any = _import(BZIP2) if BZIP2 in methods else None
        self._stream: Any = None
        self._level = 0  # of the stream
        self.rate: float | None = None  # of the link, bytes a second; None: not yet known
        self.is_awaited = False

    def measured(self, size: int, waited: float, took: float) -> None:
        """Set the rate of the link: `size` bytes have come there in `took` seconds.

        For `waited` of these the host had nothing to do. A link that once was slow stays so: later
        it may be the host that is slow, or this machine.
        """
        is_fast = size >= FAST * waited
        if self.rate is None or not is_fast:
            rate = max(1.0, size / max(took, 1e-6))
            self.rate = max(FAST, rate) if is_fast else rate

    def restart(self) -> None:
        """Continue no stream: what was compressed last may never be sent."""
        self._level = 0

    @property
    def is_fast(self) -> bool:
        """Whether the link is too fast to compress for."""
        return self.rate is not None and self.rate >= FAST

    def compress(self, data: bytes) -> tuple[bytes, bytes]:
        """Return kind and body of data."""
        rate = self.rate
        if self.is_fast:
            return STORED, data
        if self._zstd is not None:
            return self._continue(data, rate)
        if rate is None or self.is_awaited or rate >= _ZLIB_LIMIT:
            return deflate(data, 1)
        if self._bz2 is None or rate >= _BZIP2_LIMIT:
            return deflate(data, 6)
        packed = self._bz2.compress(data)
        return (BZIPPED, packed) if len(packed) < len(data) else (STORED, data)

    def _continue(self, data: bytes, rate: float | None) -> tuple[bytes, bytes]:
        level = next(level for limit, level in _ZSTD_LEVELS if (rate or FAST) >= limit)
        kind, zstd = CONTINUED, self._zstd
        if level != self._level:
            kind, self._level = STREAM, level
            names = zstd.CompressionParameter
            options = {names.compression_level: level, names.window_log: _WINDOW}
            self._stream = zstd.ZstdCompressor(options=options)
        return kind, self._stream.compress(data, zstd.ZstdCompressor.FLUSH_BLOCK)


class Expander:
    """Expands the bodies of one transfer, in the order in which they were compressed."""

    def __init__(self) -> None:
        self._stream: Any = None

    def expand(self, kind: bytes, data: bytes | memoryview, limit: int) -> bytes | memoryview:
        """Return what a body was. Raises wire.Garbled, also for more than `limit` bytes."""
        if kind == STORED:
            return data
        if kind == DEFLATED:
            return inflate(data, limit)
        if kind == BZIPPED:
            return _expand_bzip2(data, limit)
        if kind in (STREAM, CONTINUED):
            return self._expand_zstd(kind, data, limit)
        raise wire.Garbled("received data is of no kind that is sent")

    def _expand_zstd(self, kind: bytes, data: bytes | memoryview, limit: int) -> bytes:
        zstd = _import(ZSTD)
        if kind == STREAM and zstd is not None:
            options = {zstd.DecompressionParameter.window_log_max: _WINDOW}
            self._stream = zstd.ZstdDecompressor(options=options)
        if self._stream is None:
            raise wire.Garbled("received data has no stream that it continues")
        try:
            expanded: bytes = self._stream.decompress(data, limit + 1)
        except (zstd.ZstdError, EOFError) as e:
            self._stream = None
            raise wire.Garbled(f"compressed data is garbled: {e}") from None
        if len(expanded) > limit:
            self._stream = None
            raise wire.Garbled("compressed data is longer than this machine accepts")
        return expanded


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


def _expand_bzip2(data: bytes | memoryview, limit: int) -> bytes:
    bz2 = _import(BZIP2)
    if bz2 is None:
        raise wire.Garbled("received data is of bzip2, which this Python lacks")
    expander = bz2.BZ2Decompressor()
    try:
        expanded: bytes = expander.decompress(data, limit)
        if not expander.eof:  # the mark of the end may follow the last byte
            expanded += expander.decompress(b"", 1)
    except (OSError, EOFError) as e:
        raise wire.Garbled(f"compressed data is garbled: {e}") from None
    if not expander.eof or len(expanded) > limit:
        raise wire.Garbled("compressed data is cut off, or longer than this machine accepts")
    return expanded
