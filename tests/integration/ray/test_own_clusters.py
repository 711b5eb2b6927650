"""Jobs with a Ray of their own: brought up before the program, taken down after it, on real Ray."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import ray as ray_support
from support import slurm as slurm_support
from support.faults.two_machines import BOTH
from support.ssh import network_namespaces
from support.ssh.network_namespaces import Lan
from support.workspace import wait_for

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workspace import Place

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(
        ray_support.program() is None, reason="no Ray here: scripts/ray installs it"
    ),
]
WHY_NOT = network_namespaces.why_not()
needs_network = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

LIMIT = 300.0  # seconds for a command: a busy machine takes 40 to start Ray
ACTORS = """
import os, ray, time
ray.init()
@ray.remote(num_gpus=1)
class Actor:
    def place(self):
        gpu = os.environ["CUDA_VISIBLE_DEVICES"]
        return ray.util.get_node_ip_address(), os.environ.get("WHO"), gpu
actors = [Actor.remote() for _ in range(int(ray.cluster_resources()["GPU"]))]
def places():
    return sorted(ray.get([actor.place.remote() for actor in actors]))
print("places", places(), flush=True)
"""
FOREVER = ACTORS + "while True:\n    places(); time.sleep(0.1)\n"
AT_FIRST = (
    ACTORS + "while os.environ['SAFELAUNCH_ATTEMPT'] == '1':\n    places(); time.sleep(0.1)\n"
)


def job(place: Place, program: str, **keys: Any) -> str:
    """Write a job with a Ray of its own, and two GPUs on each node that Ray only counts."""
    python = str(Path(str(ray_support.program())).parent / "python")
    own = {"launcher": "ray", "ray_cluster": True, "profile": "cpu", "python": python}
    return place.job(program, **{**own, "gpus": 2, "env": {"WHO": "plan"}, **keys})


def await_places(log: Path) -> None:
    wait_for(lambda: log.exists() and "places [" in log.read_text(), "answer of all actors", LIMIT)


def part_of_ray(run: str, name: str, address: str = "") -> int:
    """Return the pid of a process of a run's Ray, where there are several that of an address."""
    for pid in processes.marked(run):
        words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
        if Path(words.partition("\0")[0]).name == name and address in words:
            return pid
    raise AssertionError(f"no {name} in {run}")


def folders() -> set[str]:
    return {path.name for path in Path("/tmp").glob("slray-*")}


def test_a_program_gets_a_ray_with_the_gpus_of_its_job_and_none_is_left(place: Place) -> None:
    before = folders()
    place.cli("run", "--follow", job(place, ACTORS), timeout=LIMIT)
    run = str(place.json("show")["id"])
    output = place.cli("logs", run).stdout
    assert ", GPU 2" in output
    assert output.count("'plan', '0'") == output.count("'plan', '1'") == 1
    assert processes.marked(run) == {}
    assert folders() <= before


def test_a_raylet_that_is_killed_is_the_cause_and_a_restart_has_a_new_ray(place: Place) -> None:
    recovery = {"max_restarts": 1, "backoff": "1s"}
    run = str(place.json("run", job(place, AT_FIRST, recovery=recovery))["id"])
    await_places(place.node(run) / "logs/attempt-1/combined.log")
    raylet = part_of_ray(run, "raylet")
    os.kill(raylet, signal.SIGKILL)
    place.cli("wait", run, timeout=LIMIT)
    first, second = place.json("show", run)["attempts"]
    assert (first["class"], first["what"]) == (
        "ray-node-dead",
        f"Ray's raylet (pid {raylet}) was ended by SIGKILL",
    )
    assert second["state"] == "succeeded"
    assert (place.node(run) / "ray/attempt-1/raylet.out").exists()


def test_a_program_that_fails_is_the_cause_and_its_ray_ends(place: Place) -> None:
    run = str(place.json("run", job(place, ACTORS + "raise ValueError('bad batch 17')\n"))["id"])
    place.cli("wait", run, code=1, timeout=LIMIT)
    failure = place.json("show", run)["failure"]
    assert (failure["rank"], failure["what"]) == (0, "ValueError: bad batch 17")
    assert processes.marked(run) == {}


def test_a_stop_ends_program_and_ray_and_leaves_nothing(place: Place) -> None:
    before = folders()
    run = str(place.json("run", job(place, FOREVER))["id"])
    await_places(place.node(run) / "logs/attempt-1/combined.log")
    place.cli("stop", run)
    shown = place.json("show", run)
    assert (shown["state"], shown.get("leftovers")) == ("stopped", None)
    assert processes.marked(run) == {}
    assert folders() <= before


@pytest.fixture(scope="module")
def net() -> Iterator[Lan]:
    """Yield two machines on one network."""
    with Lan(2, user="root") as lan:
        yield lan


def node(net: Lan, run: str, number: int) -> Path:
    """Return the directory of a node on its host."""
    runs = net.hosts[number].home("root") / ".safelaunch" / "runs"
    return runs / run / f"node-{number}"


@needs_network
def test_a_program_on_the_first_of_two_machines_has_the_gpus_of_both(
    place: Place, net: Lan
) -> None:
    place.ssh_config(net.ssh_config())
    screen = place.cli(
        "remote", *BOTH, "--follow", job(place, ACTORS, nodes=2), timeout=LIMIT
    ).stdout
    for number in (1, 2):
        assert screen.count(f"('{net.address(number)}', 'plan', '") == 2
    assert f"joins the Ray of node 0 at {net.address(1)}:" in screen
    shown = place.json("show")
    assert [each["state"] for each in shown["nodes"]] == ["succeeded", "succeeded"]
    assert processes.marked(shown["id"]) == {}


@needs_network
def test_a_raylet_that_is_killed_on_the_second_machine_is_the_cause_there(
    place: Place, net: Lan
) -> None:
    place.ssh_config(net.ssh_config())
    run = str(place.json("remote", *BOTH, job(place, FOREVER, nodes=2))["id"])
    await_places(node(net, run, 0) / "logs/attempt-1/combined.log")
    # as the `ray stop` of another run would
    os.kill(part_of_ray(run, "raylet", f"node_ip_address={net.address(2)}"), signal.SIGTERM)
    place.cli("wait", run, code=1, timeout=LIMIT)
    failure = place.json("show", run)["failure"]
    assert (failure["class"], failure["host"], failure["rank"]) == ("ray-node-dead", "gpu2", None)
    assert failure["what"].startswith("Ray's raylet (pid ")
    assert "has ended: " in failure["what"]
    assert "received SIGTERM" in failure["what"]
    assert processes.marked(run) == {}


@pytest.fixture(scope="module")
def slurm() -> Iterator[slurm_support.Slurm]:
    """Yield a cluster of Slurm."""
    reason = slurm_support.missing()
    if reason:
        pytest.skip(reason)
    with slurm_support.Slurm() as cluster:
        yield cluster


def test_a_job_of_slurm_has_a_ray_in_its_allocation_which_ends_with_it(
    place: Place, slurm: slurm_support.Slurm
) -> None:
    place.env |= {"SLURM_CONF": str(slurm.config), "PATH": slurm.environ["PATH"]}
    block = {"cpus_per_task": 1, "mem": "4000MiB", "time": "10m"}
    name = job(place, ACTORS, nodes=2, gpus=1, profile=None, slurm=block)
    screen = place.cli("run", "--on", "slurm", "--follow", name, timeout=LIMIT).stdout
    assert "Ray is up, 2 nodes (" in screen
    assert "CPU 2, GPU 2" in screen
    assert screen.count("'plan', '") == 2
    shown = place.json("show")
    assert [each["state"] for each in shown["nodes"]] == ["succeeded", "succeeded"]
    assert processes.marked(shown["id"]) == {}
