"""What is compressed for which link, and that nothing which is expanded exceeds its limit."""

from __future__ import annotations

import bz2
import itertools
import os
import zlib
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.agent import wire
from safelaunch.runtime.transfer import blocks, compression
from safelaunch.runtime.transfer.compression import BZIP2, FAST, ZSTD, Compressor, Expander

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 1 << 20
TEXT = [f"line {number}: loss = {number % 97 / 97}\n".encode() * 300 for number in range(40)]


def link(rate: float, *methods: str) -> Compressor:
    """Return a compressor for a link that has carried a second's bytes."""
    compressor = Compressor(methods)
    compressor.measured(int(rate), 1.0, 1.0)
    return compressor


@pytest.mark.parametrize("rate", [None, 1e9, 20e6, 5e6, 1e6, 1e5, 1.0])
@pytest.mark.parametrize("methods", [(), (BZIP2,), (BZIP2, ZSTD), ("brotli",)])
def test_what_was_compressed_expands_to_itself(rate: float | None, methods: tuple[str]) -> None:
    compressor, expander = Compressor(methods), Expander()
    if rate is not None:
        compressor.measured(int(rate), 1.0, 1.0)
    bodies = [*TEXT, b"", os.urandom(5000), *TEXT]
    packed = [compressor.compress(body) for body in bodies]
    assert [bytes(expander.expand(*each, LIMIT)) for each in packed] == bodies


@pytest.mark.parametrize(
    ("rate", "kind"), [(2 * FAST, b"S"), (20e6, b"Z"), (5e6, b"Z"), (1e6, b"B"), (1e3, b"B")]
)
def test_the_slower_a_link_is_the_more_is_compressed(rate: float, kind: bytes) -> None:
    assert link(rate, BZIP2).compress(TEXT[0])[0] == kind
    sizes = [len(link(each, BZIP2).compress(TEXT[0])[1]) for each in (rate / 2, rate)]
    assert sizes == sorted(sizes)


def test_a_link_that_waits_for_its_data_gets_them_sooner() -> None:
    compressor = link(1e6, BZIP2)
    compressor.is_awaited = True
    assert compressor.compress(TEXT[0])[0] == compression.DEFLATED


def test_a_host_without_bzip2_gets_none() -> None:
    assert link(1e5).compress(TEXT[0])[0] == compression.DEFLATED


def test_nothing_is_compressed_for_a_fast_link_until_it_is_slow() -> None:
    compressor = link(1e9)
    assert compressor.compress(TEXT[0]) == (compression.STORED, TEXT[0])
    compressor.measured(1 << 20, waited=0.0, took=9.0)  # it was the host that took so long
    assert compressor.is_fast
    compressor.measured(1 << 20, waited=1.0, took=1.0)
    assert not compressor.is_fast
    compressor.measured(1 << 30, waited=0.0, took=1.0)
    assert not compressor.is_fast


@pytest.mark.parametrize(
    "measure",
    [(0, 0.0, 0.0), (-1, 9.0, 9.0), (1, float("nan"), float("nan")), (1, float("inf"), 0.0)],
)
def test_a_host_that_lies_about_the_rate_breaks_nothing(measure: tuple[int, float, float]) -> None:
    compressor, expander = Compressor(compression.available()), Expander()
    compressor.measured(*measure)
    assert expander.expand(*compressor.compress(TEXT[0]), LIMIT) == TEXT[0]


def bodies_of_streams() -> Iterator[tuple[bytes, bytes]]:
    """Yield bodies of Zstandard, each the first of its stream, that expand to more than LIMIT."""
    for rate in (20e6, 5e6, 1e5):
        yield link(rate, ZSTD).compress(bytes(64 * LIMIT))


def test_bombs_are_refused() -> None:
    size = 64 * LIMIT
    bombs = [(b"Z", zlib.compress(bytes(size))), (b"B", bz2.compress(bytes(size)))]
    if ZSTD in compression.available():
        bombs += bodies_of_streams()
    for kind, body in bombs:
        assert len(body) < LIMIT
        with pytest.raises(wire.Garbled):
            Expander().expand(kind, body, LIMIT)


def test_the_limit_is_exact() -> None:
    text = os.urandom(1000) * 3
    packed = [(b"Z", zlib.compress(text)), (b"B", bz2.compress(text))]
    if ZSTD in compression.available():
        packed.append(link(5e6, ZSTD).compress(text))
    for kind, body in packed:
        assert Expander().expand(kind, body, len(text)) == text
        with pytest.raises(wire.Garbled):
            Expander().expand(kind, body, len(text) - 1)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"X", b"abc"),
        (b"Z", b"abc"),
        (b"Z", zlib.compress(TEXT[0])[:-5]),
        (b"B", b"abc"),
        (b"B", b""),
        (b"B", bz2.compress(TEXT[0])[:-5]),
        (b"N", b"not a frame"),
        (b"T", b"continues nothing"),
    ],
)
def test_garbled_bodies_are_refused(kind: bytes, body: bytes) -> None:
    with pytest.raises(wire.Garbled):
        Expander().expand(kind, body, LIMIT)


def test_zstd_reaches_back_over_earlier_bodies() -> None:
    pytest.importorskip("backports.zstd")
    compressor, expander = link(5e6, ZSTD), Expander()
    noise = os.urandom(1 << 20)
    first, other = compressor.compress(noise), compressor.compress(noise)
    assert (first[0], other[0]) == (compression.STREAM, compression.CONTINUED)
    assert len(other[1]) < len(first[1]) / 100
    assert [expander.expand(*each, LIMIT) for each in (first, other)] == [noise, noise]
    compressor.restart()
    assert compressor.compress(noise)[0] == compression.STREAM


def test_a_window_that_takes_more_memory_than_accepted_is_refused() -> None:
    zstd = pytest.importorskip("backports.zstd")
    names = zstd.CompressionParameter
    options = {names.window_log: 27, names.compression_level: 1}
    compressor = zstd.ZstdCompressor(options=options)
    body = compressor.compress(os.urandom(1000), zstd.ZstdCompressor.FLUSH_BLOCK)
    with pytest.raises(wire.Garbled):
        Expander().expand(compression.STREAM, body, LIMIT)


# -- parts of large files


def extents(frames: list[bytes]) -> bytes:
    """Return the data of a file's parts."""
    return b"".join(map(bytes, blocks.extents([memoryview(each) for each in frames], Expander())))


def test_parts_of_a_file_arrive_however_their_frames_are_cut() -> None:
    pairs = [(b"S", b"stored" * 9), compression.deflate(TEXT[0], 1), (b"S", b"end")]
    for step in (1, 7, 1000):
        frames = [
            frame
            for kind, body in pairs
            for frame in (
                blocks.HEAD.pack(kind, len(body)),
                *(body[at : at + step] for at in range(0, len(body), step)),
            )
        ]
        assert extents(frames) == b"stored" * 9 + TEXT[0] + b"end"


@pytest.mark.parametrize(
    "frames",
    [
        [b"no head"],
        [blocks.HEAD.pack(b"S", 0)],
        [blocks.HEAD.pack(b"S", 3), b"four"],
        [blocks.HEAD.pack(b"S", 3), b"ab"],
        [blocks.HEAD.pack(b"S", blocks.MAX_EXTENT + 1)],
        [blocks.HEAD.pack(b"X", 3), b"abc"],
        [blocks.HEAD.pack(b"Z", 3), b"abc"],
    ],
)
def test_garbled_parts_of_a_file_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(wire.Garbled):
        extents(frames)


def test_a_part_of_a_file_that_inflates_without_end_is_refused() -> None:
    bombs = [(b"Z", zlib.compress(bytes(64 * LIMIT))), (b"B", bz2.compress(bytes(64 * LIMIT)))]
    for kind, body in bombs:
        with pytest.raises(wire.Garbled):
            extents([blocks.HEAD.pack(kind, len(body)), body])


def test_what_arrived_of_a_stored_part_is_used() -> None:
    frames = [memoryview(each) for each in (blocks.HEAD.pack(b"S", 100), b"first")]
    assert [bytes(each) for each in itertools.islice(blocks.extents(frames, Expander()), 1)] == [
        b"first"
    ]
