"""`run --after RUN` waits for the end of another run before its first attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.workspace import wait_for

if TYPE_CHECKING:
    from support.workspace import Place

WAITS = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)\n"


def _second(place: Place, first: str, *words: str) -> str:
    """Start a job after the run `first`, and return its run, which waits."""
    job = place.job("print('begun')", name="second")
    run = place.start(job, *(words or ("--after", first)))
    wait_for(lambda: first in str(place.json("show", run).get("waits_for")), "a run that waits")
    return run


def test_a_run_begins_once_the_one_before_has_succeeded(place: Place) -> None:
    first = place.start(place.job(WAITS, name="first"))
    second = _second(place, first)
    shown_text = " ".join(place.cli("show", second).stdout.split())
    assert f"pending, waits for the end of {first}" in shown_text
    place.write("go", "")
    shown = place.json("wait", second)
    assert shown["state"] == "succeeded"
    assert shown["started_at"] > place.json("show", first)["ended_at"]
    assert "begun" in place.cli("logs", second).stdout


def test_a_run_whose_earlier_run_fails_is_not_started(place: Place) -> None:
    first = place.start(place.job(WAITS + "raise SystemExit(3)", name="first"))
    second = _second(place, first)
    third = _second(place, second, "--after-any", second)
    place.write("go", "")
    shown = place.json("wait", second, code=1)
    assert (shown["attempts"], shown["failure"]["class"]) == ([], "earlier-run")
    assert first in shown["failure"]["what"]
    assert place.json("wait", third)["state"] == "succeeded"


def test_a_run_that_waits_is_stopped_and_leaves_nothing(place: Place) -> None:
    first = place.start(place.job(WAITS, name="first"))
    second = _second(place, first)
    place.cli("stop", second)
    shown = place.json("show", second)
    assert (shown["state"], shown["proof"], shown["attempts"]) == ("stopped", "wait", [])
    assert place.json("show", first)["state"] == "running"
    place.write("go", "")
