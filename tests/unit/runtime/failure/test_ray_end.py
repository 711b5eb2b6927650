"""What `failure.find` makes of the end of a Ray that was started for the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.ended_node import START, Node

from safelaunch.runtime.monitor import oom_kills
from safelaunch.runtime.records import RayFailure

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_ray_that_has_died_is_the_cause_of_what_its_program_says_of_it(node: Node) -> None:
    folder = node.path / "ray" / "attempt-1"
    folder.mkdir(parents=True)
    what = "Ray's raylet (pid 812) was ended by SIGKILL"
    record = RayFailure(class_name="ray-node-dead", what=what, pid=812, signal="SIGKILL")
    record.log, record.time = "raylet.out", START / 1e9
    record.write(str(folder))
    (folder / "raylet.out").write_text("the last line\n")
    node.run["single"] = "main"
    node.raised(0, "ray.exceptions.ActorDiedError", "The actor died unexpectedly", 300)
    failure, _ = node.find()
    assert (failure["class"], failure["what"], failure["rank"]) == ("ray-node-dead", what, None)
    assert failure["others"][0]["what"].startswith("ray.exceptions.ActorDiedError")
    assert (failure["last_lines"], failure["log"]) == (
        ["the last line"],
        str(folder / "raylet.out"),
    )
    assert str(folder) in failure["advice"]


def test_a_raylet_that_the_kernel_killed_for_memory_is_told_so(node: Node) -> None:
    folder = node.path / "ray" / "attempt-1"
    folder.mkdir(parents=True)
    record = RayFailure(class_name="ray-node-dead", what="Ray's raylet", pid=812, signal="SIGKILL")
    record.write(str(folder))
    kills = oom_kills.Kills([oom_kills.OomKill(text="Killed process 812", pid=812)])
    failure, _ = node.find(kills=kills)
    assert failure["class"] == "host-oom"


def test_a_python_without_ray_is_a_failure_of_the_set_up(node: Node) -> None:
    folder = node.path / "ray" / "attempt-1"
    folder.mkdir(parents=True)
    what = "Ray does not start: `ray start` exited with code 1: No module named 'ray'"
    last = ["ModuleNotFoundError: No module named 'ray'"]
    RayFailure(class_name="ray-node-dead", what=what, pid=7, last_lines=last).write(str(folder))
    failure, _ = node.find()
    assert (failure["class"], failure["what"]) == ("module-not-found", what)


def test_what_a_raylet_had_logged_before_its_end_is_not_the_cause(node: Node) -> None:
    folder = node.path / "ray" / "attempt-1"
    folder.mkdir(parents=True)
    last = ["(raylet) file_system_monitor.cc:105: /tmp/ray/x is over 95% full, available space: 9"]
    record = RayFailure(class_name="ray-node-dead", what="Ray's raylet has ended", part="raylet")
    record.last_lines = last
    record.write(str(folder))
    failure, _ = node.find()
    assert failure["class"] == "ray-node-dead"
