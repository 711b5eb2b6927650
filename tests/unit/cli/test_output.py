"""How messages are printed, and text is broken into lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.cli.output import report, wrap
from safelaunch.errors import HostError

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_traceback_of_a_bug_is_written_to_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    error = HostError("unexpected KeyError in the agent there: 'x'", where="gpu1")
    error.details = "Traceback ...\nKeyError: 'x'\n"
    report(error)
    (file,) = tmp_path.iterdir()
    assert capsys.readouterr().err == f"error: {error}; details: {file}\n"
    assert file.read_text().endswith(error.details)
    assert "Traceback" not in str(error)


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


def test_text_beyond_the_last_line_is_left_out_visibly() -> None:
    assert wrap("one two three four five", 12, max_lines=2) == ["one two", "three ..."]
