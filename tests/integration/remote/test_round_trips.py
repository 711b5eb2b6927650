"""How often a command waits for its host, once it is logged in: on a far line that is its time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.ssh import round_trips, sshd
from support.ssh.sshd import Sshd
from support.workspace import wait_for

from safelaunch.remote import agent_bootstrap
from safelaunch.remote.agent_client import AgentError
from safelaunch.ssh.connection import connect
from safelaunch.sync.push import start_push

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workspace import Place

    from safelaunch.remote.agent_client import Agent
    from safelaunch.ssh.connection import Connection

pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))


def start_agent(connection: Connection) -> Agent:
    """Start an agent as every command does."""
    execute = partial(connection.exec, wait=False)
    return agent_bootstrap.start_agent("box", execute, agent_bootstrap.digest(), [])


def settle(project: Path) -> None:
    """Wait until files lie a clock's tick behind: only then their hashes are kept."""
    newest = max(path.lstat().st_ctime for path in project.rglob("*"))
    wait_for(lambda: time.time() > newest + 0.1, "tick of the clock")


def home_of(agent: Agent) -> str:
    return str(agent.ask_first("start.look").result()["home"])


def test_an_agent_that_is_there_answers_in_the_second_round_trip(connection: Connection) -> None:
    home_of(start_agent(connection))
    with round_trips.counted() as counted:
        agent = start_agent(connection)
        home_of(agent)
        assert counted.count == 2  # the first is for a channel
        home_of(agent)
        assert counted.count == 3


def test_what_nobody_else_may_see_is_one_round_trip_more(connection: Connection) -> None:
    home_of(start_agent(connection))
    with round_trips.counted() as counted:
        start_agent(connection).call("start.look")
        assert counted.count == 3


def test_the_files_of_the_agent_are_one_round_trip_more() -> None:
    with Sshd() as fresh, connect(fresh.target()) as connection, round_trips.counted() as counted:
        reply = start_agent(connection).ask_first("start.look")
        assert reply.result()["home"] == str(fresh.home())
        assert counted.count == 3


def test_what_is_asked_together_is_one_round_trip(connection: Connection, tmp_path: Path) -> None:
    project, cache = tmp_path / "project", str(tmp_path / "cache")
    project.mkdir()
    (project / "train.py").write_text("print(1)\n")
    settle(project)
    start_push(start_agent(connection), str(project), "~/work", cache=cache).finish()
    with round_trips.counted() as counted:
        agent = start_agent(connection)
        report = agent.ask_first("start.look")
        sync = start_push(agent, str(project), "~/work", cache=cache)
        home = report.result()["home"]
        assert sync.finish().target == f"{home}/work"
        assert counted.count == 2
        started = agent.ask("start.look")
        log = agent.ask("runs.runs")
        assert started.result()["home"] == home
        assert list(log.result()) == ["runs"]
        assert counted.count == 3


def test_answers_are_read_in_any_order(connection: Connection) -> None:
    agent = start_agent(connection)
    first, wrong, last = agent.ask("start.look"), agent.ask("start.no"), agent.ask("runs.runs")
    assert "runs" in last.result()
    with pytest.raises(AgentError, match="no"):
        wrong.result()
    assert first.result()["home"] == home_of(agent)


def test_data_that_cannot_be_made_leaves_the_agent_usable(connection: Connection) -> None:
    def data() -> Iterator[bytes]:
        yield b"half of it"
        raise ValueError("the disk is gone")

    agent = start_agent(connection)
    with pytest.raises(ValueError, match="the disk is gone"):
        agent.call("receive.receive", data=data(), path="weights.bin")
    assert home_of(agent)


def test_remote_waits_three_times_until_the_first_line(place: Place, server: Sshd) -> None:
    place.ssh_config(server.ssh_config("gpu1"))
    job = place.job("print('first line')\n", python=None)
    words = ["remote", "--host", "gpu1", "--follow", job]
    place.cli(*words)
    settle(place.project)
    place.cli(*words)
    count = place.root / "count"
    done = subprocess.run(
        [sys.executable, round_trips.__file__, str(count), *words],
        env=place.env, cwd=place.project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "first line\n"), done.stderr
    assert json.loads(count.read_text()) <= 3
