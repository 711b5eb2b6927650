"""Text that would change a terminal, and runs and commands that have it in their output."""

from __future__ import annotations

import contextlib
import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = (
    "\x1b]0;title\x07\x1b]52;c;aGk=\x1b\\\x9b2J\x85\r\x00\x08\u202etxet\ud83d\x7f \x1b[8m\n\x1b[2K"
)
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


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
