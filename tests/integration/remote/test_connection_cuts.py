"""One moment of each step of remote work; `scripts/bench matrix` cuts at all thirty-five."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest
from support.faults.connection_cuts import CASES, STEPS, Case, run_case
from support.ssh import sshd
from support.ssh.faulty_proxy import DOWN, UP
from support.ssh.sshd import Sshd
from support.workspace import DEADLINE

if TYPE_CHECKING:
    from pathlib import Path

    from support.workspace import Place

pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))

SAMPLE = (
    Case("connect", "push", UP, 0.6, "drop"),
    Case("auth", "push", UP, 0.6, "reset"),
    Case("sync", "remote", UP, 0.6, "reset"),
    Case("upload", "push", UP, 0.6, "drop"),
    Case("start", "remote", UP, 1.0, "reset"),
    Case("logs", "logs", DOWN, 0.4, "drop"),
    Case("stop", "stop", UP, 1.0, "stall"),
)


def test_every_step_has_five_moments_and_one_of_them_is_tried() -> None:
    assert [case.step for case in SAMPLE] == list(STEPS)
    assert set(SAMPLE) <= set(CASES)
    assert len(set(CASES)) == 5 * len(STEPS)


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_a_cut_loses_nothing_and_starts_nothing_twice(case: Case, tmp_path: Path) -> None:
    assert run_case(case, str(tmp_path)) is None


def test_a_command_waits_for_a_server_that_has_too_many_logins(place: Place) -> None:
    with Sshd({"MaxStartups": "1:100:1"}) as server:
        place.ssh_config(server.ssh_config("box"))
        with socket.create_connection((server.address, server.port)) as other:
            assert other.recv(100).startswith(b"SSH-")
            listing = place.popen("ps", "--host", "box", "--json")
            assert listing.stderr is not None
            line = listing.stderr.readline().decode()
        out, _ = listing.communicate(timeout=DEADLINE)
    for word in ("sshd restarting", "MaxStartups", "fail2ban", "attempt 2 of 4"):
        assert word in line
    assert (listing.returncode, json.loads(out)["runs"]) == (0, [])
