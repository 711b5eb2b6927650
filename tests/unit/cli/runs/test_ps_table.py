from __future__ import annotations

import time
from typing import Any

import pytest

from safelaunch.cli.runs.ps import _Row, _table
from safelaunch.runs.store import Run
from safelaunch.runtime.records import Status

PROGRESS = {"step": 12000, "total": 80000, "scope": "run", "eta": 7200.0, "loss": 0.4123}


def row(**known: Any) -> _Row:
    status = {"state": "running", "started_at": time.time() - 4000, "progress": PROGRESS, **known}
    return _Row(Run("pretrain-7b-20260101-000000-abcd", "/nowhere"), Status.from_json(status))


ATTEMPTS: list[dict[str, Any]] = [{}, {}, {}]
ROWS = {
    "a plain one": row(),
    "after two restarts": row(attempts=ATTEMPTS),
    "one that was killed": row(state="failed", exit_code=137, signal="SIGKILL", attempts=ATTEMPTS),
    "one that seems to hang": row(hang={"since": 1.0}, attempts=ATTEMPTS),
    "one without supervisor": row(state="lost", alive=12, as_of=time.time()),
}


@pytest.mark.parametrize("told", ROWS.values(), ids=ROWS)
def test_a_row_stays_within_80_columns(told: _Row) -> None:
    for line in _table([told], 80):
        assert len(line) <= 80
        assert line.startswith(("RUN", told.id))


def test_progress_is_shortened_before_the_state() -> None:
    assert (
        "running, attempt 3  for 1 h 6 min  12000/80000" in _table([row(attempts=ATTEMPTS)], 90)[1]
    )


def test_without_a_terminal_nothing_is_shortened() -> None:
    assert "running, attempt 3  for 1 h 6 min  12000/80000, 2 h left" in "\n".join(
        _table([row(attempts=ATTEMPTS)], None)
    )


def test_a_run_that_seems_to_hang_is_told_and_has_no_time_left() -> None:
    (line,) = _table([row(hang={"since": 1.0})], None)[1:]
    assert "running, hangs?" in line
    assert "left" not in line


@pytest.mark.parametrize("known", [{"hang": {"over": True}}, {"waiting": {}, "hang": {}}])
def test_a_hang_that_is_over_is_not_told(known: dict[str, Any]) -> None:
    assert "hangs?" not in "".join(_table([row(**known)], None))


def test_the_progress_of_a_lost_run_has_its_time() -> None:
    moment = time.time() - 60
    (line,) = _table([row(state="lost", alive=2, as_of=moment)], None)[1:]
    assert line.endswith(time.strftime("12000/80000, loss 0.4123 at %H:%M", time.localtime(moment)))


def test_how_long_a_run_ran_that_was_found_dead_is_the_least() -> None:
    dead = row(state="stopped", ended_at=(row().status.started_at or 0.0) + 5, last_sign_at=1.0)
    assert "ran 5.0 s+" in _table([dead], None)[1]
