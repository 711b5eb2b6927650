"""Finding, listing and waiting for runs; what is recorded of them; starts that are cut off."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from support.workspace import DEADLINE, wait_for

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from support.workspace import Place

FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(60)\n"
SHOWN = {"version", "id", "state", "exit_code", "attempts", "host", "run_dir", "pids", "failure"}


def test_all_json_has_the_promised_shape(place: Place) -> None:
    run = place.start(place.ranks(FOREVER))
    place.wait_for_text(run, "[0] up")
    place.wait_for_text(run, "[1] up")
    shown = place.json("show", run)
    assert set(shown) >= SHOWN
    assert set(shown["pids"]) == {"supervisor", "launcher", "ranks"}
    assert set(shown["pids"]["ranks"]) == {"0", "1"}
    assert all(processes.start_time(pid) for pid in shown["pids"]["ranks"].values())
    assert set(place.json("ps")["runs"][0]) >= SHOWN
    assert set(place.json("stop", run)) >= SHOWN
    assert set(place.json("wait", run, code=1)) >= SHOWN
    assert place.json("show", run)["attempts"][0]["exit_code"] is not None


def fake_runs(place: Place, *ids: str, state: str = "succeeded") -> None:
    """Record runs that have ended."""
    for run in ids:
        place.node(run).mkdir(parents=True)
        status = {"version": 1, "id": run, "state": state, "exit_code": 0}
        (place.node(run) / "status.json").write_text(json.dumps(status))


def test_a_run_is_found_by_id_prefix_name_or_as_the_newest(place: Place) -> None:
    first, two, other = (
        "one-20260101-000000-aaaa",
        "one-20260102-000000-bbbb",
        "other-20260101-120000-cccc",
    )
    fake_runs(place, first, two, other)
    for name, run in ((first, first), ("one", two), ("oth", other), ("one-20260101", first)):
        assert place.json("show", name)["id"] == run
    assert place.json("show")["id"] == two
    ambiguous = place.cli("show", "o", code=2).stderr
    assert "`o` begins 3 runs" in ambiguous
    assert "no run `none`" in place.cli("show", "none", code=2).stderr


def test_without_runs_one_is_told(place: Place) -> None:
    assert "no runs yet" in place.cli("ps").stderr
    assert "there are no runs yet" in place.cli("stop", code=2).stderr
    assert place.json("ps")["runs"] == []


def test_ps_with_two_thousand_runs(place: Place) -> None:
    fake_runs(place, *(f"job-2026{m:02}{d:02}-0000{s:02}-{m:02}{d:02}"
                       for m in range(1, 11) for d in range(1, 21) for s in range(10)))  # fmt: skip
    live = place.start(place.job(FOREVER, name="live"))
    shown = place.cli("ps")
    assert live in shown.stdout
    assert len(shown.stdout.splitlines()) == 22
    assert "1980 older runs are not shown" in shown.stderr
    assert len(place.json("ps", "--all")["runs"]) == 2001


def test_wait_says_how_it_ended(place: Place) -> None:
    program = "import os, sys, time\nwhile not os.path.exists('go'): time.sleep(.01)\nsys.exit({})"
    for code in (0, 1):
        run = place.start(place.job(program.format(code * 9)))
        assert "still running" in place.cli("wait", "--timeout", "0.2", run, code=1).stderr
        client = place.popen("wait", run)
        place.write("go", "")
        assert client.wait(timeout=DEADLINE) == code
        (place.project / "go").unlink()


def test_what_a_run_was_made_of_is_recorded(place: Place) -> None:
    job = place.job("print('x')")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", str(place.project)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True, env=place.env)
    place.write("job.py", "print('changed')")
    run = place.start(job)
    path = place.node(run) / "record.json"
    wait_for(path.exists, "record.json")
    record = json.loads(path.read_text())
    head = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True, env=place.env
    ).stdout.strip()
    assert record["git"]["commit"] == head
    assert record["git"]["changed"] == [" M job.py"]
    assert record["python"].startswith("3.")
    assert isinstance(record["packages"], dict)
    assert re.search(f"{head[:12]} on \\w+, changed files: 1", place.cli("show", run).stdout)


def no_orphan(place: Place, run: str) -> None:
    """Check that a start that was cut off is a run that is known, or nothing at all."""
    settled = ("running", "lost", "stopped", "succeeded", "failed")
    wait_for(lambda: place.status(run)["state"] in settled, "a state that stays")
    state = place.json("show", run)["state"]
    assert bool(processes.marked(run)) == (state == "running")


def cut_off(place: Place, job: str, moment: float, signum: int) -> tuple[set[str], int, bytes]:
    """Start a job, send its client a signal after its run directory has appeared; see what is left.

    Returns the new runs, the client's exit code and what it printed.
    """
    runs = place.home / "runs"
    before = set(os.listdir(runs)) if runs.is_dir() else set()
    client = place.popen("run", job)

    def has_started() -> bool:
        now = set(os.listdir(runs)) if runs.is_dir() else set()
        return client.poll() is not None or bool(now - before)

    wait_for(has_started, "beginning of a start")
    try:
        client.wait(timeout=moment)  # a moment of the start, not a pause
    except subprocess.TimeoutExpired:
        client.send_signal(signum)
    out, err = client.communicate(timeout=DEADLINE)
    return set(os.listdir(runs)) - before, client.returncode, out + err


@pytest.mark.parametrize("backend", ["tmux", "setsid"])
def test_killing_the_client_in_the_middle_of_a_start_leaves_no_orphan(
    request: pytest.FixtureRequest, place: Place, backend: str
) -> None:
    if backend == "setsid":
        request.getfixturevalue("no_tmux")
    job = place.job(FOREVER)
    moments = (0.0, 0.008, 0.016, 0.024, 0.05)
    left = [cut_off(place, job, moment, signal.SIGKILL)[0] for moment in moments]
    assert all(left)  # a client that is killed takes nothing away
    for run in set().union(*left):
        no_orphan(place, run)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupting_a_start_leaves_nothing_or_a_run(place: Place, signum: int) -> None:
    job = place.job(FOREVER)
    for moment in (0.0, 0.008, 0.016, 0.024, 0.05):
        left, code, out = cut_off(place, job, moment, signum)
        # the signal itself: it came before the start began, or when all was done
        assert code in (0, 130, -signum)
        for run in left:
            assert place.json("show", run)["state"] == "running"
            assert run.encode() in out
