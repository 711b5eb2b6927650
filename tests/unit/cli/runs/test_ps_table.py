from __future__ import annotations

import time
from typing import Any

import pytest

from safelaunch.cli.runs.ps import _RunRow, _Table
from safelaunch.runs.store import Run
from safelaunch.runtime.records import Status

PROGRESS = {"step": 12000, "total": 80000, "scope": "run", "eta": 7200.0, "loss": 0.4123}


def row(**changes: Any) -> _RunRow:
    status = {"state": "running", "started_at": time.time() - 4000, "progress": PROGRESS, **changes}
    return _RunRow(Run("pretrain-7b-20260101-000000-abcd", "/nowhere"), Status.from_json(status))


ATTEMPTS: list[dict[str, Any]] = [{}, {}, {}]
ROWS = {
    "a plain run": row(),
    "after two restarts": row(attempts=ATTEMPTS),
    "a killed run": row(state="failed", exit_code=137, signal="SIGKILL", attempts=ATTEMPTS),
    "a run that seems to hang": row(hang={"since": 1.0}, attempts=ATTEMPTS),
    "a run without supervisor": row(state="lost", alive=12, as_of=time.time()),
}


@pytest.mark.parametrize("run_row", ROWS.values(), ids=ROWS)
def test_a_row_stays_within_80_columns(run_row: _RunRow) -> None:
    for line in _Table(80).lines([run_row]):
        assert len(line) <= 80
        assert line.startswith(("RUN", run_row.id))


@pytest.mark.parametrize(
    ("stopped_by", "origin", "shown"),
    [
        ("SIGTERM", "`safelaunch stop` (me)", "stopped"),
        ("SIGTERM", "SIGTERM from pid 7 (init, root)", "stopped (SIGTERM)"),
        ("SIGINT", "Ctrl-C in its terminal", "stopped (Ctrl-C)"),
        ("max_duration", None, "stopped (max_duration)"),
    ],
)
def test_a_stopped_run_shows_what_stopped_it(
    stopped_by: str, origin: str | None, shown: str
) -> None:
    stopped = row(state="stopped", stopped_by=stopped_by, stop_origin=origin)
    assert stopped.state(brief=True) == shown


def test_progress_is_shortened_before_the_state() -> None:
    line = _Table(90).lines([row(attempts=ATTEMPTS)])[1]
    assert "running, attempt 3  for 1 h 6 min  12000/80000" in line


def test_without_a_terminal_nothing_is_shortened() -> None:
    text = "\n".join(_Table(None).lines([row(attempts=ATTEMPTS)]))
    assert "running, attempt 3  for 1 h 6 min  12000/80000, 2 h left" in text


def test_a_run_that_seems_to_hang_is_marked_and_has_no_time_left() -> None:
    (line,) = _Table(None).lines([row(hang={"since": 1.0})])[1:]
    assert "running, hangs?" in line
    assert "left" not in line


@pytest.mark.parametrize("changes", [{"hang": {"over": True}}, {"waiting": {}, "hang": {}}])
def test_a_hang_that_is_over_is_not_shown(changes: dict[str, Any]) -> None:
    assert "hangs?" not in "".join(_Table(None).lines([row(**changes)]))


def test_the_progress_of_a_lost_run_has_its_time() -> None:
    moment = time.time() - 60
    (line,) = _Table(None).lines([row(state="lost", alive=2, as_of=moment)])[1:]
    assert line.endswith(time.strftime("12000/80000, loss 0.4123 at %H:%M", time.localtime(moment)))


def test_the_duration_of_a_run_that_was_found_dead_is_a_minimum() -> None:
    dead = row(state="stopped", ended_at=(row().status.started_at or 0.0) + 5, last_sign_at=1.0)
    assert "ran 5.0 s+" in _Table(None).lines([dead])[1]
