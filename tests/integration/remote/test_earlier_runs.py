"""`remote --after RUN` over two hosts: real servers in network namespaces, and no launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.faults.two_machines import BOTH
from support.ssh import network_namespaces
from support.workspace import wait_for

if TYPE_CHECKING:
    from support.workspace import Place

WHY_NOT = network_namespaces.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
FIRST_HOST = ("--host", "gpu1")
# each rank for itself: node 0 ends first, and only node 1 decides how the run has ended
RANKS = """
import os, pathlib, time
path = pathlib.Path(GO) / ("go" + os.environ["RANK"])
while not path.exists(): time.sleep(0.02)
raise SystemExit(int(path.read_text() or 0))
"""


def _ranks(place: Place) -> str:
    """Return a job of two nodes, whose ranks end as files of this machine say."""
    program = f"GO = {str(place.root)!r}\n{RANKS}"
    return place.direct(program, 1, "ranks", nodes=2, profile="cpu")


def _waits(place: Place, run: str, text: str) -> None:
    def waits() -> bool:
        shown = place.json("show", run)
        return shown["state"] == "pending" and text in str(shown.get("waits_for"))

    wait_for(waits, f"{run} that waits for {text}")


def test_runs_on_two_hosts_begin_once_all_nodes_of_the_one_before_have_succeeded(
    far: Place,
) -> None:
    first = str(far.json("remote", *BOTH, _ranks(far))["id"])
    job = far.direct("print('begun')", 1, "second", nodes=2, profile="cpu")
    second = str(far.json("remote", *BOTH, job, "--after", first)["id"])
    third = far.job("print('alone')", name="third")
    third = str(far.json("remote", *FIRST_HOST, third, "--after", first)["id"])
    refused = far.cli("remote", "--host", "gpu2", "third.yaml", "--after", third, code=2).stderr
    assert f"{third} is on gpu1, and this job starts on gpu2" in refused
    assert "safelaunch remote --host gpu1" in refused
    (far.root / "go0").touch()
    _waits(far, third, "on gpu2 (node 1)")
    assert far.json("show", second)["state"] == "pending"
    (far.root / "go1").touch()
    assert far.json("wait", third)["state"] == "succeeded"
    assert far.json("wait", second)["state"] == "succeeded"
    assert "begun" in far.cli("logs", second).stdout


def test_a_run_on_one_host_does_not_begin_where_another_node_of_the_one_before_has_failed(
    far: Place,
) -> None:
    first = str(far.json("remote", *BOTH, _ranks(far))["id"])
    second = far.job("print('alone')", name="second")
    second = str(far.json("remote", *FIRST_HOST, second, "--after", first)["id"])
    (far.root / "go0").touch()
    (far.root / "go1").write_text("3")
    shown = far.json("wait", second, code=1)
    assert shown["failure"]["what"].endswith("ended on gpu2 (node 1): failed")
    refused = far.cli("remote", *FIRST_HOST, "second.yaml", "--after", first, code=3).stderr
    assert f"{first} has ended: failed" in refused
