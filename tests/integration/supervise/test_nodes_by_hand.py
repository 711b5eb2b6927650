"""Nodes that are started by hand, each by a command of its own, are one run."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import network_namespaces
from support.ssh.network_namespaces import Lan
from support.workspace import wait_for

from safelaunch.runtime import processes
from safelaunch.runtime.records import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.workspace import Place

JOINED = "has joined"
# a rank that ends once a file is there, by its rank
RANK = """
import os, pathlib, time
rank = os.environ["RANK"]
print("up", rank, flush=True)
while not pathlib.Path("end-" + rank).exists():
    time.sleep(0.02)
if pathlib.Path("end-" + rank).read_text() == "fail":
    raise ValueError("bad batch 17")
"""
FAILS_ONCE = """
import os, pathlib, time
rank = os.environ["RANK"]
print("up", rank, flush=True)
while not pathlib.Path("both").exists():
    time.sleep(0.02)
flag = pathlib.Path("failed")
if rank == "1" and not flag.exists():
    flag.touch()
    raise ValueError("once")
while not flag.exists():
    time.sleep(0.02)
time.sleep(0.3)
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def job(place: Place, port: int, program: str = RANK, **keys: Any) -> str:
    keys = {"nodes": 2, "profile": "cpu", **keys}
    address, write = keys.pop("address", "127.0.0.1"), keys.pop("write", place.ranks)
    launcher_args = {"master_addr": address, "master_port": port}
    return str(write(program, 1, "job", launcher_args=launcher_args, **keys))


def started(place: Place, job: str, *words: str) -> list[str]:
    """Return the runs of both nodes, which have met, and whose ranks are running."""
    runs = [place.start(job, "--set", f"node_rank={rank}", *words) for rank in (0, 1)]
    for rank, run in enumerate(runs):
        place.wait_for_text(run, f"up {rank}")
        place.wait_for_text(run, JOINED)
    return runs


def test_a_failure_on_one_node_is_that_of_the_run_on_each(
    place: Place, port: int, ranks_job: Callable[..., str]
) -> None:
    first, second = started(place, job(place, port, write=ranks_job))
    place.write("end-1", "fail")
    for run in (first, second):
        assert place.ended(run)["state"] == "failed"
    shown = place.json("show", first)
    assert shown["failure"]["rank"] == 1
    assert shown["failure"]["what"] == "ValueError: bad batch 17"
    assert shown["failure"]["run"] == second
    assert [(n["node"], n["state"], n["run"]) for n in shown["nodes"]] == [
        (0, "stopped", first),
        (1, "failed", second),
    ]
    assert f"safelaunch logs {second} --rank 1" in place.cli("show", first).stdout


def test_a_stop_on_one_node_stops_the_others(place: Place, port: int) -> None:
    first, second = started(place, job(place, port))
    place.cli("stop", second)
    for run in (first, second):
        assert place.ended(run)["state"] == "stopped"
    assert "(node 1) was stopped" in place.status(first)["reason"]


def test_the_run_goes_on_until_the_last_node_has_ended(place: Place, port: int) -> None:
    first, second = started(place, job(place, port))
    place.write("end-0", "")
    wait_for(lambda: "node_end" in place.status(first), "end of node 0")
    status = place.status(first)
    assert status["state"] == "running"
    assert status["reason"].startswith("this node has ended (succeeded), not yet ")
    place.write("end-1", "")
    for run in (first, second):
        assert place.ended(run)["state"] == "succeeded"


def test_a_supervisor_that_waits_for_another_node_is_ended_by_stop(place: Place, port: int) -> None:
    first, second = started(place, job(place, port))
    place.write("end-0", "")
    wait_for(lambda: "node_end" in place.status(first), "end of node 0")
    place.cli("stop", first)
    assert place.ended(first)["state"] == "succeeded"
    assert place.status(second)["state"] == "running"


def test_the_end_of_a_node_is_known_though_its_supervisor_was_killed(
    place: Place, port: int
) -> None:
    first, second = started(place, job(place, port))
    place.write("end-0", "")
    wait_for(lambda: "node_end" in place.status(first), "end of node 0")
    supervisor = Status.from_json(place.status(first)).supervisor
    assert supervisor is not None
    processes.send(supervisor.pid, supervisor.start, 9)
    status = place.ended(first)
    assert status["state"] == "succeeded"
    assert status["reason"] == "the supervisor was gone before the other nodes had ended"
    assert place.status(second)["state"] == "running"


def test_nodes_restart_together(place: Place, port: int, ranks_job: Callable[..., str]) -> None:
    recovery = {
        "max_restarts": 2,
        "backoff": "0s",
        "classes": {"user-code-exception": "restart"},
    }
    runs = started(place, job(place, port, FAILS_ONCE, recovery=recovery, write=ranks_job))
    place.write("both", "")
    for run in runs:
        status = place.ended(run)
        assert status["state"] == "succeeded"
        assert len(status["attempts"]) == 2


def test_a_node_without_the_other_is_a_run_of_its_own(place: Place, port: int) -> None:
    place.write("end-0", "")
    run = place.start(job(place, port), "--set", "node_rank=0")
    status = place.ended(run)
    assert status["state"] == "succeeded"
    assert "nodes" not in status
    shown = " ".join(place.cli("show", run).stdout.split())  # without its line breaks
    assert "no other node that safelaunch started has joined" in shown


def test_nodes_with_different_secrets_stay_apart(place: Place, port: int) -> None:
    file = job(place, port)
    runs = []
    for rank in (0, 1):
        place.env["SAFELAUNCH_SECRET"] = f"secret {rank}"
        runs.append(place.start(file, "--set", f"node_rank={rank}"))
        place.wait_for_text(runs[-1], f"up {rank}")
    place.write("end-1", "fail")
    assert place.ended(runs[1])["state"] == "failed"
    assert place.status(runs[0])["state"] == "running"
    for run in runs:
        assert JOINED not in (place.logs(run) / "combined.log").read_text()
        for file_ in place.node(run).rglob("*"):
            assert not file_.is_file() or b"secret 1" not in file_.read_bytes(), file_


WHY_NOT = network_namespaces.why_not()


@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_nodes_on_two_machines_meet_by_a_name(place: Place, port: int) -> None:
    with Lan(2, user="root") as net:
        place.ssh_config(net.ssh_config())
        file = job(place, port, address="gpu1")
        words = ("remote", "--no-check", file)
        runs = [
            place.json(*words, "--host", f"gpu{rank + 1}", "--set", f"node_rank={rank}")["id"]
            for rank in (0, 1)
        ]
        for run in runs:

            def has_met(run: str = run) -> bool:
                return bool(place.json("show", run).get("nodes"))

            wait_for(has_met, f"the other node of {run}")
        place.cli("stop", runs[0])
        place.cli("wait", runs[1], code=1)
        shown = place.json("show", runs[1])
        assert (shown["state"], shown["stopped_by"]) == ("stopped", "node")
