"""`--id KEY` starts once, here and on a host."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from support.ssh import sshd
from support.ssh.sshd import Sshd
from support.workspace import DEADLINE, wait_for

if TYPE_CHECKING:
    from support.workspace import Place

WAITS = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n"


def test_starts_at_once_with_one_key_are_one_run(place: Place) -> None:
    words = ("run", "--no-check", place.job(WAITS), "--id", "ci-1", "--json")
    outputs = [p.communicate(timeout=DEADLINE)[0] for p in [place.popen(*words) for _ in range(3)]]
    shown = [json.loads(output) for output in outputs]
    assert sorted(run["is_new"] for run in shown) == [False, False, True]
    assert len({run["id"] for run in shown}) == len(place.json("ps")["runs"]) == 1
    assert len({frozenset(run) - {"state"} for run in shown}) == 1
    place.write("go", "")


def test_another_plan_with_the_key_is_refused_and_starts_nothing(place: Place) -> None:
    job = place.job("print('x')", args={"lr": 1})
    run = place.start(job, "--id", "ci-1")
    refused = place.cli("run", job, "--set", "args.lr=2", "--id", "ci-1", "--json", code=3)
    message = json.loads(refused.stdout)["error"]["message"]
    assert run in message
    assert "1 -> 2" in message
    assert len(place.json("ps")["runs"]) == 1


def test_a_start_that_failed_does_not_use_up_its_key(place: Place) -> None:
    job = place.job("print('x')", python=str(place.root / "none"))
    place.cli("run", "--no-check", job, "--id", "ci-1", code=2)
    assert place.json("run", "--no-check", place.job("print('x')"), "--id", "ci-1")["is_new"]


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_two_clients_of_a_user_with_one_key_start_one_run_on_a_host(place: Place) -> None:
    with Sshd() as server:
        place.ssh_config(server.ssh_config("box"))
        job = place.job("print('x')")
        words = ("remote", "--host", "box", "--no-check", job, "--id", "k")
        first = place.json(*words)
        laptop = {**place.env, "SAFELAUNCH_HOME": str(place.root / "laptop")}
        second = place.json(*words, env=laptop)
        assert (second["id"], second["is_new"], second["host"]) == (first["id"], False, "box")
        assert place.json("wait", first["id"], env=laptop)["state"] == "succeeded"
        place.job("print('x')", name="other")
        other = place.cli("remote", "--host", "box", "other.yaml", "--id", "k", env=laptop, code=3)
        assert f"has started {first['id']}" in other.stderr
        assert len(place.json("ps", "--host", "box")["runs"]) == 1


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_two_clients_that_start_at_once_with_one_key_start_one_run_on_a_host(place: Place) -> None:
    with Sshd() as server:
        place.ssh_config(server.ssh_config("box"))
        job = place.job("print('x')")
        words = ("remote", "--host", "box", "--no-check", job, "--id", "k", "--json")
        homes = [str(place.root / name) for name in ("home", "laptop", "desktop")]
        clients = [
            place.popen(*words, env={**place.env, "SAFELAUNCH_HOME": home}) for home in homes
        ]
        answers = [json.loads(client.communicate(timeout=DEADLINE)[0]) for client in clients]
        runs = place.json("ps", "--host", "box")["runs"]
        assert len(runs) == 1
        for answer in answers:
            message = answer.get("error", {}).get("message", "")
            assert answer.get("id") == runs[0]["id"] or runs[0]["id"] in message


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_a_client_that_was_killed_finds_the_run_on_its_host_again(place: Place) -> None:
    with Sshd() as server:
        place.ssh_config(server.ssh_config("box"))
        words = ("remote", "--host", "box", "--no-check", place.job("print('x')"), "--id", "k")
        first = place.popen(*words, "--follow")
        wait_for(lambda: list(place.home.glob("runs/job-*/node-0/plan.json")), "a run on the host")
        first.send_signal(signal.SIGKILL)
        first.wait()
        again = place.json(*words)
        assert (again["is_new"], again["host"]) == (False, "box")
        assert len(place.json("ps", "--host", "box")["runs"]) == 1
