"""What of a log is written where no terminal shows its progress bars move."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.cli.runs.output.log_output import MAX_WAITING, LineWriter, collapse_carriage_returns

if TYPE_CHECKING:
    from collections.abc import Iterable


class CountingFile(io.BytesIO):
    """A file that keeps only the sizes of what is written."""

    size = 0

    def write(self, data: object) -> int:
        assert isinstance(data, bytes)
        self.size += len(data)
        return len(data)

    def writelines(self, lines: Iterable[object]) -> None:
        for line in lines:
            self.write(line)


def written(pieces: list[bytes]) -> bytes:
    out = io.BytesIO()
    lines = LineWriter(out)
    for piece in pieces:
        lines.write(piece)
    lines.close()
    return out.getvalue()


def test_a_progress_bar_shows_its_last_state() -> None:
    assert collapse_carriage_returns(b"\r 10%\r 20%\r") == b" 20%"


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(st.lists(st.text("ab \r\n", max_size=9).map(str.encode), max_size=9))
def test_lines_are_the_same_in_whatever_pieces_they_arrive(pieces: list[bytes]) -> None:
    *lines, rest = map(collapse_carriage_returns, b"".join(pieces).split(b"\n"))
    unfinished = [rest] if rest else []
    assert written(pieces) == b"".join(line + b"\n" for line in [*lines, *unfinished])


LONG = b"x" * (MAX_WAITING // 16)
ENDLESS = {
    "a line": [LONG],
    "a line behind a bar": [b" 10%|# |\r" + LONG, *[LONG] * 99],
    "a bar": [b" 10%|# |\r"],
    "only carriage returns": [b"\r" * 999],
    "blank states": [b"\r   " * 999],
    "a line of long states": [LONG * 3 + b"\r"],
    "a state longer than what waits": [LONG] * 40 + [b"\r"],
}


@pytest.mark.parametrize("form", ENDLESS)
def test_a_line_without_end_waits_in_constant_memory(form: str) -> None:
    lines = LineWriter(CountingFile())
    for _ in range(99):
        for piece in ENDLESS[form]:
            lines.write(piece)
            waiting = sum(map(len, lines.parts)) + len(lines.shown)
            assert waiting <= 2 * MAX_WAITING
            assert len(lines.parts) < 99


def test_a_line_that_is_too_long_to_wait_is_written_as_it_comes() -> None:
    out = CountingFile()
    lines = LineWriter(out)
    lines.write(b" 10%|# |\r")
    for _ in range(160):
        lines.write(LONG)
    assert out.size >= 9 * MAX_WAITING


def test_what_overwrites_a_written_line_stands_below_it() -> None:
    long = b"x" * (MAX_WAITING + 1)
    assert written([long, b"yy\r", b"10%\r20%\nend\n"]) == long + b"yy\n20%\nend\n"


def test_a_written_line_with_crlf_has_no_second_end() -> None:
    long = b"x" * (MAX_WAITING + 1)
    assert written([long, b"\r\nend\r\n"]) == long + b"\nend\n"
