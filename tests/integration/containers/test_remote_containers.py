"""Runs in containers on a host, over SSH: the agent there starts them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.containers import block
from support.ssh import sshd
from support.workspace import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.containers import Engine
    from support.ssh.sshd import Sshd
    from support.workspace import Place

pytestmark = [
    pytest.mark.containers,
    pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing())),
]
FOREVER = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture(scope="module")
def machine() -> Iterator[Sshd]:
    """Yield a host that has the processes of this machine, as its engines do."""
    with sshd.Sshd(own_pids=False) as server:
        yield server


@pytest.fixture
def far(place: Place, machine: Sshd, engine: Engine) -> Iterator[Place]:
    """Return a place whose host gpu1 runs its jobs in containers."""
    place.ssh_config(machine.ssh_config("gpu1"))
    variables = {name: value for name, value in engine.environ.items() if name != "PATH"}
    entry = {"profile": "cpu", "container": block(engine.name), "env": variables}
    place.home.mkdir(exist_ok=True)
    (place.home / "hosts.yaml").write_text(json.dumps({"hosts": {"gpu1": entry}}))
    yield place
    wait_for(lambda: engine.names() == [], "removal of all containers", 20)


def test_a_job_runs_in_the_hosts_container_and_its_log_comes_here(far: Place) -> None:
    program = "import os\nprint('pid', os.getpid(), os.environ['HOME'])\n"
    job = far.job(program, python=None)
    done = far.cli("remote", "--host", "gpu1", "--follow", job)
    assert "container-home" in done.stdout
    assert "succeeded" in done.stderr


def test_a_remote_container_is_stopped_from_here(far: Place, engine: Engine) -> None:
    run = str(far.json("remote", "--host", "gpu1", far.job(FOREVER, python=None))["id"])
    assert engine.names() == [run]
    far.cli("stop", run)
    assert (far.json("show", run)["state"], engine.names()) == ("stopped", [])


def test_an_image_that_the_host_lacks_refuses_the_start(far: Place) -> None:
    job = far.job(FOREVER, python=None)
    refused = far.cli("remote", "--host", "gpu1", "--container", "none:1", job, code=3)
    assert "pull none:1" in refused.stderr
    assert far.json("ps")["runs"] == []


def test_what_a_run_makes_in_its_own_copy_moves_into_the_projects_folder(
    far: Place, machine: Sshd, engine: Engine
) -> None:
    first = far.json("remote", "--host", "gpu1", far.job(FOREVER, "first", python=None))["id"]
    program = f"import os\nos.mkdir('out')\nopen('out/{engine.name}', 'w').close()\n"
    second = far.job(program, "second", python=None)
    far.write("first.py", FOREVER + "# edited while the first runs\n")
    far.cli("remote", "--host", "gpu1", "--follow", second)
    far.cli("stop", str(first))
    pattern = f"*/out/{engine.name}"
    files = {path.resolve() for path in (machine.home() / "safelaunch").glob(pattern)}
    assert len(files) == 1  # in the copy there is a link to it
    assert ".second-" not in str(files)
