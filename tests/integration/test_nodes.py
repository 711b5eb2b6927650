"""Jobs on several hosts: real servers in network namespaces, real torchrun and accelerate, gloo."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import lan
import pairs
import pytest
from lan import Lan
from pairs import BOTH
from place import Place, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WHY_NOT = lan.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
# what a rank of gloo does, without the time that torch takes to load
MEET = """
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
while True:
    try:
        if rank == 0:
            peer, _ = socket.create_server(place).accept()
        else:
            peer = socket.create_connection(place)
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
def together():
    try:
        peer.sendall(b"x")
        if peer.recv(1):
            return size
    except OSError:
        pass
    raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by"
                       " peer [%s]:%d" % place)
"""
TRAIN = MEET + "print(f'rank {rank} of {size}, sum {together()}', flush=True)\n"
FOREVER = MEET + "print('up', rank, flush=True)\nwhile True:\n    together(); time.sleep(0.05)\n"
BAD_BATCH = (
    MEET
    + """
together()
def load():
    raise ValueError("bad batch 17")
if rank == 1:
    load()
together()
"""
)


@pytest.fixture(scope="module")
def net() -> Iterator[Lan]:
    """Yield two machines on one network."""
    with Lan(2, user="root") as found:
        yield found


@pytest.fixture
def far(place: Place, net: Lan) -> Place:
    """Return a place that knows them as gpu1 and gpu2."""
    pairs.know(place, net)
    return place


def job(place: Place, program: str, **keys: object) -> str:
    keys = {"nodes": 2, "profile": "cpu", **keys}
    return place.ranks(program, 1, "job", **keys)


def start(place: Place, file: str) -> str:
    return str(place.json("remote", *BOTH, file, timeout=60)["id"])


def await_both(place: Place, run: str) -> None:
    """Wait until the job has met over both hosts."""
    wait_for(lambda: "up 1" in place.cli("logs", run, code=None).stdout, "second rank", 60)


def nodes(place: Place, run: str) -> list[str]:
    return [node["state"] for node in place.json("show", run)["nodes"]]


def stops(place: Place, run: str) -> dict[str, Any]:
    """Wait until nothing of a run is left, and return how it ended."""
    place.cli("wait", run, code=1, timeout=60)
    return place.json("show", run)


def said(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.train
def test_digits_trains_over_two_hosts(tmp_path: Path) -> None:
    case = pairs.Case("accelerate", dies=False)  # `scripts/bench matrix` has the others
    assert pairs.run_case(case, str(tmp_path)) is None


def test_two_hosts_meet_over_the_card_between_them(far: Place) -> None:
    done = far.cli("remote", *BOTH, "--follow", job(far, TRAIN), timeout=60)
    assert "gpu1 | [0] rank 0 of 2, sum 2" in done.stdout
    assert "gpu2 | [1] rank 1 of 2, sum 2" in done.stdout
    plans = [
        json.loads(next(far.home.glob(f"runs/*/node-{node}/plan.json")).read_text())
        for node in (0, 1)
    ]
    for rank, plan in enumerate(plans):
        node = plan["nodes"][rank]
        assert node["env"]["GLOO_SOCKET_IFNAME"]["value"] == lan.CARD
        assert node["env"]["NCCL_SOCKET_IFNAME"]["value"] == f"={lan.CARD}"


def test_the_cause_is_told_with_its_host_and_the_other_is_stopped(far: Place) -> None:
    done = far.cli("remote", *BOTH, "--follow", job(far, BAD_BATCH), code=1, timeout=60)
    text = said(done.stderr)
    assert "rank 1 on gpu2 failed" in text
    assert "ValueError: bad batch 17" in text
    run = far.json("show")
    assert run["state"] == "failed"
    assert "running" not in nodes(far, run["id"])
    assert run["failure"]["node"] == 1


def test_a_node_that_is_killed_stops_the_others(far: Place, net: Lan) -> None:
    run = start(far, job(far, FOREVER))
    await_both(far, run)
    net.hosts[1].stop()  # with all that runs there
    try:
        found = stops(far, run)
        told = far.cli("show", run).stdout
    finally:
        net.hosts[1].restart()
    assert found["state"] == "failed"
    assert "failure gpu2 does not answer" in said(told)
    assert "then rank 0" in said(told)


def test_a_stop_ends_all_nodes(far: Place) -> None:
    run = start(far, job(far, FOREVER))
    await_both(far, run)
    far.cli("stop", run)
    assert nodes(far, run) == ["stopped", "stopped"]


def test_a_node_that_is_stopped_there_stops_the_others(far: Place, net: Lan) -> None:
    run = start(far, job(far, FOREVER))
    await_both(far, run)
    status = json.loads((far.home / "runs" / run / "node-1" / "status.json").read_text())
    net.hosts[1].run(f"kill -TERM {status['supervisor']['pid']}")
    found = stops(far, run)
    assert found["state"] == "stopped"
    assert {node["host"]: node["state"] for node in found["nodes"]} == {
        "gpu1": "stopped",
        "gpu2": "stopped",
    }


def test_hosts_that_do_not_reach_each_other_start_nothing(far: Place, net: Lan) -> None:
    route = ("route", "add", "prohibit", f"{net.address(1)}/32")
    net.inside(2, "ip", *route)
    try:
        done = far.cli("remote", *BOTH, job(far, TRAIN), code=2)
    finally:
        net.inside(2, "ip", "route", "del", *route[2:])
    assert "no address of gpu1 is reached" in said(done.stderr)
    assert f"gpu2 -> {net.address(1)}" in said(done.stderr)
    assert far.json("ps", "--all")["runs"] == []


def test_all_or_nothing_is_started(far: Place, net: Lan) -> None:
    far.write("hosts.yaml", json.dumps({"hosts": {"gpu2": {"workdir": "/proc/none"}}}))
    words = ("remote", *BOTH, "--hosts", "hosts.yaml", "--no-sync")
    before = net.hosts[0].run("ls ~/.safelaunch/runs")
    done = far.cli(*words, job(far, TRAIN), code=None, timeout=60)
    assert "gpu2" in done.stderr
    assert net.hosts[0].run("ls ~/.safelaunch/runs") == before
    assert far.json("ps", "--all")["runs"] == []


def test_an_interface_that_the_hosts_file_names_must_be_there(far: Place) -> None:
    far.write("hosts.yaml", json.dumps({"hosts": {"gpu1": {"interface": "ib7"}}}))
    done = far.cli("remote", *BOTH, "--hosts", "hosts.yaml", job(far, TRAIN), code=2)
    assert "gpu1 has no interface `ib7`" in said(done.stderr)
    assert lan.CARD in done.stderr


def test_a_restart_restarts_all_nodes(far: Place) -> None:
    program = (
        MEET
        + """
print("attempt", os.environ["SAFELAUNCH_ATTEMPT"], "sum", together(), flush=True)
if rank == 1 and os.environ["SAFELAUNCH_ATTEMPT"] == "1":
    os.kill(os.getpid(), 9)
together()
"""
    )
    recovery = {"max_restarts": 1, "backoff": "1s", "no_progress": 3}
    file = job(far, program, recovery=recovery)
    done = far.cli("remote", *BOTH, "--follow", file, timeout=90)
    assert "gpu1 | [0] attempt 2 sum 2" in done.stdout
    assert "gpu2 | [1] attempt 2 sum 2" in done.stdout
    assert "succeeded, attempt 2" in said(done.stderr)


def test_nodes_that_train_alone_have_failed(far: Place) -> None:
    far.write("own.yaml", "{compute_environment: LOCAL_MACHINE, distributed_type: 'NO'}\n")
    own = {"config_file": "own.yaml"}
    shape = {"launcher": "accelerate", "processes": 1, "nodes": 2, "profile": "cpu"}
    file = far.job("print('alone')", "job", launcher_args=own, **shape)
    done = far.cli("remote", *BOTH, "--follow", file, code=1, timeout=60)
    assert "each node has trained alone" in said(done.stderr)


def test_one_file_system_is_synced_once(far: Place, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    entry = {"workdir": str(shared)}
    far.write("hosts.yaml", json.dumps({"hosts": {"gpu1": entry, "gpu2": entry}}))
    words = ("remote", *BOTH, "--hosts", "hosts.yaml", "--follow")
    done = far.cli(*words, job(far, TRAIN), timeout=60)
    assert "gpu1, gpu2" in done.stderr
    assert [path.name for path in shared.glob(".safelaunch-seen*")] == []


def test_a_rank_of_another_node_has_its_own_log(far: Place) -> None:
    file = job(far, TRAIN)
    far.cli("remote", *BOTH, "--follow", file, timeout=60)
    assert far.cli("logs", "--rank", "1").stdout.strip().splitlines()[-1] == "rank 1 of 2, sum 2"
    assert "rank 0" not in far.cli("logs", "--node", "1").stdout


def test_another_laptop_sees_both_nodes(far: Place, tmp_path: Path) -> None:
    far.cli("remote", *BOTH, "--follow", job(far, TRAIN), timeout=60)
    other = tmp_path / "other"
    environment = {**far.env, "SAFELAUNCH_HOME": str(other)}
    far.cli("ps", "--host", "gpu2", env=environment)
    assert "1 of 2 known here" in said(far.cli("show", env=environment).stdout)
    assert "rank 1 of 2" in far.cli("logs", env=environment).stdout
    far.cli("ps", "--host", "gpu1", env=environment)
    shown = far.cli("show", env=environment)
    assert "0 gpu1: succeeded" in said(shown.stdout)
    assert "1 gpu2: succeeded" in said(shown.stdout)
