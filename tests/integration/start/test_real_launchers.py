"""The real launchers over gloo: few, because importing torch takes seconds."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from support.workspace import Place

pytestmark = pytest.mark.train

# that torchrun's ranks train is shown by the first run of the README
WAIT = "import os, time\nprint(os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)\n"


def test_torchrun_stops_without_a_trace(place: Place) -> None:
    job = place.job(WAIT + "time.sleep(600)", launcher="torchrun", processes=2, profile="cpu")
    run = place.start(job)
    for rank in (0, 1):
        place.wait_for_text(run, f"{rank} of 2", f"rank-{rank}.log")
    assert set(place.json("show", run)["pids"]["ranks"]) == {"0", "1"}
    assert place.json("stop", run)["state"] == "stopped"
    assert processes.marked(run) == {}


def test_accelerate_trains_two_processes(place: Place) -> None:
    program = (
        "import torch\nfrom accelerate import Accelerator\na = Accelerator()\n"
        "t = a.reduce(torch.tensor([a.process_index + 1.0]))\n"
        "print('rank', a.process_index, 'of', a.num_processes, 'sum', t.item())\n"
        "a.end_training()"
    )
    run = place.start(place.job(program, launcher="accelerate", processes=2, profile="cpu"))
    assert place.ended(run)["state"] == "succeeded"
    for rank in (0, 1):
        assert (place.logs(run) / f"rank-{rank}.log").read_text() == f"rank {rank} of 2 sum 3.0\n"
    record = json.loads((place.node(run) / "record.json").read_text())
    assert {"torch", "accelerate"} <= set(record["packages"])


def test_ranks_find_the_store_of_an_agent_that_is_not_there(place: Place) -> None:
    program = (
        "import os, torch, torch.distributed as dist\n"
        "where = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
        "store = dist.TCPStore(*where, is_master=False)\n"
        "total = store.add('ranks', 1)\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(t := torch.ones(1))\n"
        "print('sum', t.item(), store.add('ranks', 0))\n"
        "dist.destroy_process_group()\n"
    )
    job = place.direct(program, profile="cpu", env={"TORCHELASTIC_USE_AGENT_STORE": "True"})
    run = place.start(job)
    assert place.ended(run)["state"] == "succeeded"
    assert " --store " in (place.node(run) / "launch.sh").read_text()
    for rank in (0, 1):
        assert (place.logs(run) / f"rank-{rank}.log").read_text() == "sum 2.0 2\n"
    assert processes.marked(run) == {}


def test_ranks_that_train_alone_are_not_passed_over(place: Place) -> None:
    """The job's own config says NO: accelerate starts one process in spite of --num_processes."""
    place.write("acc.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\n")
    job = place.job(
        "print('alone')",
        launcher="accelerate",
        processes=2,
        profile="cpu",
        launcher_args={"config_file": "acc.yaml"},
    )
    status = place.ended(place.start(job))
    assert status["warning"] == "0 of 2 planned ranks were seen: did a process train alone?"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_two_nodes_that_are_started_by_hand_train_together(place: Place) -> None:
    program = (
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "t = torch.tensor([dist.get_rank() + 1.0])\ndist.all_reduce(t)\n"
        "print('rank', dist.get_rank(), 'of', dist.get_world_size(), 'sum', t.item())\n"
    )
    job = place.job(
        program,
        launcher="torchrun",
        processes=1,
        nodes=2,
        profile="cpu",
        launcher_args={"master_addr": "127.0.0.1", "master_port": _free_port()},
    )
    runs = [place.start(job, "--set", f"node_rank={rank}") for rank in (0, 1)]
    for rank, run in enumerate(runs):
        assert place.ended(run)["state"] == "succeeded"
        log = place.logs(run) / f"rank-{rank}.log"
        assert log.read_text() == f"rank {rank} of 2 sum 3.0\n"
