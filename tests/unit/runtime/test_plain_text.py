from __future__ import annotations

import re

import pytest

from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE, clipped, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.py", "train.py"),
        ("\u0434\u043e\u043c.py", "\u0434\u043e\u043c.py"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("two\nlines\t", r"two\nlines\t"),
        ("\udcff", r"\udcff"),
        ("\u202eexe.txt", r"\u202eexe.txt"),
    ],
)
def test_what_could_drive_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_tab_may_be_kept() -> None:
    assert printable("a\tb\0", keep="\t") == r"a	b\x00".replace(r"\t", "\t")


@pytest.mark.parametrize(
    "sequence",
    [
        "\x1b[31m",
        "\x1b[?2004h",
        "\x1b]0;title\x07",
        "\x1b]8;;http://x\x1b\\",
        "\x1b(B",
        "\x1bM",
        "\x1b=",
    ],
)
def test_escape_sequences_are_matched_whole(sequence: str) -> None:
    assert re.sub(ESCAPE_SEQUENCE, "", f"a{sequence}b") == "ab"


def test_an_unfinished_title_does_not_take_the_lines_behind_it() -> None:
    assert re.sub(ESCAPE_SEQUENCE, "", "a\x1b]0;title\nline") == "a0;title\nline"


def test_a_long_text_loses_its_middle() -> None:
    assert clipped("short") == "short"
    path = "head/" + "x" * 5000 + "/tail: not sent"
    assert len(clipped(path)) <= 240
    assert clipped(path).startswith("head/x")
    assert clipped(path).endswith("x/tail: not sent")
