"""Runs of a real Slurm in real containers of charliecloud, on its nodes and behind a login node."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.containers import SCRIPTS
from support.ssh import sshd
from support.workspace import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.slurm import Slurm
    from support.ssh.sshd import Sshd
    from support.workspace import Place

pytestmark = pytest.mark.skipif(
    shutil.which("ch-run") is None, reason="no charliecloud here: apt-get install charliecloud"
)

SECRET = "s3cret-of-the-test"  # noqa: S105 - made up
BLOCK = {"cpus_per_task": 1, "mem": "300MiB", "time": "10m"}
WHO = """
import os
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], os.environ["HOME"],
    os.environ["TOKEN"][-4:], os.environ.get("LEAK"), os.path.exists("/etc/debian_version"))
"""
FAIL = """
import os, time
if os.environ["RANK"] == "1":
    raise KeyError("label")
time.sleep(600)
"""
FOLDERS = ("project", "fake", "home/container-home", "home/runs")  # of a place, mounted by a start
FOREVER = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def cluster(place: Place, slurm: Slurm) -> Iterator[Slurm]:
    """Yield the cluster, of which the place is a login node, with an empty queue."""
    place.env |= {"SLURM_CONF": str(slurm.config), "PATH": slurm.environ["PATH"]}
    place.env |= {"USER": "root", "TOKEN": SECRET, "LEAK": "of the login node"}
    slurm.end_jobs()
    yield slurm
    slurm.end_jobs()


@pytest.fixture
def block(tmp_path: Path) -> dict[str, Any]:
    """Return a `container:` block: an empty image with this machine's programs, and the tests'."""
    image = tmp_path / "image"
    image.mkdir()
    tar = subprocess.run([SCRIPTS / "rootfs.sh"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", image], check=True, input=tar)
    python = Path(sys.executable)
    prefixes = {sys.prefix, sys.base_prefix, str(python.resolve().parent.parent)}
    mounts = ["/usr", "/etc/alternatives"] + [p for p in sorted(prefixes) if p[:4] != "/usr"]
    # the nodes are one machine here, and ch-run fails where another one makes the same place
    for path in (*mounts, *(tmp_path / name for name in FOLDERS)):
        (image / str(path).lstrip("/")).mkdir(parents=True, exist_ok=True)
    return {
        "engine": "charliecloud",
        "image": str(image),
        "mounts": mounts,
        "python": str(python),
        "options": ["--write"],  # places for the mounts are made in it
    }


def job(place: Place, block: dict[str, Any], program: str, **keys: Any) -> str:
    """Write a job with one rank on each of two nodes, in a container."""
    keys = {"nodes": 2, "slurm": BLOCK, "profile": "cpu", "python": None, **keys}
    return place.ranks(program, 1, container=block, env_from=["TOKEN"], **keys)


def submit(place: Place, name: str) -> str:
    return str(place.json("run", "--on", "slurm", name)["id"])


@pytest.mark.usefixtures("cluster")
def test_two_nodes_meet_in_containers_with_the_jobs_variables_alone(
    place: Place, block: dict[str, Any]
) -> None:
    screen = place.cli("run", "--on", "slurm", "--follow", job(place, block, WHO))
    lines = {line.partition("| ")[2] for line in screen.stdout.splitlines()}
    home = place.home / "container-home"
    ranks = {f"[{rank}] rank {rank} of 2 {home} {SECRET[-4:]} None False" for rank in range(2)}
    assert ranks <= lines
    assert place.json("show")["state"] == "succeeded"
    assert "container" in place.cli("show").stdout


@pytest.mark.usefixtures("cluster")
def test_a_failed_rank_in_a_container_is_named_with_its_node(
    place: Place, block: dict[str, Any]
) -> None:
    run = submit(place, job(place, block, FAIL))
    place.cli("wait", run, code=1)
    failure = place.json("show", run)["failure"]
    assert (failure["rank"], failure["what"]) == (1, "KeyError: 'label'")


def test_a_cancelled_job_leaves_nothing_of_its_containers(
    place: Place, cluster: Slurm, block: dict[str, Any]
) -> None:
    run = submit(place, job(place, block, FOREVER))
    log = place.home / "runs" / run / "node-1/logs/attempt-1/combined.log"
    wait_for(lambda: log.exists() and "up" in log.read_text(), "log of node 1")
    status = log.parents[2] / "status.json"
    pid = json.loads(status.read_text())["supervisor"]["pid"]
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    cluster.end_jobs()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "end of the supervisor")
    assert SECRET.encode() not in command
    files = [path for path in (place.home / "runs" / run).rglob("*") if path.is_file()]
    secret = [path for path in files if SECRET.encode() in path.read_bytes()]
    assert {path.name for path in secret} <= {"environ.json"}  # Slurm may start it again
    assert not [path for path in secret if path.stat().st_mode & 0o077]
    assert json.loads(status.read_text())["state"] == "stopped"


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_a_login_node_submits_a_job_in_containers(
    place: Place, cluster: Slurm, block: dict[str, Any], server: Sshd
) -> None:
    place.ssh_config(server.ssh_config("login1"))
    prefix = ["env", f"SLURM_CONF={cluster.config}", f"PATH={cluster.environ['PATH']}", "USER=root"]
    hosts = {"hosts": {"cluster": {"ssh": "login1", "slurm": {**BLOCK, "prefix": prefix}}}}
    place.home.mkdir(parents=True, exist_ok=True)
    (place.home / "hosts.yaml").write_text(json.dumps(hosts))
    file = job(place, block, WHO, slurm={}, nodes=1)
    screen = place.cli("remote", "--host", "cluster", "--yes", "--follow", file)
    home = server.home() / ".safelaunch/container-home"
    assert f"rank 0 of 1 {home} {SECRET[-4:]} None False" in screen.stdout
