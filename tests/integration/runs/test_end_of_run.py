"""What follows the end of a run: its commands, the upload, the shutdown of its machine."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import wait_for

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from support.workspace import Place

SAVE = (
    "import pathlib\npathlib.Path('out').mkdir()\npathlib.Path('out/model').write_text('w' * 9)\n"
)


def _end(place: Place, run: str, *states: str) -> dict[str, Any]:
    """Wait until what follows the end of a run is in one of these states; return the report."""

    def report() -> dict[str, Any] | None:
        ending: dict[str, Any] = place.status(run).get("ending") or {}
        return ending if ending.get("state") in states else None

    return dict(wait_for(report, f"{states} of the end of {run}"))


def _shutdown(**keys: object) -> dict[str, object]:
    """Return a shutdown that records its call, and looks at this home alone."""
    return {"command": "echo off >> off.txt", "grace": "0s", "others": "ignore", **keys}


def _steps(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(step["name"], step["state"]) for step in report["steps"]]


def test_commands_run_in_order_with_the_facts_of_the_run(place: Place) -> None:
    facts = 'echo "$SAFELAUNCH_STATE $SAFELAUNCH_EXIT_CODE $SAFELAUNCH_FAILURE_CLASS $OWN"'
    job = place.job(
        "raise SystemExit(3)",
        env={"OWN": "a b"},
        on_success="touch bad",
        on_failure=[facts, ["printf", "%s|", "two words", "$"]],
        on_end="test -s $SAFELAUNCH_LOG || test -d $SAFELAUNCH_NODE_DIR; pwd",
    )
    screen = place.cli("run", "--follow", "--no-check", job, code=1).stderr
    run = place.json("show")["id"]
    log = place.cli("logs", "--end", run).stdout
    assert "\nfailed 3 user-code-exception a b\n" in log
    assert "two words|$|" in log
    assert f"\n{place.project}\n" in log
    assert log.index("on_failure") < log.index("on_end")
    assert not (place.project / "bad").exists()
    report = place.json("show", run)["ending"]
    assert report["state"] == "done"
    assert "failed, exit code 3" in screen


def test_a_command_that_hangs_or_fails_is_said_and_changes_nothing(place: Place) -> None:
    job = place.job(
        "print('done')",
        on_end=["sleep 600 & sleep 600", "exit 7", "sleep 600 & echo last"],
        end_timeout="0.5s",
    )
    run = place.start(job)
    shown = place.json("wait", run)
    assert (shown["state"], shown["ending"]["state"]) == ("succeeded", "failed")
    whats = [step["what"] for step in shown["ending"]["steps"]]
    assert whats == [
        "ended after 0.5s",
        "exit code 7",
        "exit code 0; 1 process in the background ended too",
    ]
    assert processes.marked(run) == {}
    assert "succeeded, ON_END FAILED" in place.cli("ps").stdout
    assert "AT ITS END FAILED: on_end (ended after 0.5s)" in " ".join(
        place.cli("show", run).stdout.split()
    )


def test_a_flood_of_a_command_keeps_the_head_and_the_tail_of_its_log(place: Place) -> None:
    flood = "echo first; head -c 90000000 /dev/zero | tr '\\0' x; echo; echo last"
    run = place.start(place.job("", on_end=flood))
    assert place.json("wait", run)["ending"]["state"] == "done"
    info = os.stat(place.node(run) / "logs" / "end.log")
    assert info.st_blocks * 512 <= (64 << 20) + (1 << 20)
    assert place.cli("logs", "--end", "--tail", "1", run).stdout == "last\n"


def test_results_are_uploaded_and_compared_before_the_machine_is_turned_off(place: Place) -> None:
    store = place.root / "store"
    job = place.job(
        SAVE,
        upload={"to": f"file://{store}", "files": ["out"]},
        shutdown=_shutdown(),
    )
    run = place.start(job)
    report = _end(place, run, "done")
    assert _steps(report) == [("upload", "succeeded"), ("shutdown", "succeeded")]
    assert (store / "out" / "model").read_text() == "w" * 9
    assert (place.project / "off.txt").read_text() == "off\n"
    assert "1 of 1 files verified" in place.cli("logs", "--end", run).stdout


@pytest.mark.skipif(shutil.which("rclone") is None, reason="no rclone here")
def test_results_are_uploaded_by_rclone_and_compared(place: Place) -> None:
    store = place.root / "store"
    upload = {"to": f"store:{store}", "files": ["out/**"]}
    run = place.start(place.job(SAVE, env={"RCLONE_CONFIG_STORE_TYPE": "local"}, upload=upload))
    report = place.json("wait", run)["ending"]
    assert _steps(report) == [("upload", "succeeded"), ("verify", "succeeded")]
    assert (store / "out" / "model").read_text() == "w" * 9


def _without(place: Place, program: str) -> str:
    """Return a PATH that has all programs of this one but `program`."""
    folder = place.root / "programs"
    folder.mkdir()
    for source in place.env["PATH"].split(":"):
        for path in Path(source).glob("*"):
            link = folder / path.name
            if path.name != program and not link.is_symlink():
                link.symlink_to(path)
    return str(folder)


def test_an_upload_without_its_program_is_said_at_the_start(place: Place) -> None:
    place.env["PATH"] = _without(place, "rclone")
    upload = {"to": "store:x", "files": ["out/**"]}
    run = place.start(place.shell("sleep 600", upload=upload))
    warning = wait_for(lambda: place.status(run).get("warning"), "warning")
    assert "rclone is not on PATH" in warning
    place.cli("stop", run)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"on_end": "false"}, "on_end"),
        ({"upload": {"to": "file:///dev/null/x", "files": "out/*"}}, "upload"),
        ({"upload": {"to": "file:///tmp", "files": "no/*"}}, "upload"),
    ],
)
def test_a_machine_whose_results_are_not_safe_stays_on(
    keys: dict[str, Any], what: str, place: Place
) -> None:
    run = place.start(place.job(SAVE, shutdown=_shutdown(), **keys))
    report = _end(place, run, "failed")
    assert f"the machine stays on: {what} failed" in report["what"]
    assert not (place.project / "off.txt").exists()
    assert f"succeeded, {what.upper()} FAILED" in place.cli("ps").stdout


def test_a_person_keeps_the_machine_on_in_the_grace(place: Place) -> None:
    run = place.start(place.job("", shutdown=_shutdown(grace="5m")))
    _end(place, run, "grace")
    assert f"safelaunch stop {run} keeps the machine on" in " ".join(
        place.cli("show", run).stdout.split()
    )
    assert "shuts down in" in place.cli("ps").stdout
    assert place.json("wait", run)["state"] == "succeeded"
    place.cli("stop", run)
    assert _end(place, run, "stopped")["shutdown_at"] is None
    assert place.json("show", run)["state"] == "succeeded"
    assert not (place.project / "off.txt").exists()


def test_another_live_run_keeps_the_machine_on(place: Place) -> None:
    other = place.start(place.shell("sleep 600", name="other"))
    run = place.start(place.job("", shutdown=_shutdown()))
    assert other in _end(place, run, "waiting")["what"]
    assert "stays on" in place.cli("ps").stdout
    place.cli("stop", other)
    _end(place, run, "done")
    assert (place.project / "off.txt").exists()


def test_a_shutdown_that_fails_is_said_loudly(place: Place) -> None:
    run = place.start(place.job("", shutdown=_shutdown(command="echo no; exit 4")))
    assert "exit code 4" in _end(place, run, "failed")["what"]
    assert "SHUTDOWN FAILED" in place.cli("ps").stdout


def test_a_run_that_a_person_stops_leaves_its_machine_on(place: Place) -> None:
    job = place.shell("sleep 600", on_end="echo $SAFELAUNCH_STATE > end.txt", shutdown=_shutdown())
    run = place.start(job)
    place.cli("stop", run)
    assert _steps(_end(place, run, "done")) == [("on_end", "succeeded")]
    assert (place.project / "end.txt").read_text() == "stopped\n"
    assert not (place.project / "off.txt").exists()


def test_stop_ends_a_command_at_the_end_and_what_would_follow(place: Place) -> None:
    run = place.start(place.job("", on_end=["touch on; sleep 600", "touch next"]))
    wait_for((place.project / "on").exists, "the command")
    assert "succeeded, on_end runs" in place.cli("ps").stdout
    place.cli("stop", run)
    assert _steps(_end(place, run, "stopped")) == [("on_end", "stopped")]
    assert processes.marked(run) == {}
    assert not (place.project / "next").exists()


def test_the_death_of_the_supervisor_is_said_and_stop_ends_what_is_left(place: Place) -> None:
    run = place.start(place.job("", on_end="touch on; sleep 600"))
    wait_for((place.project / "on").exists, "the command")
    supervisor = place.status(run)["supervisor"]
    processes.send(supervisor["pid"], supervisor["start"], signal.SIGKILL)
    assert "the supervisor is gone; on_end was not finished" in _end(place, run, "lost")["what"]
    assert place.json("show", run)["state"] == "succeeded"
    place.cli("stop", run)
    assert processes.marked(run) == {}
    assert place.json("wait", run)["ending"]["state"] == "stopped"
