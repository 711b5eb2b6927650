"""Commands that show what jobs, hosts and other programs wrote, with any text in its place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.hostile_text import CONTROLS, HOSTILE, make_run, output_of

from safelaunch.cli.output import terminal_text

if TYPE_CHECKING:
    from pathlib import Path

RUN, OTHER = "job-20260102-030405-abcd", "other-20260102-030405-abcd"
TEXTS = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=()), max_size=12),
        st.sampled_from(["\x1b]0;t\x07", "\x9b31m", "\ud83d", "\u202e", "\r", "`", "Error: ", "/"]),
    ),
    max_size=5,
).map("".join)
COMMANDS = (
    ["show", RUN],
    ["show", "--json", RUN],
    ["ps"],
    ["ps", "--json"],
    ["wait", RUN],
    ["wait", "--json", RUN],
    ["diff", RUN, OTHER],
    ["diff", "--json", RUN, OTHER],
    ["diagnose", "{log}"],
    ["diagnose", "--json", "{log}"],
    ["logs", "{text}"],
    ["show", "{text}"],
    ["lint", "{job}"],
    ["lint", "--json", "{job}"],
    ["run", "--dry-run", "{job}"],
    ["check", "{job}"],
    ["{text}"],
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@settings(
    max_examples=10,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=TEXTS)
@example(text=HOSTILE)
def test_any_text_is_shown_and_changes_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], text: str
) -> None:
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    make_run(tmp_path, RUN, text)
    make_run(tmp_path, OTHER, text + "x")
    raw = text.encode("utf-8", "surrogatepass")
    log, job = tmp_path / "job.log", tmp_path / "job.yaml"
    log.write_bytes(
        b'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: ' + raw
    )
    job.write_bytes(b'launcher: command\nscript: train.py\nname: "' + raw + b'"\n' + raw + b": 1\n")
    words = {"{log}": str(log), "{job}": str(job), "{text}": text.replace("\0", "")}
    code, out, err = output_of([words.get(word, word) for word in command])
    assert code != 5, err
    assert "Traceback (most recent" not in err
    assert CONTROLS.findall(out + err) == []
    if "--json" in command and code in (0, 1):
        json.loads(out)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31m\x1b[1merror:\x1b[0m x", "\x1b[31m\x1b[1merror:\x1b[0m x"),
        ("\x1b]0;t\x07", "\\x1b]0;t\\x07"),
        ("\x1b[8mhidden", "\\x1b[8mhidden"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb", "a\\rb"),
        ("\u202eabc", "\\u202eabc"),
        ("größer 漢字 \U0001f600", "größer 漢字 \U0001f600"),
    ],
)
def test_text_for_a_terminal_has_no_control_but_our_styles(text: str, shown: str) -> None:
    assert terminal_text(text) == shown
