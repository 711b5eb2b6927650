"""How what was looked at is broken into lines."""

from __future__ import annotations

from safelaunch.cli.table import wrapped


def test_words_are_broken_between_and_what_follows_is_indented() -> None:
    lines = wrapped("one two three four", 12, "> ", "  ")
    assert lines == ["> one two", "  three four"]


def test_a_command_between_backquotes_stays_whole_to_be_pasted() -> None:
    command = "`/opt/env/bin/python -m pip install torch accelerate`"
    assert wrapped(f"install it: {command}; or not", 24, "", "  ") == [
        "install it:",
        f"  {command};",
        "  or not",
    ]
