"""Runs that the previous version started, here and now, are shown, listed, read and stopped.

tests/data/previous-version has two run directories as commit b2c4675 wrote them, names of people
and machines replaced, without the copy of the runtime: one has failed, one was running.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support import REPOSITORY
from support.workspace import wait_for

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.workspace import Place

RECORDED = REPOSITORY / "tests" / "data" / "previous-version"
FAILED, RUNNING = "failed-sft-20260101-090000-e23b", "running-sft-20260101-090000-54c3"
# what a supervisor of that version does when it is asked to stop
SUPERVISOR = """
import json, os, signal, sys
path = sys.argv[1] + "/status.json"
def stop(signum, frame):
    status = json.load(open(path))
    grace = json.load(open(sys.argv[1] + "/stop.json"))["grace"]
    status.update(state="stopped", stopped_by="SIGTERM", elapsed=grace)
    json.dump(status, open(path + ".new", "w"))
    os.replace(path + ".new", path)
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
signal.pause()
"""
SLEEPER = "import time; print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def process() -> Iterator[Callable[..., int]]:
    """Yield a function that starts a Python program and returns its pid once it is ready."""
    started = []

    def start(program: str, *words: str) -> int:
        command = [sys.executable, "-I", "-S", "-c", program, *words]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return child.pid

    yield start
    for child in started:
        child.kill()
        child.communicate()


def copy_run(place: Place, run: str, pid: int | None = None, job: int | None = None) -> Path:
    """Copy a recorded run, as if it had been started on this machine with these processes."""
    node = place.node(run)
    shutil.copytree(RECORDED / run, node.parent)
    machine = processes.machine()
    for name in ("run.json", "status.json"):
        record = json.loads((node / name).read_text())
        record["hostname"] = os.uname().nodename
        if "supervisor" in record:
            record["supervisor"].update(machine)
        if pid is not None and name == "status.json":
            record["supervisor"] = processes.identity(pid).to_json()
        (node / name).write_text(json.dumps(record))
    if job is not None:
        (node / "processes.jsonl").write_text(json.dumps(processes.identity(job).to_json()) + "\n")
    return node


def test_a_run_that_failed_is_shown_with_its_cause(place: Place) -> None:
    copy_run(place, FAILED)
    shown = place.json("show", FAILED)
    assert (shown["state"], shown["exit_code"], len(shown["attempts"])) == ("failed", 1, 2)
    failure: dict[str, Any] = shown["failure"]
    assert (failure["class"], failure["rank"]) == ("user-code-exception", 0)
    assert failure["frame"]["line"] == 5
    text = place.cli("show", FAILED).stdout
    assert "ValueError: bad batch: 3 labels for 4 rows" in text
    assert "launcher  python, profile none" in text


def test_its_log_is_printed(place: Place) -> None:
    copy_run(place, FAILED)
    assert "step 3/5\nTraceback" in place.cli("logs", FAILED).stdout
    assert "step 3/5" in place.cli("logs", FAILED, "--attempt", "1").stdout


def test_runs_are_listed_with_state_and_progress(place: Place, process: Callable[..., int]) -> None:
    copy_run(place, FAILED)
    copy_run(place, RUNNING, process(SLEEPER))
    listed = {run["id"]: run for run in place.json("ps", "--all")["runs"]}
    assert (listed[FAILED]["state"], listed[RUNNING]["state"]) == ("failed", "running")
    assert listed[RUNNING]["progress"]["step"] == 3


def test_its_supervisor_is_asked_to_stop(place: Place, process: Callable[..., int]) -> None:
    pid = process(SUPERVISOR, str(place.node(RUNNING)))
    copy_run(place, RUNNING, pid)
    assert place.json("show", RUNNING)["state"] == "running"
    stopped = place.json("stop", RUNNING, "--grace", "7")
    assert (stopped["state"], stopped["elapsed"], stopped["alive"]) == ("stopped", 7, 0)
    wait_for(lambda: processes.start_time(pid) is None, "end of the supervisor")


def test_what_its_dead_supervisor_left_is_ended(place: Place, process: Callable[..., int]) -> None:
    job = process(SLEEPER)
    copy_run(place, RUNNING, job=job)
    shown = place.json("show", RUNNING)
    assert (shown["state"], shown["alive"]) == ("lost", 1)
    assert place.json("stop", RUNNING)["state"] == "stopped"
    assert processes.start_time(job) is None
