"""What of a job's bytes reaches the user's terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.cli.runs.output.terminal_filter import TerminalFilter


def shown(*pieces: bytes) -> bytes:
    out = io.BytesIO()
    terminal = TerminalFilter(out)
    for piece in pieces:
        terminal.write(piece)
    return out.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        "loss: 0.1, größer\t|\r\n".encode(),
        b"\x1b[1;31mred\x1b[0m \x1b[38:5:208mx\x1b[m",
        b"\r 50%|#####     |\x1b[A\x1b[2K\x1b[1G\x1b[J",
        b"\x1b[?25l working \x1b[?25h\b\b",
    ],
)
def test_text_colours_and_progress_bars_stay(data: bytes) -> None:
    assert shown(data) == data


@pytest.mark.parametrize(
    "sequence",
    [
        b"\x1b]0;title\x07", b"\x1b]52;c;cm0gLXJm\x1b\\", b"\x1b]8;;http://x\x1b\\",
        b"\x1bP+q544e\x1b\\", b"\x1b_payload\x1b\\", b"\x1b^x\x1b\\", b"\x1bXx\x1b\\",
        b"\x1b[c", b"\x1b[>c", b"\x1b[6n", b"\x1b[21t", b"\x1b[?1049h", b"\x1b[2;5H", b"\x1b[1;3r",
        b"\x1b[?2004h", b"\x1b[4h", b"\x1b[1$}", b"\x1bc", b"\x1b(0", b"\x1b#8", b"\x1b7", b"\x1bE",
        b"\x07", b"\x0e", b"\x05", b"\0", b"\x7f", "\x9b6n".encode()[:2], "\x9d".encode(),
    ],
)  # fmt: skip
def test_what_else_a_terminal_obeys_is_left_out(sequence: bytes) -> None:
    assert shown(b"a" + sequence + b"z\n") == b"az\n"


def test_a_string_that_never_ends_hides_no_more_than_its_line() -> None:
    assert shown(b"a\x1b]0;title\nb\n") == b"a\nb\n"


def test_a_sequence_begins_behind_a_string_that_is_broken_off() -> None:
    for pieces in ([b"\x1b]0;x\x1b[31mred"], [b"\x1b]0;x\x1b[", b"31mred"]):
        assert shown(*pieces) == b"\x1b[31mred"


def test_a_lone_escape_is_left_out() -> None:
    assert shown(b"a\x1b\nb\x1b\x1b[31mc") == b"a\nb\x1b[31mc"


def test_a_string_of_many_pieces_is_left_out() -> None:
    assert shown(b"\x1b]52;c;", *[b"A" * 1000] * 1000, b"\x1b", b"\\end") == b"end"


_PIECE = st.sampled_from(
    [b"\x1b", b"[", b"]", b"31m", b"6n", b"\x07", b"\\", b"\n", b"\xc2", b"\x9b", b"x", b";", b"P"]
)


@given(st.lists(_PIECE, max_size=30), st.data())
def test_it_does_not_matter_where_the_pieces_are_cut(
    pieces: list[bytes], data: st.DataObject
) -> None:
    text = b"".join(pieces) + b"\n."
    cut = data.draw(st.integers(0, len(text)))
    assert shown(text[:cut], text[cut:]) == shown(text)


@given(st.lists(_PIECE, max_size=30))
def test_nothing_that_is_left_can_be_more_than_colour_or_move(pieces: list[bytes]) -> None:
    left = shown(b"".join(pieces) + b"\n.")
    assert shown(left) == left
