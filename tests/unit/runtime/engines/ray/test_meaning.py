"""What is shown of a run on Ray: by the states of Ray and of the run itself."""

from __future__ import annotations

from typing import Any

import pytest

from safelaunch.runtime.engines.ray import meaning
from safelaunch.runtime.engines.ray.jobs import RayJob
from safelaunch.runtime.records import AttemptRecord, Status
from safelaunch.runtime.signatures import classes

NOW = 10_000.0
OWN = ("none", "pending", "running", "lost", "stopped", "taken", "failed", "succeeded")
STATES = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED", "", "NEW")
TAIL = """Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000):
2026-01-02 03:04:05,678 INFO job_manager.py:581 -- Runtime env is setting up.
Running entrypoint for job sft: exec python driver.py
"""


def job(state: str = "RUNNING", **values: Any) -> RayJob:
    return RayJob(id="sft", state=state, message="as Ray says", **values)


def status(state: str) -> Status | None:
    """Return the status of a run; "taken" was stopped by a signal, "stopped" by our own stop."""
    if state == "none":
        return None
    record = Status(state="stopped" if state == "taken" else state, started_at=NOW - 50)
    if state in ("stopped", "taken"):
        record.stopped_by = "SIGTERM"
    if state == "stopped":
        record.stop_origin = "`safelaunch stop` (ada)"
    if state == "failed":
        record.attempts = [AttemptRecord(attempt=1, class_name="nan")]
    return record


def shown(state: str | None, own: str, **values: Any) -> str:
    answer = None if state is None else job(state, **values)
    return meaning.meaning(answer, status(own), NOW).state


def test_every_pair_has_a_meaning_that_keeps_our_own_end() -> None:
    for state in (*STATES, None):
        for own in OWN:
            result = meaning.meaning(None if state is None else job(state), status(own), NOW)
            assert result.state
            assert (
                result.class_name is None or classes.meaning(result.class_name) or own == "failed"
            )
            if own in ("failed", "succeeded", "stopped"):
                assert result.state == own, (state, own)
            if state in ("", "NEW") and own in ("none", "running", "pending", "lost"):
                assert result.state == "unknown"


@pytest.mark.parametrize(
    ("state", "own", "values", "expected"),
    [
        ("PENDING", "none", {}, "pending"),
        ("RUNNING", "none", {}, "pending"),
        ("RUNNING", "running", {}, "running"),
        ("SUCCEEDED", "none", {}, "lost"),
        ("SUCCEEDED", "running", {"ended_at": NOW - 5}, "running"),
        ("SUCCEEDED", "running", {"ended_at": NOW - 500}, "lost"),
        ("FAILED", "none", {}, "failed"),
        ("FAILED", "running", {"ended_at": NOW - 5}, "running"),
        ("FAILED", "running", {"ended_at": NOW - 500}, "lost"),
        ("FAILED", "taken", {"exit_code": 143}, "stopped"),
        ("FAILED", "taken", {"exit_code": -9}, "failed"),
        ("STOPPED", "running", {"ended_at": NOW - 5}, "running"),
        ("STOPPED", "running", {"ended_at": NOW - 500}, "stopped"),
        ("STOPPED", "none", {}, "stopped"),
        (None, "running", {}, "lost"),
    ],
)
def test_the_state_follows_ray_where_the_run_has_no_end(
    state: str | None, own: str, values: dict[str, Any], expected: str
) -> None:
    assert shown(state, own, **values) == expected


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (f"{TAIL}safelaunch: no place within 30 s\n", "no place within 30 s"),
        (f"{TAIL}ModuleNotFoundError: x\n", "failed with exit code 1; ModuleNotFoundError: x"),
        (TAIL, "before the run began: Job entrypoint command failed with exit code 1"),
        ("", "Ray has it as FAILED"),
    ],
)
def test_a_job_that_failed_before_the_run_says_why(message: str, words: str) -> None:
    answer = RayJob(state="FAILED", message=message)
    result = meaning.meaning(answer, None, NOW)
    assert words in result.reason
    assert "Running entrypoint" not in result.reason
    assert result.class_name == "scheduler"


def test_a_job_that_was_stopped_in_ray_says_so() -> None:
    result = meaning.meaning(job("STOPPED"), status("taken"), NOW)
    assert "was stopped in Ray" in result.reason
