"""Commands about a run whose host does not answer: they never say more than is known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.ssh import sshd
from support.ssh.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workspace import Place

pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
FOREVER = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def run(place: Place) -> Iterator[str]:
    """Yield a run that goes on, on a host that does not answer any more."""
    folder = place.user / ".ssh"
    folder.mkdir(mode=0o700)
    config = folder / "config"
    with Sshd() as server:
        reached = server.ssh_config("gpu1", server.users[-1])
        config.write_text(reached)
        file = place.job(FOREVER, name="far", python=None)
        run_id = str(place.json("remote", "--host", "gpu1", file)["id"])
        assert place.json("show", run_id)["state"] == "running"
        refused = reached.replace(f"Port {server.port}", "Port 1")
        config.write_text(refused + server.ssh_config("box", server.users[-1]))
        yield run_id
        config.write_text(reached)
        place.cli("stop", run_id)


@pytest.mark.skipif(not sshd.ROOT, reason="only a server of root changes its root folder")
def test_a_session_that_ends_right_after_the_login_has_a_hint_where_to_look(place: Place) -> None:
    with Sshd({"ChrootDirectory": "/no/such/folder"}) as server:
        place.ssh_config(server.ssh_config("gpu1"))
        stderr = " ".join(place.cli("ps", "--host", "gpu1", code=4).stderr.split())
    assert "ChrootDirectory" in stderr


def test_attach_says_that_the_host_does_not_answer(place: Place, run: str) -> None:
    stderr = " ".join(place.cli("attach", run, code=4).stderr.split())
    assert f"{run}: gpu1 does not answer: 127.0.0.1 port 1 refuses connections" in stderr
    assert "when last seen" in stderr
    assert "does not run" not in stderr


def test_wait_does_not_say_that_it_still_runs(place: Place, run: str) -> None:
    stderr = place.cli("wait", "--timeout", "0.1", run, code=1).stderr
    assert f"{run}: it may not have ended yet" in stderr
    assert "still running" not in stderr


def test_a_list_has_the_hosts_that_answer_beside_one_that_does_not(place: Place, run: str) -> None:
    done = place.cli("ps", "--host", "gpu1", "--host", "box", code=4)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(run)]
    assert "gpu1  unknown" in line
    assert "error: gpu1: 127.0.0.1 port 1 refuses connections" in done.stderr
    assert done.stderr.endswith("1 of 2 hosts have answered\n")


def test_a_list_of_own_runs_says_which_hosts_do_not_answer(place: Place, run: str) -> None:
    local = place.start(place.job("print(1)\n", name="here"))
    place.ended(local)
    done = place.cli("ps", code=4)
    rows = {line.split()[0]: line.split()[1:3] for line in done.stdout.splitlines()[1:]}
    assert rows[run] == ["gpu1", "unknown"]
    assert rows[local][0] == "succeeded"
    assert "error: gpu1: 127.0.0.1 port 1 refuses connections" in done.stderr
    listed = json.loads(place.cli("ps", "--json", code=4).stdout)
    assert {row["id"]: row["state"] for row in listed["runs"]} == {
        run: "unknown", local: "succeeded",
    }  # fmt: skip
    (error,) = listed["errors"]
    assert error["host"] == "gpu1"
