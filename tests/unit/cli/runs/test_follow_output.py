from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from safelaunch.cli.runs.follow import (
    describe,
    follow_log,
    headline,
)
from safelaunch.runs.access import LocalRun, LogRequest
from safelaunch.runs.store import Run
from safelaunch.runtime.records import Status

if TYPE_CHECKING:
    from pathlib import Path


def test_following_continues_with_the_next_attempt(tmp_path: Path) -> None:
    run = LocalRun(Run("job", str(tmp_path)))
    for number, text in ((1, b"first"), (2, b"second\n")):
        folder = tmp_path / "node-0" / "logs" / f"attempt-{number}"
        folder.mkdir(parents=True)
        (folder / "combined.log").write_bytes(text)
    (tmp_path / "node-0" / "status.json").write_text(json.dumps({"state": "failed"}))
    assert (
        b"".join(follow_log(run, LogRequest(1, follow=True)))
        == b"first\n[safelaunch] attempt 2\nsecond\n"
    )


def test_a_stopped_run_names_the_signal() -> None:
    status = {"state": "stopped", "stopped_by": "SIGTERM", "signal": "SIGKILL", "exit_code": 137}
    assert describe(Status.from_json(status)) == "stopped (SIGKILL)"


def test_a_stopped_run_names_who_stopped_it() -> None:
    status = {"state": "stopped", "stopped_by": "SIGTERM", "stop_origin": "Ctrl-C", "signal": "x"}
    assert describe(Status.from_json(status)) == "stopped by Ctrl-C"
    killed = describe(Status.from_json({**status, "signal": "SIGKILL"}))
    assert killed == "stopped by Ctrl-C, SIGKILL after the grace"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"state": "failed", "signal": "SIGTERM"}, "failed, % was ended by SIGTERM"),
        ({"state": "failed", "exit_code": 0}, "failed, though % ended with 0"),
        ({"state": "failed", "leftovers": 2}, "failed, 2 processes outlived % and were stopped"),
        (
            {
                "state": "running",
                "exit_code": 0,
                "leftover_processes": [{"pid": 7, "command": "python w.py"}],
            },
            "running, % has ended with 0, still running: python w.py (pid 7)",
        ),
    ],
    ids=["signal", "success", "leftovers", "work"],
)
@pytest.mark.parametrize(
    ("start", "name"), [(None, "the launcher"), ("direct", "the starter of the ranks")]
)
def test_what_started_the_ranks_is_called_by_its_name(
    data: dict[str, object], words: str, start: str | None, name: str
) -> None:
    assert describe(Status.from_json({**data, "start": start})) == words.replace("%", name)


HEADLINES = {
    "a killed launcher": {
        "state": "failed", "exit_code": 137, "signal": "SIGKILL", "leftovers": 4, "elapsed": 9.0,
    },
    "an unmet success": {
        "state": "failed", "exit_code": 0, "elapsed": 9.0,
        "reason": "`success` wants 100 steps, 5 were seen in the log; and a file `out/m.bin`",
    },
    "a restart that comes": {
        "state": "running",
        "waiting": {"until": 0, "why": "restart 1 of 3: `dataloader-worker-killed` may pass"},
    },
}  # fmt: skip


@pytest.mark.parametrize("data", HEADLINES.values(), ids=HEADLINES)
def test_a_headline_stays_within_the_terminal(
    data: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = LocalRun(Run("job-20260101-000000-abcd", str(tmp_path)))
    status = Status.from_json(data)
    lines = headline(run, status).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == f"{run.id}: {describe(status)}"


def test_a_run_that_was_found_dead_shows_its_last_sign_of_life() -> None:
    status = {"state": "stopped", "started_at": 100.0, "ended_at": 105.0, "last_sign_at": 105.0}
    assert describe(Status.from_json(status)) == "stopped, last sign of life after 5.0 s"
