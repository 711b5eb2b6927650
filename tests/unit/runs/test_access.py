"""A run of this machine behind the Protocol that a run on hosts has too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from safelaunch.runs.access import LocalRun, LogRequest, MissingLogError
from safelaunch.runs.store import Run

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.runtime.records import Status


@pytest.fixture
def run(tmp_path: Path) -> LocalRun:
    """Return an ended run with one log."""
    folder = tmp_path / "node-0" / "logs" / "attempt-1"
    folder.mkdir(parents=True)
    (folder / "combined.log").write_bytes(b"one\ntwo\nthree\n")
    (tmp_path / "node-0" / "status.json").write_text(json.dumps({"state": "failed"}))
    return LocalRun(Run("job-20260101-000000-abcd", str(tmp_path)))


def test_a_log_begins_at_its_last_lines(run: LocalRun) -> None:
    assert b"".join(run.log(LogRequest(tail=2))) == b"two\nthree\n"


@pytest.mark.parametrize("request_", [LogRequest(2), LogRequest(which="rank-7")])
def test_a_log_that_is_not_there_is_an_error(run: LocalRun, request_: LogRequest) -> None:
    with pytest.raises(MissingLogError):
        list(run.log(request_))


def test_waiting_for_a_run_that_is_over_asks_once(run: LocalRun) -> None:
    statuses: list[Status] = []
    assert run.wait(on_status=statuses.append).state == "failed"
    assert statuses == []


def test_waiting_gives_up_at_its_time(tmp_path: Path) -> None:
    (tmp_path / "new" / "node-0").mkdir(parents=True)  # a start that has only begun
    run = LocalRun(Run("new", str(tmp_path / "new")))
    statuses: list[Status] = []
    status = run.wait(timeout=0.0, on_status=statuses.append)
    assert not run.is_over(status)
    assert statuses[-1] == status


def test_a_stopped_or_failed_run_had_ended_before_a_stop(run: LocalRun) -> None:
    status, had_ended = run.stop(0.0)
    assert (status.state, had_ended) == ("failed", True)
