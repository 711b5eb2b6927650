"""A run on a host, from a client without POSIX: start, look, follow, wait, stop."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from support import windows_client
from support.ssh import sshd
from support.workspace import DEADLINE, Place, wait_for

if TYPE_CHECKING:
    from support.ssh.sshd import Sshd

pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))

USER = "alice" if sshd.ROOT else None


@pytest.fixture
def far(place: Place, server: Sshd) -> Place:
    """Return a place whose ~/.ssh/config knows the host as gpu1."""
    # Paramiko would look for the agent of Windows
    place.ssh_config(server.ssh_config("gpu1", USER) + "  IdentityAgent none\n")
    return place


def cli(
    place: Place, *words: str, code: int | None = 0, **options: Any
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        windows_client.command(*words),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        env=place.env,
        cwd=place.project,
        **options,
    )
    place.note()
    assert code in (None, done.returncode), (words, done.stdout, done.stderr)
    return done


def shown(place: Place, *words: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(cli(place, *words, "--json").stdout)
    return data


def job(place: Place, program: str) -> str:
    """Write a job and its script as an editor on Windows does."""
    file = place.job(program, name="far", python=None)
    for path in (place.project / "far.py", place.project / file):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    return file


def test_a_job_is_started_followed_and_looked_at(far: Place) -> None:
    file = job(far, "for i in range(3):\n    print('step', i, flush=True)\n")
    done = cli(far, "remote", "--host", "gpu1", "--follow", file)
    assert done.stdout.splitlines() == ["step 0", "step 1", "step 2"]
    (listed,) = shown(far, "ps")["runs"]
    assert (listed["state"], listed["host"]) == ("succeeded", "gpu1")
    run = listed["id"]
    assert shown(far, "show", run)["exit_code"] == 0
    assert "succeeded" in cli(far, "show", run).stdout
    assert cli(far, "logs", "--tail", "1", run).stdout == "step 2\n"
    cli(far, "wait", run)


def test_a_job_is_stopped(far: Place) -> None:
    run = shown(
        far, "remote", "--host", "gpu1", job(far, "import time\nprint('up')\ntime.sleep(600)\n")
    )["id"]
    wait_for(lambda: "up" in cli(far, "logs", run, code=None).stdout, "first line")
    assert shown(far, "stop", run)["state"] == "stopped"


@pytest.mark.tmux
def test_attach_names_the_plain_ssh_command(far: Place) -> None:
    program = "import time\nprint('up')\ntime.sleep(600)\n"
    run = shown(far, "remote", "--host", "gpu1", job(far, program))["id"]
    terminal, stdin = pty.openpty()
    try:
        stderr = cli(far, "attach", run, code=1, stdin=stdin).stderr
    finally:
        os.close(stdin)
        os.close(terminal)
        cli(far, "stop", run)
    assert "attach over SSH does not work on Windows" in stderr
    assert "by hand: ssh -t gpu1 tmux -S /" in stderr
