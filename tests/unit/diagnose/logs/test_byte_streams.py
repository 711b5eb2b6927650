from __future__ import annotations

import codecs
import gzip
import io
import os
import random
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from safelaunch.diagnose.logs import byte_streams, sources
from safelaunch.diagnose.logs.sources import ChunkStream, LogReader, LogSource, find_sources

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX names, links and pipes")
RNG = random.Random(1)  # noqa: S311 - the same bytes each time


def read(path: Path | str) -> tuple[bytes, LogReader]:
    reader = LogReader(LogSource(str(path)))
    return b"".join(block.data for block in reader.blocks()), reader


def of_bytes(data: bytes) -> tuple[bytes, LogReader]:
    reader = LogReader(LogSource("-"), io.BytesIO(data))
    return b"".join(block.data for block in reader.blocks()), reader


# -- what logs hold --------------------------------------------------------------------------------


def test_lines_are_counted_as_grep_does(tmp_path: Path) -> None:
    lines = [b"x" * RNG.randrange(3000) for _ in range(5000)]
    data = b"\n".join(lines)
    path = tmp_path / "a.log"
    path.write_bytes(data)
    reader = LogReader(LogSource(str(path)))
    for block in reader.blocks():
        assert block.data.split(b"\n")[0] == lines[block.number - 1]
    assert reader.lines == len(lines)


@pytest.mark.parametrize("data", [b"", b"\n", b"a", b"a\n", b"a\nb", b"a\r\nb\r\n", b"\r\r\r"])
def test_small_logs_are_read_whole(data: bytes) -> None:
    content, reader = of_bytes(data)
    assert content == (data if not data or data.endswith(b"\n") else data + b"\n")
    assert reader.lines == content.count(b"\n")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_sizes_of_pieces_change_nothing(size: int) -> None:
    data = codecs.BOM_UTF8 + "erste\nzweite ü\n".encode() * 50
    reader = LogReader(
        LogSource("x"), ChunkStream(data[i : i + size] for i in range(0, len(data), size))
    )
    assert b"".join(block.data for block in reader.blocks()) == data[3:]


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
def test_utf_16_of_powershell_is_read(order: str) -> None:
    bom = codecs.BOM_UTF16_LE if order.endswith("le") else codecs.BOM_UTF16_BE
    text = "RuntimeError: größer\r\n" * 90_000
    content, reader = of_bytes(bom + text.encode(order))
    assert (content, reader.lines) == (text.encode(), 90_000)


def test_utf_16_appended_to_utf_8_is_readable() -> None:
    content, _ = of_bytes(b"one\n" + "two\n".encode("utf-16-le"))
    assert content == b"one\ntwo\n"


def test_latin_1_within_utf_8_is_kept() -> None:
    data = "größe ".encode() + "größe\n".encode("latin-1")
    assert of_bytes(data)[0] == data


def test_holes_of_zeros_are_left_out() -> None:
    data = b"one\n" + bytes(3 << 20) + b"two\n" + bytes(10) + b"three\n"
    content, reader = of_bytes(data)
    assert (content, reader.lines) == (b"one\ntwo\nthree\n", 3)


@posix
def test_ten_gib_of_a_hole_are_jumped_over(tmp_path: Path) -> None:
    path = tmp_path / "sparse.log"
    with open(path, "wb") as file:
        file.write(b"one\n")
        file.seek(10 << 30)
        file.write(b"two\n")
    assert read(path)[0] == b"one\ntwo\n"


def test_of_a_line_without_end_both_ends_are_kept() -> None:
    count = 8
    reader = LogReader(
        LogSource("x"),
        ChunkStream(iter([b"begin", *[b"x" * (1 << 20)] * count, b"end\n", b"next\n"])),
    )
    (block,) = reader.blocks()
    assert len(block.data) < sources.MAX_LINE_BYTES + byte_streams.BLOCK_BYTES
    assert block.data.startswith(b"begin")
    assert block.data.endswith(b"end\nnext\n")
    assert reader.lines == 2


def test_bars_that_never_end_a_line_are_one_line_with_their_last_state() -> None:
    states = (b"\r%3d%%|" % (n % 100) + b"#" * 80 for n in range(100_000))
    reader = LogReader(LogSource("x"), ChunkStream(states))
    content = b"".join(block.data for block in reader.blocks())
    assert content.endswith(b"\r 99%|" + b"#" * 80 + b"\n")
    assert reader.lines == 1


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF\x02\x01\x01" + bytes(9) + bytes(range(256)) * 400,
        RNG.randbytes(300_000),
        (Path(sys.executable).read_bytes())[:500_000],
    ],
    ids=["elf", "random", "python"],
)
def test_what_is_no_text_is_not_read(data: bytes) -> None:
    content, reader = of_bytes(data)
    assert content == b""
    assert reader.is_unreadable
    assert reader.notes == ["standard input: is not text; it was not read"]


@pytest.mark.parametrize(
    ("magic", "command"),
    [(b"PK\x03\x04", "unzip -p"), (b"\x28\xb5\x2f\xfd", "zstd -dc"), (b"\xfd7zXZ\0", "xz -dc")],
)
def test_of_other_packers_it_is_told_how_to_read_them(
    tmp_path: Path, magic: bytes, command: str
) -> None:
    path = tmp_path / "a b.log"
    path.write_bytes(magic + RNG.randbytes(1000))
    _, reader = read(path)
    assert reader.is_unreadable
    assert f"`{command} '{path}' | safelaunch diagnose -`" in reader.notes[0]


# -- gzip ------------------------------------------------------------------------------------------


def test_gzip_of_several_members_is_one_log(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(b"".join(gzip.compress(b"member %d\n" % n) for n in range(300)))
    content, reader = read(path)
    assert content == b"".join(b"member %d\n" % n for n in range(300))
    assert reader.notes == []


def test_gzip_is_known_by_its_bytes_also_in_a_stream() -> None:
    assert of_bytes(gzip.compress(b"one\ntwo\n"))[0] == b"one\ntwo\n"


def test_zeros_behind_gzip_are_padding() -> None:
    content, reader = of_bytes(gzip.compress(b"one\n") + bytes(600))
    assert (content, reader.notes) == (b"one\n", [])


def test_other_bytes_behind_gzip_are_told() -> None:
    content, reader = of_bytes(gzip.compress(b"one\n") + b"garbage")
    assert content == b"one\n"
    assert reader.notes == ["standard input: data after the end of the gzip data; it was not read"]


@pytest.mark.parametrize("left", [11, 500, -9, -4, -1])
def test_gzip_that_is_cut_off_is_read_up_to_there(left: int) -> None:
    text = b"".join(b"line %d %d\n" % (n, n * n) for n in range(3000))
    content, reader = of_bytes(gzip.compress(text)[:left])
    assert text.startswith(content.rpartition(b"\n")[0].rpartition(b"\n")[0])
    assert reader.notes == ["standard input: the gzip data is truncated"]


def test_damaged_gzip_is_told() -> None:
    packed = bytearray(gzip.compress(RNG.randbytes(5000)))
    packed[-6] ^= 255
    _, reader = of_bytes(bytes(packed))
    assert "standard input: the gzip data is damaged; the rest was not read" in reader.notes


def test_a_bomb_of_gzip_is_unpacked_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    size, zeros, end = 128, bytes(1 << 20), b"\nend\n"
    packer = zlib.compressobj(9, wbits=-15)
    packed = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)  # refers to nothing before
    crc = 0
    for _ in range(size):
        crc = zlib.crc32(zeros, crc)
    with open(path, "wb") as file:
        file.write(b"\x1f\x8b\x08" + bytes(7))
        file.writelines([packed] * size)
        file.write(packer.compress(end) + packer.flush())
        file.write(struct.pack("<II", zlib.crc32(end, crc), (size << 20) + len(end)))
    assert read(path)[0] == b"\nend\n"


# -- what happens to them --------------------------------------------------------------------------


def test_a_log_that_grows_is_read_as_long_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"line\n" * 500_000)
    reader = LogReader(LogSource(str(path)))
    for _ in reader.blocks():
        with open(path, "ab") as file:
            file.write(b"more\n" * 500_000)
    assert reader.lines == 500_000


def test_a_log_that_is_truncated_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"line\n" * 1_000_000)
    reader = LogReader(LogSource(str(path)))
    for _ in reader.blocks():
        os.truncate(path, 0)
    assert reader.notes == [f"{path}: the file shrank while it was read"]


def test_a_log_that_vanishes_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"line\n")
    (source,) = find_sources([str(tmp_path)])
    path.unlink()
    _, reader = read(source.path)
    assert reader.is_unreadable
    assert reader.notes == [f"{path}: No such file or directory; it was not read"]


def test_a_folder_in_place_of_a_log_is_told(tmp_path: Path) -> None:
    _, reader = read(tmp_path)
    assert reader.is_unreadable


def test_a_stream_that_breaks_is_read_up_to_there() -> None:
    def broken() -> object:
        yield b"one\ntwo"
        raise OSError(5, "Input/output error")

    reader = LogReader(LogSource("x"), ChunkStream(broken()))  # type: ignore[arg-type]
    assert b"".join(block.data for block in reader.blocks()) == b"one\ntwo\n"
    assert reader.notes == ["x: Input/output error; read up to line 2"]


def test_an_endless_stream_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_streams, "MAX_LOG_BYTES", 64 << 20)
    reader = LogReader(LogSource("-"), ChunkStream(iter(lambda: b"y\n" * 50_000, b"")))
    for _ in reader.blocks():
        pass
    assert 64 << 20 <= 2 * reader.lines < 70 << 20
    assert len(reader.notes) == 1


@posix
def test_dev_null_is_an_empty_log() -> None:
    assert read("/dev/null")[0] == b""


@posix
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here")
def test_a_file_without_a_size_is_read() -> None:
    assert b"Pid:" in read("/proc/self/status")[0]


@posix
def test_a_silent_stream_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_streams, "SILENCE_SECONDS", 0.01)
    out, into = os.pipe()
    messages: list[str] = []

    def waiting() -> None:
        messages.append("waiting")
        os.write(into, b"late\n")
        os.close(into)

    with open(out, "rb") as file:
        reader = LogReader(LogSource("-"), file, waiting)
        assert b"".join(block.data for block in reader.blocks()) == b"late\n"
    assert messages == ["waiting"]


@posix
def test_a_stream_that_does_not_block_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_streams, "SILENCE_SECONDS", 0.01)
    out, into = os.pipe()
    os.set_blocking(out, False)

    class LatePipe(io.FileIO):
        """A pipe into which something is written once it was read in vain."""

        def read(self, size: int | None = -1) -> Any:
            data = super().read(size)
            if data is None:
                os.write(into, b"late\n")
                os.close(into)
            return data

    with io.BufferedReader(LatePipe(out)) as file:
        blocks = LogReader(LogSource("-"), file).blocks()
        assert b"".join(block.data for block in blocks) == b"late\n"


def test_what_came_before_an_interrupt_is_told() -> None:
    def stream() -> object:
        yield b"one\ntwo"
        raise KeyboardInterrupt

    reader = LogReader(LogSource("-"), ChunkStream(stream()))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        list(reader.blocks())
    assert [block.data for block in reader.remaining()] == [b"one\ntwo\n"]
