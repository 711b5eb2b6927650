"""Which jobs let their ranks arm the flight recorder and NCCL's log, and what stops that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import PYTHON, TORCHRUN, Project, script

from safelaunch.config.resolve import Flags
from safelaunch.plan.serialize import freeze, plan_json, thaw

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("profile", ["", "profile: h100\n", "profile: mi300x\n"])
def test_ranks_on_gpus_arm_both_groups(project: Project, profile: str) -> None:
    assert list(project.node(TORCHRUN + profile).evidence) == ["flight", "nccl"]


@pytest.mark.parametrize("profile", ["profile: cpu\n", "profile: ascend\n"])
def test_ranks_without_nccl_arm_nothing(project: Project, profile: str) -> None:
    assert project.node(TORCHRUN + profile).evidence == {}


@pytest.mark.parametrize("job", [PYTHON, TORCHRUN.replace("2", "1")])
def test_a_single_process_arms_nothing(project: Project, job: str) -> None:
    assert project.node(job).evidence == {}


def test_a_script_that_may_start_ranks_arms_both_groups(project: Project) -> None:
    job = "launcher: command\ncommand: [bash, run.sh]\n"
    assert list(project.node(job).evidence) == ["flight", "nccl"]


def test_capture_false_turns_evidence_off(project: Project) -> None:
    assert project.node(TORCHRUN + "capture: false\n").evidence == {}


@pytest.mark.parametrize(
    ("env", "left"),
    [
        ("NCCL_DEBUG: WARN", ["flight"]),
        ("NCCL_DEBUG_FILE: null", ["flight"]),
        ("TORCH_FR_BUFFER_SIZE: 0", ["nccl"]),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE: 100", ["nccl"]),
    ],
)
def test_a_variable_of_the_job_turns_its_group_off(
    project: Project, env: str, left: list[str]
) -> None:
    assert list(project.node(TORCHRUN + f"env: {{{env}}}\n").evidence) == left


def test_debug_writes_nccl_into_the_log_and_not_into_a_file(project: Project) -> None:
    assert list(project.node(TORCHRUN, Flags(debug=True)).evidence) == ["flight"]


def test_each_variable_has_why_cost_and_source_in_the_plan(project: Project) -> None:
    evidence = plan_json(project.plan(TORCHRUN))["nodes"][0]["evidence"]
    assert all(row["why"] and row["cost"] and row["source"] for row in evidence.values())


def test_the_script_of_the_launcher_sets_none_of_them(project: Project) -> None:
    assert "NCCL_DEBUG" not in script(project.plan(TORCHRUN))


def test_a_plan_that_is_read_again_has_the_same_evidence(project: Project) -> None:
    plan = project.plan(TORCHRUN)
    assert thaw(freeze(plan)).nodes[0].evidence == plan.nodes[0].evidence
