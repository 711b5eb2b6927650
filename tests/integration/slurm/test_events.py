"""`safelaunch events` of runs whose machines Slurm chooses: what happened, once and in order."""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import DEADLINE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from support.slurm import Slurm
    from support.workspace import Place

BLOCK = {"cpus_per_task": 1, "mem": "300MiB", "time": "10m"}
# a program whose rank 0 makes a step for each file that appears
STEPS = """
import os, pathlib, sys, time
begin = int(sys.argv[2].rsplit("-", 1)[1]) if len(sys.argv) > 1 else 0
for step in range(begin + 1, 4):
    if os.environ["RANK"] == "0":
        folder = pathlib.Path(f"out/checkpoint-{step}")
        folder.mkdir(parents=True)
        (folder / "model.pt").write_bytes(b"weights")
        print(f"step {step}/3 loss 0.{step}", flush=True)
    while not pathlib.Path(f"go-{step}").exists(): time.sleep(0.05)
"""
RESUME = {"checkpoint": "out/checkpoint-*", "resume_args": ["--resume", "{checkpoint}"]}
FAST = ("events", "--follow", "--json", "--interval", "0.2")


@pytest.fixture
def cluster(place: Place, slurm: Slurm) -> Iterator[Slurm]:
    """Yield the cluster, of which the place is a login node, with an empty queue."""
    place.env |= {"SLURM_CONF": str(slurm.config), "PATH": slurm.environ["PATH"]}
    slurm.end_jobs()
    yield slurm
    slurm.end_jobs()


def submit(place: Place, nodes: int = 2, *words: str, **keys: Any) -> str:
    """Submit a job with one rank on each of some nodes; return its run's id."""
    name = place.ranks(STEPS, 1, nodes=nodes, slurm=BLOCK, profile="cpu", **keys)
    return str(place.json("run", "--on", "slurm", "--no-check", name, *words)["id"])


def number(place: Place, run: str) -> str:
    """Return what Slurm calls the job of a run."""
    return str(json.loads((place.node(run) / "engine.json").read_text())["job"])


def lines(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Yield what a command prints, for a limited time."""
    assert process.stdout is not None
    limit = threading.Timer(DEADLINE, process.kill)
    limit.start()
    try:
        yield from map(json.loads, process.stdout)
    finally:
        limit.cancel()


def until(stream: Iterator[dict[str, Any]], event: str, **values: object) -> list[dict[str, Any]]:
    """Return the lines up to one of that kind."""
    received = []
    for line in stream:
        received.append(line)
        if line["event"] == event and values.items() <= line.items():
            return received
    raise AssertionError(received)


def brief(received: list[dict[str, Any]]) -> list[tuple[str, object]]:
    shown = [(line["event"], line.get("step", line.get("state"))) for line in received]
    return [pair for pair in shown if pair[0] not in ("notice", "host")]


def test_a_run_on_two_nodes_that_slurm_queues_again_is_told_to_its_end_over_a_new_client(
    place: Place, cluster: Slurm
) -> None:
    run = submit(place, recovery=RESUME)
    first = place.popen(*FAST, run)
    stream = lines(first)
    before = until(stream, "progress", step=1)
    place.write("go-1", "")
    before += until(stream, "progress", step=2)
    cluster.run("scontrol", "requeue", number(place, run))
    before += until(stream, "state", state="pending")
    first.send_signal(signal.SIGKILL)
    first.wait()
    cluster.start_again(number(place, run))
    place.write("go-2", "")
    place.write("go-3", "")
    place.cli("wait", run)
    second = place.popen(*FAST, run, "--since", before[-1]["cursor"])
    received = before + until(lines(second), "end")
    assert second.wait(DEADLINE) == 0
    assert [pair for pair in brief(received) if pair[0] in ("attempt", "end")] == [
        *[("attempt", "running"), ("attempt", "stopped")],
        *[("attempt", "running"), ("attempt", "succeeded"), ("end", "succeeded")],
    ]
    states = [line for line in received if line["event"] == "state"]
    shown = [
        line["state"] for line in states if (line["state"], line["before"]) != ("pending", None)
    ]
    assert shown == ["running", "pending", "running"]
    begins = [line["time"] for line in received if line["event"] == "attempt"][::2]
    assert states[-1]["time"] == begins[1]
    assert begins[0] < states[-2]["time"] < begins[1]
    steps = [line["step"] for line in received if line["event"] == "progress"]
    assert (steps[:2], steps[-1]) == ([1, 2], 3)
    assert len({line["cursor"] for line in received}) == len(received)


def test_a_job_that_is_cancelled_before_it_begins_ends_without_an_attempt(
    place: Place, cluster: Slurm
) -> None:
    run = submit(place, 1, "--set", "slurm.partition=down")
    follow = place.popen(*FAST, run)
    stream = lines(follow)
    [first] = until(stream, "state", state="pending")
    cluster.run("scancel", number(place, run))
    rest = until(stream, "end")
    assert follow.wait(DEADLINE) == 0
    assert [line["event"] for line in rest if line["event"] not in ("failure", "notice")] == ["end"]
    assert (rest[-1]["state"], rest[-1]["before"]) == ("stopped", "pending")
    assert first["time"] < rest[-1]["time"]


def test_the_steps_of_a_file_are_told_in_the_order_in_which_slurm_begins_them(
    place: Place, cluster: Slurm
) -> None:
    place.write("show.py", "import sys\nprint('with', sys.argv[1:])\n")
    steps = {
        "train": {"script": "show.py"},
        "export": {"script": "show.py", "args": ["{steps.train.run_dir}"]},
    }
    job = {"name": "demo", "launcher": "python", "python": sys.executable, "profile": "cpu"}
    place.write("steps.yaml", json.dumps({**job, "slurm": BLOCK, "steps": steps}))
    group = place.json("run", "--on", "slurm", "--no-check", "steps.yaml")["group"]
    received = list(lines(place.popen(*FAST, group)))
    kinds = [(n["step_name"], n["event"], n.get("state")) for n in received]
    assert [kind for kind in kinds if kind[1] in ("attempt", "end")] == [
        (name, *event)
        for name in ("train", "export")
        for event in (("attempt", "running"), ("attempt", "succeeded"), ("end", "succeeded"))
    ]
    whole = [json.loads(n) for n in place.cli("events", group, "--json").stdout.splitlines()]
    assert [line["time"] for line in whole] == sorted(line["time"] for line in whole)
    cluster.await_empty_queue()
