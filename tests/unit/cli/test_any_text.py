"""Commands that show what jobs, hosts and other programs wrote, with any text in its place."""

from __future__ import annotations

import contextlib
import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from safelaunch.cli.main import main
from safelaunch.cli.output import terminal_text

if TYPE_CHECKING:
    from pathlib import Path

RUN, OTHER = "job-20260102-030405-abcd", "other-20260102-030405-abcd"
HOSTILE = (
    "\x1b]0;title\x07\x1b]52;c;aGk=\x1b\\\x9b2J\x85\r\x00\x08\u202etxet\ud83d\x7f \x1b[8m\n\x1b[2K"
)
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
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


def make_run(home: Path, run: str, text: str) -> None:
    """Write a run whose records have a text wherever they may have one."""
    frame = {"file": f"/{text}/train.py", "line": 3, "function": text, "code": text, "own": True}
    rank = {"rank": 1, "host": text, "what": text, "after": 0.1}
    records: dict[str, dict[str, Any]] = {
        "status.json": {
            "version": 1, "id": run, "name": text, "hostname": text, "state": "failed",
            "exit_code": 1, "signal": text, "reason": text, "warning": text, "advice": text,
            "recovery": text, "elapsed": 3.0, "started_at": 1.0, "ended_at": 9.0,
            "attempts": [{"attempt": n, "what": text, "class": text} for n in (1, 2)],
            "hang": {"since": 1.0, "silent": 2.0, "kind": text, "summary": text, "folder": text},
            "progress": {
                "step": 3, "scope": text, "loss": text, "metrics": {text: text, "reward": text},
                "last_checkpoint_time": 1.0, "lines_without_step": 4000,
            },
            "nodes": [{"node": 0, "host": text, "state": "failed", "reason": text}],
        },
        "failure.json": {
            "version": 1, "class": text, "meaning": text, "what": text, "why": text, "rank": 0,
            "host": text, "exception": None, "frame": frame, "stack": [frame, frame],
            "causes": [{"what": text, "frame": frame}], "others": [rank, rank], "proof": text,
            "last_lines": [text, text], "remedy": [text, text], "advice": text, "printed": True,
        },
        "run.json": {
            "version": 1, "id": run, "name": text, "job_file": text, "hosts": [text], "cwd": text,
        },
        "plan.json": {
            "version": 1, "launcher": text, "profile": text, "argv": [text], "env": {text: text},
        },
        "record.json": {
            "version": 1, "python": text, "interpreter": text, "packages": {text: text},
            "git": {"commit": text, "changed": [text]},
        },
    }  # fmt: skip
    node = home / "runs" / run / "node-0"
    (node / "logs" / "attempt-1").mkdir(parents=True, exist_ok=True)
    for name, record in records.items():
        (node / name).write_text(json.dumps(record), encoding="ascii")


def output_of(arguments: list[str]) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of the command line, run in this process."""
    buffers = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(buffer, "utf-8", write_through=True) for buffer in buffers]
    code: object = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["safelaunch", *arguments])
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            try:
                main()
            except SystemExit as e:
                code = e.code
    assert isinstance(code, int)
    out, err = (buffer.getvalue().decode("utf-8", "surrogateescape") for buffer in buffers)
    return code, out, err


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
