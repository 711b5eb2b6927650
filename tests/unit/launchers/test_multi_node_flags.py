"""What launchers of several nodes are given, and what the job's own flags keep away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import NodePlan

TWO = "script: train.py\nprocesses: 2\nprofile: cpu\nhosts: [gpu1, gpu2]\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def words(node: NodePlan) -> list[str]:
    return [str(word) for word in node.argv]


def nodes(project: Project, launcher: str, **flags: str) -> list[NodePlan]:
    flag_lines = "".join(f"  {name}: {value}\n" for name, value in flags.items())
    text = f"launcher: {launcher}\n" + TWO + ("launcher_args:\n" + flag_lines if flag_lines else "")
    return list(project.plan(text).nodes)


def test_each_node_of_accelerate_has_its_rank_in_flags_and_config(project: Project) -> None:
    for rank, node in enumerate(nodes(project, "accelerate")):
        at = words(node).index("--machine_rank")
        assert words(node)[at + 1] == str(rank)
        assert f"machine_rank: {rank}, " in str(dict(node.files)["accelerate.yaml"])


def test_accelerate_meets_at_a_numeric_address_unless_the_job_says_how(project: Project) -> None:
    ours = {"--same_network", "--rdzv_backend"}
    assert ours <= set(words(nodes(project, "accelerate")[0]))
    same = words(nodes(project, "accelerate", same_network="true")[1])
    assert (same.count("--same_network"), "--rdzv_backend" in same) == (1, False)
    c10d = words(nodes(project, "accelerate", rdzv_backend="c10d")[1])
    assert ("--same_network" in c10d, c10d.count("--rdzv_backend")) == (False, 1)


def test_torchrun_gets_address_and_port_of_node_0(project: Project) -> None:
    plain = words(nodes(project, "torchrun")[1])
    assert plain[plain.index("--master_addr") + 1] == "<master-addr>"
    assert "--master_port" in plain


def test_an_endpoint_of_the_job_is_the_only_one(project: Project) -> None:
    arguments = words(nodes(project, "torchrun", rdzv_endpoint="gpu1:29400")[1])
    assert ("--master_addr" in arguments, "--master_port" in arguments) == (False, False)


@pytest.mark.parametrize(
    ("sub", "timeout"),
    [("pt", True), ("sft", True), ("rlhf", True), ("infer", False), ("rollout", False)],
)
def test_only_what_trains_with_swift_gets_a_timeout(
    project: Project, sub: str, *, timeout: bool
) -> None:
    node = project.node(f"launcher: swift\ncommand: [{sub}]\nprocesses: 1\nprofile: cpu\n")
    assert ("--ddp_timeout" in words(node)) is timeout
