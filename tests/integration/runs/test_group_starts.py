"""The start of a file with steps: cut off, once for a key, in the foreground, resumed."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import DEADLINE, wait_for

if TYPE_CHECKING:
    import subprocess

    from support.workspace import Place

WAITS = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)\n"
NAMES = ["train", "export", "evaluate"]


def _steps(place: Place, train: str = "print('trained')", **train_keys: object) -> str:
    """Write a file with three steps, of which the second cannot be started yet."""
    # an interpreter that does not answer the start before the file is there
    wait = f"while [ ! -e {place.project}/answer ]; do sleep 0.02; done"
    # and as the supervisor's own begins only once another file is gone
    hold = f"echo $$ >{place.project}/pid; while [ -e {place.project}/hold ]; do sleep 0.02; done"
    hold = f'case "$*" in *supervisor.py*) {hold};; esac'
    lines = ["#!/bin/sh", wait, hold, f'exec {sys.executable} "$@"']
    python = place.write("slow-python", "\n".join([*lines, ""]))
    python.chmod(0o755)
    place.write("train.py", train)
    place.write("show.py", "import sys\nprint('with', sys.argv[1:])\n")
    later = {"script": "show.py", "args": ["{steps.train.run_dir}"]}
    steps = {
        "train": {"script": "train.py", **train_keys},
        "export": {**later, "python": str(python)},
        "evaluate": later,
    }
    job = {"name": "demo", "launcher": "python", "python": sys.executable, "steps": steps}
    place.write("steps.yaml", json.dumps(job))
    return "steps.yaml"


def _client(place: Place, *words: str) -> subprocess.Popen[bytes]:
    """Start the steps; return the command once it has started the first."""
    client = place.popen("run", "--no-check", *words)
    wait_for(
        lambda: place.home.is_dir() and "demo-train-" in place.cli("ps").stdout, "a first step"
    )
    wait_for(lambda: _states(place)[0] not in ("pending", "lost"), "its begin")
    return client


def _read_until(client: subprocess.Popen[bytes], text: bytes) -> None:
    """Read what a command says up to a line with that text."""
    assert client.stderr is not None
    assert any(text in line for line in client.stderr)


def _kill(client: subprocess.Popen[bytes]) -> None:
    client.send_signal(signal.SIGKILL)
    client.wait()


def _states(place: Place, command: str = "show", code: int = 0) -> list[str]:
    return [step["state"] for step in place.json(command, "demo", code=code)["steps"]]


def _ids(shown: dict[str, Any]) -> list[str]:
    return [step["id"] for step in shown["steps"]]


def test_steps_that_a_killed_start_has_left_out_are_named_and_rerun_starts_them(
    place: Place,
) -> None:
    client = _client(place, _steps(place, WAITS))
    shown = place.json("show", "demo")
    assert [step["step"] for step in shown["steps"]] == NAMES
    assert [step["state"] for step in shown["steps"]] == ["running", "pending", "pending"]
    assert shown["steps"][1]["waits_for"] == "its start"
    refused = place.cli("rerun", "demo", code=3).stderr
    assert "another command starts the steps of" in refused
    _kill(client)
    text = place.cli("show", shown["group"])
    assert text.stdout.count("it never started") == 2
    assert f"never started: export, evaluate; to start: safelaunch rerun {shown['group']}" in (
        text.stderr
    )
    single = place.cli("logs", shown["steps"][1]["id"], code=2).stderr
    assert f"is a step without a run\nhint: safelaunch show {shown['group']}" in single
    rows = place.json("ps")["runs"]
    assert [row["id"] for row in rows] == _ids(shown)
    assert [(row["step"], row["state"]) for row in rows] == list(
        zip(NAMES, ["running", "lost", "lost"], strict=True)
    )
    assert place.cli("ps").stdout.count("never started") == 2
    place.write("answer", "")
    again = place.json("rerun", "demo")
    assert (again["group"], _ids(again)) == (shown["group"], _ids(shown))
    assert [step["is_new"] for step in again["steps"]] == [False, True, True]
    place.write("go", "")
    assert _states(place, "wait") == ["succeeded"] * 3
    assert list(place.home.glob("groups/*")) == []
    run_dir = place.json("show", _ids(shown)[0])["run_dir"]
    assert place.cli("logs", "demo").stdout.count(f"with ['{run_dir}']") == 2


def test_a_step_whose_start_was_cut_off_half_way_is_started_again_by_rerun(place: Place) -> None:
    for name in ("answer", "hold"):
        place.write(name, "")
    client = _client(place, _steps(place, WAITS))
    pid = wait_for(
        lambda: (place.project / "pid").exists() and (place.project / "pid").read_text().strip(),
        "a supervisor that is about to begin",
    )
    _kill(client)
    os.kill(int(pid), signal.SIGKILL)
    wait_for(lambda: _states(place) == ["running", "lost", "lost"], "a second step that is lost")
    shown = place.json("show", "demo")
    (place.project / "hold").unlink()
    again = place.json("rerun", "demo")
    assert (again["group"], _ids(again)) == (shown["group"], _ids(shown))
    assert [step["is_new"] for step in again["steps"]] == [False, True, True]
    place.write("go", "")
    assert _states(place, "wait") == ["succeeded"] * 3


def test_after_a_step_of_a_killed_start_was_stopped_rerun_starts_all_anew(place: Place) -> None:
    _kill(_client(place, _steps(place, WAITS)))
    first = place.json("show", "demo")
    assert _states(place, "stop") == ["stopped"] * 3
    assert _states(place, "wait", 1) == ["stopped"] * 3
    place.write("answer", "")
    place.write("go", "")
    again = place.json("rerun", "demo")
    assert again["group"] != first["group"]
    assert [step["step"] for step in again["steps"]] == NAMES
    assert _states(place, "wait") == ["succeeded"] * 3


def test_events_of_a_group_go_on_with_the_steps_that_are_started_later(place: Place) -> None:
    client = _client(place, _steps(place))
    follow = place.popen("events", "demo", "--follow", "--json")
    assert follow.stdout is not None
    first = json.loads(follow.stdout.readline())
    assert first["step_name"] == "train"
    place.write("answer", "")
    lines = [line for line in map(json.loads, follow.stdout) if line["event"] == "end"]
    ends = [(line["step_name"], line["state"]) for line in lines]
    assert ends == [(name, "succeeded") for name in NAMES]
    assert (follow.wait(DEADLINE), client.wait(DEADLINE)) == (0, 0)


def test_a_key_starts_a_group_once_and_completes_one_that_was_cut_off(place: Place) -> None:
    words = (_steps(place), "--id", "ci-1")
    _kill(_client(place, *words))
    shown = place.json("show", "demo")
    place.write("answer", "")
    completed = place.json("run", "--no-check", *words)
    assert (completed["group"], _ids(completed)) == (shown["group"], _ids(shown))
    assert completed["is_new"] is False
    assert _states(place, "wait") == ["succeeded"] * 3
    again = place.json("run", "--no-check", *words)
    assert (again["group"], again["is_new"]) == (shown["group"], False)
    assert [(step["state"], step["is_new"]) for step in again["steps"]] == [
        ("succeeded", False)
    ] * 3
    assert "was started with this key before" in place.cli("run", "--no-check", *words).stderr
    assert len(place.json("ps")["runs"]) == 3
    other = place.cli("run", *words, "--set", "steps.train.args.lr=2", code=3).stderr
    assert f"the key `ci-1` has started {shown['group']} with another plan: train." in other
    single = place.cli("run", place.job("print('x')"), "--id", "ci-1", code=3).stderr
    assert f"has started {shown['group']}, a file with steps" in single


def test_a_start_of_steps_that_failed_does_not_use_up_its_key(place: Place) -> None:
    place.write("answer", "")
    job = _steps(place, env_from=["ABSENT_TOKEN"])
    place.cli("run", "--no-check", job, "--id", "ci-1", code=2)
    assert list(place.home.glob("groups/*")) == []
    shown = place.json("run", "--no-check", _steps(place), "--id", "ci-1")
    assert shown["is_new"]
    assert _states(place, "wait") == ["succeeded"] * 3


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_steps_in_the_foreground_end_with_the_command(
    place: Place, signum: signal.Signals, code: int
) -> None:
    place.write("answer", "")
    client = _client(place, _steps(place, WAITS), "--foreground")
    _read_until(client, b"in the foreground")
    client.send_signal(signum)
    assert client.wait(DEADLINE) == code
    ends = _states(place)
    assert ends[0] == "stopped"
    assert set(ends[1:]) <= {"stopped", "failed"}
    assert all(step["attempts"] == [] for step in place.json("show", "demo")["steps"][1:])


def test_steps_in_the_foreground_and_steps_that_are_followed_run_one_after_another(
    place: Place,
) -> None:
    place.write("answer", "")
    job = _steps(place)
    for option in ("--foreground", "--follow"):
        done = place.cli("run", "--no-check", job, option)
        assert [line.split()[2] for line in done.stderr.splitlines() if "--- step" in line] == NAMES
        assert done.stdout.count("with ['") == 2
        assert _states(place) == ["succeeded"] * 3
    assert "cannot be printed together" in place.cli("run", job, "-f", "--json", code=2).stderr
    place.write("train.py", "raise SystemExit(3)")
    assert "exit code 3" in place.cli("run", "--no-check", job, "--foreground", code=1).stderr


def test_ctrl_c_leaves_the_steps_running_that_are_followed(place: Place) -> None:
    place.write("answer", "")
    client = _client(place, _steps(place, WAITS), "--follow")
    _read_until(client, b"--- step train")
    client.send_signal(signal.SIGINT)
    assert client.wait(DEADLINE) == 130
    group = place.json("show", "demo")["group"]
    assert client.stderr is not None
    assert f"{group} keeps running" in client.stderr.read().decode()
    place.write("go", "")
    assert _states(place, "wait") == ["succeeded"] * 3


RESUMES = """
import pathlib, sys
pathlib.Path("out/step-1").mkdir(parents=True, exist_ok=True)
pathlib.Path("out/step-1/metrics.json").write_text("{}")
print("trains with", sys.argv[1:])
sys.exit(0 if pathlib.Path("go").exists() else 3)
"""


def test_a_rerun_resumes_the_steps_that_say_how(place: Place) -> None:
    place.write("answer", "")
    recovery = {"checkpoint": "out/step-*", "resume_args": {"resume": "{checkpoint}"}}
    job = _steps(place, RESUMES, args={"lr": 1}, recovery=recovery)
    refused = place.cli("run", job, "--resume", code=2).stderr
    assert "safelaunch rerun GROUP --resume" in refused
    place.json("run", "--no-check", job)
    assert _states(place, "wait", 1) == ["failed"] * 3
    place.write("go", "")
    again = place.cli("rerun", "demo", "--resume")
    assert "step export starts from the beginning" in again.stderr
    assert _states(place, "wait") == ["succeeded"] * 3
    log = place.cli("logs", "demo").stdout
    assert f"trains with ['--lr', '1', '--resume', '{place.project}/out/step-1']" in log
