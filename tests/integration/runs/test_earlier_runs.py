"""`run --after RUN` waits for the end of another run before its first attempt."""

from __future__ import annotations

import os
import shutil
import signal
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


def test_a_run_that_has_ended_is_not_waited_for_and_a_failed_one_is_refused(place: Place) -> None:
    good = place.start(place.job("print('ok')", name="good"))
    bad = place.start(place.job("raise SystemExit(3)", name="bad"))
    place.cli("wait", good)
    place.cli("wait", bad, code=1)
    job = place.job("print('begun')", name="second")
    dry = place.cli("run", "--dry-run", job, "--after", "good").stdout
    assert "begins once\n  good has succeeded" in dry
    again = place.cli("rerun", good, "--current", "--after", good, "-f")
    assert "ok" in again.stdout
    refused = place.cli("run", job, "--after", bad, code=3).stderr
    assert f"{bad} has ended: failed" in refused
    assert len(place.json("ps", "--all")["runs"]) == 3
    place.cli("run", job, "--after", "never-was", code=2)


def test_a_run_that_is_removed_while_another_waits_for_it_fails_that(place: Place) -> None:
    first = place.start(place.job(WAITS, name="first"))
    second = _second(place, first)
    supervisor = place.json("show", first)["pids"]["supervisor"]
    os.kill(supervisor, signal.SIGSTOP)  # it would make its folder again
    shutil.rmtree(place.home / "runs" / first)
    os.kill(supervisor, signal.SIGKILL)
    shown = place.json("wait", second, code=1)
    assert "was removed while this run waited" in shown["failure"]["what"]
    place.write("go", "")


def test_a_run_that_waits_is_stopped_and_leaves_nothing(place: Place) -> None:
    first = place.start(place.job(WAITS, name="first"))
    second = _second(place, first)
    place.cli("stop", second)
    shown = place.json("show", second)
    assert (shown["state"], shown["proof"], shown["attempts"]) == ("stopped", "wait", [])
    assert place.json("show", first)["state"] == "running"
    place.write("go", "")


def test_code_that_has_changed_while_a_run_waited_is_named(place: Place) -> None:
    first = place.start(place.job(WAITS, name="first"))
    second = _second(place, first)
    record = place.node(second) / "record.json"
    wait_for(record.exists, "a record of the code")
    place.write("second.py", "print('changed')")
    place.write("go", "")
    shown = place.json("wait", second)
    assert shown["attempts"][0]["changed_files"] == ["second.py"]
    log = place.cli("logs", second).stdout
    assert "the code has changed since the start: second.py" in log
    assert "changed\n" in log
