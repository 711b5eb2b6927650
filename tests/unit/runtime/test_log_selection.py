"""Lines of a log are selected where it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.logs import reader
from safelaunch.runtime.logs.selection import LogPart, select

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOG = b"".join(b"step %d\nnote %d\n" % (n, n) for n in range(50_000))


def selected(path: Path, position: int = 0, **selection: object) -> bytes:
    read, chosen = reader.whole_file(str(path)), LogPart(**selection)  # type: ignore[arg-type]
    return b"".join(data for *_, data in select(str(path), chosen, (1, position), read))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "combined.log"
    path.write_bytes(LOG)
    return path


def test_without_a_selection_it_is_the_whole_log(log: Path) -> None:
    assert selected(log) == LOG


def test_only_lines_with_the_text_are_selected(log: Path) -> None:
    assert selected(log, text="p 4999") == b"step 4999\n" + b"".join(
        b"step 4999%d\n" % n for n in range(10)
    )


def test_the_text_is_no_pattern(log: Path) -> None:
    assert selected(log, text="step .") == b""


def test_a_tail_counts_the_lines_with_the_text(log: Path) -> None:
    assert selected(log, text="step", tail=2) == b"step 49998\nstep 49999\n"


def test_a_tail_without_lines_is_empty(log: Path) -> None:
    assert selected(log, text="step", tail=0) == b""


def test_of_too_many_bytes_whole_lines_at_the_end_are_left_with_a_note(log: Path) -> None:
    note, *lines = selected(log, max_bytes=30).splitlines(keepends=True)
    assert b"left out by --max-bytes" in note
    assert lines == [b"step 49999\n", b"note 49999\n"]


def test_bytes_are_counted_of_the_lines_with_the_text(log: Path) -> None:
    note, *lines = selected(log, text="step 4999", max_bytes=30).splitlines(keepends=True)
    assert note == b"[safelaunch: 98 B before this left out by --max-bytes]\n"
    assert lines == [b"step 49998\n", b"step 49999\n"]


def test_bytes_that_the_tail_leaves_out_are_not_in_the_note(log: Path) -> None:
    note, *lines = selected(log, text="step", tail=3, max_bytes=30).splitlines(keepends=True)
    assert note == b"[safelaunch: 11 B before this left out by --max-bytes]\n"
    assert len(lines) == 2


def test_a_line_longer_than_the_bytes_is_cut_in_its_middle(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1000)
    assert selected(path, max_bytes=10).endswith(b"--max-bytes]\n" + b"x" * 10)


def test_enough_bytes_need_no_note(log: Path) -> None:
    assert selected(log, max_bytes=len(LOG)) == LOG


def test_each_state_of_a_bar_is_a_line_and_so_is_an_unfinished_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"bar 1%\rbar 2%\rbar 3%\nend of bar 2")
    assert selected(path, text="2") == b"bar 2%\nend of bar 2\n"
    assert selected(path, text="2", tail=1) == b"end of bar 2\n"


def test_a_reader_that_stops_at_any_line_goes_on_behind_it(log: Path) -> None:
    read = reader.whole_file(str(log))
    pieces = list(select(str(log), LogPart(text="99 "[:2], tail=5), (1, 0), read))
    for index, (_, position, _) in enumerate(pieces, 1):
        rest = b"".join(data for *_, data in pieces[index:])
        assert selected(log, position, text="99") == rest


def test_what_comes_later_is_selected_too(log: Path) -> None:
    def read(position: int) -> Iterator[tuple[int, int, bytes]]:
        yield 1, position + 10, b"old 1\nold "
        yield 1, position + 10, b""
        yield 1, position + 20, b"2\nno\nold 3\n"
        yield 2, 6, b"old 4\n"

    pieces = select(str(log), LogPart(1, "old"), (1, 0), read, follows=True)
    assert b"".join(data for *_, data in pieces) == b"old 1\nold 2\nold 3\nold 4\n"
