"""A run in a few hundred bytes."""

from __future__ import annotations

import json

from safelaunch.runs.brief import brief
from safelaunch.runs.store import Pids, ShownNode, ShownRun
from safelaunch.runtime.records import AttemptRecord, Failure, HangReport, ProgressReport


def large() -> ShownRun:
    """Return a failed run of which as much as possible is recorded."""
    text = "x" * 100_000
    return ShownRun(
        id="job-20260101-000000-abcd",
        state="failed",
        exit_code=1,
        attempts=[AttemptRecord(attempt=n, what=text) for n in range(1, 100)],
        reason=text,
        progress=ProgressReport(step=3, metrics={text: 1}),
        hang=HangReport(over=True, summary=text),
        pids=Pids(ranks={str(rank): rank for rank in range(10_000)}),
        nodes=[ShownNode(node=n, host="gpu", state="failed", reason=text) for n in range(500)],
        failure=Failure(what=text, class_name="cuda-oom", last_lines=[text], advice=text),
    )


def test_it_is_bounded() -> None:
    assert len(json.dumps(brief(large()))) < 10_000


def test_what_is_missing_or_cut_is_named() -> None:
    left_out = ["attempts", "failure", "nodes", "pids", "progress"]  # the hang was over
    assert brief(large())["left_out"] == left_out


def test_a_text_that_is_cut_ends_in_dots() -> None:
    assert brief(large())["reason"].endswith("xx...")


def test_it_says_how_the_run_is() -> None:
    shown = brief(large())
    assert (shown["state"], shown["attempt"], shown["hang"]) == ("failed", 99, False)
    assert (shown["progress"], shown["failure"]["class"]) == ({"step": 3}, "cuda-oom")


def test_a_run_without_a_failure_says_so() -> None:
    assert brief(ShownRun(state="running"))["failure"] is None
