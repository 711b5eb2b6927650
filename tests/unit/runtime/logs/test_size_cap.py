from __future__ import annotations

import ctypes
import errno
import functools
import os
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.logs.reader import last_lines, read_from
from safelaunch.runtime.logs.size_cap import LogSizeCap

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 1 << 20


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def lines(count: int) -> bytes:
    return b"".join(b"line %07d\n" % i for i in range(count))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "rank-0.log"
    path.write_bytes(lines(300_000))  # 3.9 MB
    fd = os.open(path, os.O_WRONLY)
    try:
        if LogSizeCap(libc(), 1)._punch(fd, 1 << 30, 4096) == os.strerror(errno.EOPNOTSUPP):
            pytest.skip("this file system cannot cut holes")
    finally:
        os.close(fd)
    return path


def read_all(path: Path, position: int = 0) -> bytes:
    out: list[bytes] = []
    while True:
        position, data = read_from(str(path), position)
        if not data:
            return b"".join(out)
        out.append(data)


def test_a_long_log_keeps_its_head_and_its_tail(log: Path) -> None:
    warning = LogSizeCap(libc(), LIMIT).tick({str(log): log.stat().st_size}, [])
    assert "over log_cap (1 MiB)" in warning
    assert log.stat().st_blocks * 512 <= LIMIT
    assert log.stat().st_size == len(lines(300_000))
    assert log.read_bytes()[: LIMIT // 8] == lines(300_000)[: LIMIT // 8]
    assert log.read_bytes()[-LIMIT // 2 :] == lines(300_000)[-LIMIT // 2 :]


def test_a_writer_that_appends_is_undisturbed(log: Path) -> None:
    cap = LogSizeCap(libc(), LIMIT)
    with log.open("ab", buffering=0) as writer:
        for i in range(40):
            cap.tick({str(log): log.stat().st_size}, [writer.fileno()])
            writer.write(b"more %d\n" % i + b"x" * 200_000)
    assert log.stat().st_blocks * 512 <= LIMIT + 200_000
    assert log.read_bytes().endswith(b"more 39\n" + b"x" * 200_000)


def test_what_was_not_read_yet_is_never_cut(log: Path) -> None:
    LogSizeCap(libc(), LIMIT).tick({str(log): 1_000_000}, [])
    assert log.read_bytes()[1_000_000:] == lines(300_000)[1_000_000:]


def test_a_file_within_the_limit_is_left_alone(log: Path) -> None:
    assert LogSizeCap(libc(), 4 * LIMIT).tick({str(log): log.stat().st_size}, []) == ""
    assert log.read_bytes() == lines(300_000)


def test_the_cut_is_told_once(log: Path) -> None:
    cap = LogSizeCap(libc(), LIMIT)
    assert cap.tick({str(log): log.stat().st_size}, [])
    with log.open("ab") as file:
        file.write(lines(300_000))
    assert cap.tick({str(log): log.stat().st_size}, []) == ""


def test_no_limit_is_no_limit(log: Path) -> None:
    assert LogSizeCap(libc(), 0).tick({str(log): log.stat().st_size}, []) == ""
    assert log.read_bytes() == lines(300_000)


def test_where_no_hole_can_be_cut_it_is_said_and_the_log_is_whole(log: Path) -> None:
    cap = LogSizeCap(object(), LIMIT)
    assert "log_cap does not work" in cap.tick({str(log): log.stat().st_size}, [])
    assert cap.tick({str(log): log.stat().st_size}, []) == ""
    assert log.read_bytes() == lines(300_000)


@pytest.mark.parametrize("copied", [False, True])
def test_reading_names_what_was_left_out(log: Path, copied: bool) -> None:
    LogSizeCap(libc(), LIMIT).tick({str(log): log.stat().st_size}, [])
    if copied:  # a copy that has filled the hole
        log.write_bytes(log.read_bytes())
    shown = read_all(log)
    assert shown.count(b" left out here by log_cap]\n") == 1
    assert shown.startswith(b"line 0000000\n")
    after = shown.partition(b" by log_cap]\n")[2].lstrip(b"\0")
    assert lines(300_000).endswith(after)
    assert len(shown) < LIMIT + 100_000


def test_the_last_lines_are_found_from_the_end(log: Path) -> None:
    assert read_all(log, last_lines(str(log), 2)) == b"line 0299998\nline 0299999\n"


@pytest.mark.parametrize(
    ("written", "count", "shown"),
    [
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\n", 5, b"a\n"),
        (b"", 3, b""),
        (b"a\nb\n", 0, b""),
    ],
)
def test_the_last_lines_of_a_short_file(
    tmp_path: Path, written: bytes, count: int, shown: bytes
) -> None:
    path = tmp_path / "log"
    path.write_bytes(written)
    assert read_all(path, last_lines(str(path), count)) == shown
