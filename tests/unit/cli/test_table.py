"""How text is broken into lines."""

from __future__ import annotations

from safelaunch.cli.output import wrap


def test_words_are_broken_between_and_what_follows_is_indented() -> None:
    lines = wrap("one two three four", 12, "> ", "  ")
    assert lines == ["> one two", "  three four"]


def test_a_command_between_backquotes_stays_whole_to_be_pasted() -> None:
    command = "`/opt/env/bin/python -m pip install torch accelerate`"
    assert wrap(f"install it: {command}; or not", 24, "", "  ") == [
        "install it:",
        f"  {command};",
        "  or not",
    ]


def test_a_long_command_is_broken_between_words_where_words_may_be_broken() -> None:
    lines = wrap("try `pip install --no-deps torch`", 16, break_words=True)
    assert lines == ["try `pip install", "--no-deps torch`"]


def test_what_does_not_fit_the_lines_is_left_out_visibly() -> None:
    assert wrap("one two three four five", 12, max_lines=2) == ["one two", "three ..."]
