"""Runs on a real Ray: submitted, followed, stopped from both sides, and their true ends."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd
from support.workspace import wait_for

from safelaunch.runtime import processes
from safelaunch.runtime.engines.ray import submit as interface

if TYPE_CHECKING:
    from support.ray import RayCluster
    from support.ssh.sshd import Sshd
    from support.workspace import Place

pytestmark = pytest.mark.ray

WHO = """
import os
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"])
print("GPUs", os.environ.get("CUDA_VISIBLE_DEVICES"), "threads", os.environ["OMP_NUM_THREADS"])
print("Ray", [name for name in os.environ if name.startswith("RAY_")])
"""
FAIL = """
import os, time
if os.environ["RANK"] == "1":
    raise KeyError("label")
time.sleep(600)
"""
FOREVER = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


def job(place: Place, ray: RayCluster, program: str, nodes: int = 2, **keys: Any) -> str:
    """Write a job with one rank on each of some nodes."""
    block = {"address": ray.address, "cpus": 1, **keys.pop("block", {})}
    return place.ranks(program, 1, nodes=nodes, ray=block, **{"profile": "cpu", **keys})


def submit(place: Place, name: str, *words: str) -> str:
    """Submit a job and return its run's id."""
    return str(place.json("run", "--on", "ray", name, *words)["id"])


def wait_until_up(place: Place, run: str, nodes: int = 2) -> None:
    """Wait until the ranks of all nodes run."""
    for node in range(nodes):
        path = place.home / "runs" / run / f"node-{node}/logs/attempt-1/combined.log"
        wait_for(lambda path=path: path.exists() and "up" in path.read_text(), f"node {node}")  # type: ignore[misc]


def state(ray: RayCluster, run: str) -> str:
    """Return the state of a run's job, once Ray has ended it."""

    def ended() -> str | None:
        word = str(ray.job(run)["status"])
        return None if word in ("RUNNING", "PENDING") else word

    return str(wait_for(ended, f"end of the job of {run}"))


def test_two_nodes_meet_with_what_ray_gives_them_and_are_submitted_once(
    place: Place, ray: RayCluster
) -> None:
    name = job(place, ray, WHO, gpus=1, profile=None, block={"cpus": 2})
    screen = place.cli("run", "--on", "ray", "--follow", name)
    lines = {line.partition("| ")[2] for line in screen.stdout.splitlines()}
    assert {"[0] rank 0 of 2 127.0.0.1", "[1] rank 1 of 2 127.0.0.1"} <= lines
    assert {"[0] GPUs 0 threads 2", "[0] Ray []"} <= lines
    run = str(place.json("show")["id"])
    assert state(ray, run) == "SUCCEEDED"
    request = {
        "cluster": ray.address,
        "script": ["", (place.home / "runs" / run / "ray-job.json").read_text()],
    }
    assert interface.submit(request, {}) == (run, ray.address)
    assert [entry["submission_id"] for entry in ray.ask("/api/jobs/")].count(run) == 1


def test_a_failed_rank_is_named_with_its_node_and_ray_has_the_job_as_failed(
    place: Place, ray: RayCluster
) -> None:
    run = submit(place, job(place, ray, FAIL))
    place.cli("wait", run, code=1)
    shown = place.json("show", run)
    failure = shown["failure"]
    assert (failure["rank"], failure["what"]) == (1, "KeyError: 'label'")
    assert failure["host"] == shown["nodes"][1]["host"]
    assert failure["host"] in ("127.0.0.2", "127.0.0.3")
    assert state(ray, run) == "FAILED"


def test_a_stop_ends_all_nodes_and_the_job_and_leaves_no_secret(
    place: Place, ray: RayCluster
) -> None:
    place.env["API_KEY"] = "s3cr3t-of-the-test"
    run = submit(place, job(place, ray, FOREVER, env_from=["API_KEY"]))
    wait_until_up(place, run)
    shown = json.dumps([ray.job(run), ray.ask(f"/api/jobs/{run}/logs")])
    place.cli("stop", "--grace", "2", run)
    nodes = [node["state"] for node in place.json("show", run)["nodes"]]
    files = [path for path in (place.home / "runs" / run).rglob("*") if path.is_file()]
    assert nodes == ["stopped", "stopped"]
    assert state(ray, run) in ("STOPPED", "FAILED")  # FAILED: its driver was faster, with 143
    assert processes.marked(run) == {}
    assert "s3cr3t" not in shown
    assert not [path for path in files if b"s3cr3t" in path.read_bytes()]


def test_a_job_that_is_stopped_in_ray_leaves_nothing(place: Place, ray: RayCluster) -> None:
    run = submit(place, job(place, ray, FOREVER))
    wait_until_up(place, run)
    ray.ask(f"/api/jobs/{run}/stop", "POST")
    place.cli("wait", run, code=1)
    wait_for(lambda: processes.marked(run) == {}, "end of all processes")
    status = wait_for(
        lambda: "in Ray" in str((s := place.json("show", run)).get("reason")) and s, "Ray's word"
    )
    assert [node["state"] for node in status["nodes"]] == ["stopped", "stopped"]


def test_a_job_without_a_place_says_what_is_free(place: Place, ray: RayCluster) -> None:
    name = job(place, ray, WHO, 3, block={"placement_timeout": "3s"})
    begun_at = time.monotonic()
    run = submit(place, name)
    place.cli("wait", run, code=1)
    assert time.monotonic() - begun_at < 30 + 3  # a busy machine starts a driver in 10 s
    failure = place.json("show", run)["failure"]
    assert failure["class"] == "scheduler"
    words = "no place within 3 s for 3 x (CPU 1), STRICT_SPREAD; free on 2 nodes: "
    assert words in failure["what"]
    assert "127.0.0.3 CPU 4 of 4" in failure["what"]
    assert words in place.cli("logs", run).stdout


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_a_job_goes_to_a_ray_over_ssh_and_is_stopped_while_its_driver_waits(
    place: Place, ray: RayCluster, server: Sshd
) -> None:
    place.ssh_config(server.ssh_config("head1"))
    block = {"address": ray.address, "cpus": 1}
    place.home.mkdir(parents=True, exist_ok=True)
    hosts = {"hosts": {"lab": {"ssh": "head1", "ray": block}}}
    (place.home / "hosts.yaml").write_text(json.dumps(hosts))
    name = place.ranks(FOREVER, 1, nodes=3, profile="cpu", python=None)
    checked = place.cli("check", "--host", "lab", "--all", name, code=3).stdout
    assert "2 of 2 machines have CPU 1" in " ".join(checked.split())
    words = ("--set", "ray.placement_timeout=10m")
    run = str(place.json("remote", "--host", "lab", name, *words)["id"])
    wait_for(lambda: ray.job(run)["status"] == "RUNNING", "driver")
    place.cli("stop", run)
    shown = place.json("show", run)
    assert (shown["state"], shown["reason"]) == ("stopped", "cancelled before it started")
    assert state(ray, run) in ("STOPPED", "FAILED")


def test_a_ray_that_goes_away_is_no_end(place: Place, ray: RayCluster) -> None:
    run = submit(place, job(place, ray, WHO, 3, block={"placement_timeout": "10m"}))
    path = place.node(run) / "engine.json"
    engine = json.loads(path.read_text())
    path.write_text(json.dumps({**engine, "cluster": "http://127.0.0.1:9"}))
    shown = place.json("show", run)
    assert (shown["state"], "Connection refused" in shown["reason"]) == ("unknown", True)
    path.write_text(json.dumps(engine))
    place.cli("stop", run)
    assert place.json("show", run)["state"] == "stopped"
