"""Checks of the job's variables, and of what its plan warns about besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, result_of, results_of
from support.facts.gpu_machines import H100, Replies, box
from support.facts.interpreters import torch

from safelaunch.config.resolve import Flags

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

TORCHRUN = "launcher: torchrun\nscript: train.py\nprocesses: 2\nprofile: h100\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def run_check(
    project: Project, job: str, facts: dict[str, Any] | None = None, **more: Any
) -> list[Any]:
    return results_of(
        make_context(project, job, facts=facts or box(H100, H100), answers=Replies(), **more),
        "variables",
        "plan",
    )


WRONG = {
    "NCCL_P2P_LEVEL": "NVLINK",
    "NCCL_DEBUG": "VERBOSE",
    "NCCL_IB_DISABLE": "False",
    "NCCL_TIMEOUT": "1800",
    "NCCL_BLOCKING_WAIT": "1",
    "NCCL_ALGO": "Rinng",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "true",
    "WANDB_MODE": "offlin",
    "CUDA_DEVICE_ORDER": "PCI_BUS",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:true",
    "NCCL_SOKET_IFNAME": "eth0",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_variable_that_the_plan_warns_about_is_a_warning(project: Project, name: str) -> None:
    [result] = run_check(project, TORCHRUN + f"env: {{{name}: '{WRONG[name]}'}}\n")
    assert (result.id, result.status) == ("variables", "warn")
    assert f"`{name}" in result.evidence
    assert "(job.yaml:5:" in result.evidence
    assert result.hint


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("limit = os.environ.get('NCCL_TIMEOUT', 600)", "ok"),
        ('limit = env_int("NCCL_TIMEOUT")', "ok"),
        ("os.environ['NCCL_TIMEOUT'] = '600'", "warn"),
        ("# os.environ['NCCL_TIMEOUT'] sets no limit", "warn"),
    ],
)
def test_a_name_that_the_program_itself_reads_is_its_own(
    line: str, status: str, project: Project
) -> None:
    project.write(f"import os\nfrom limits import env_int\n{line}\n", "train.py")
    [result] = run_check(project, TORCHRUN + "env: {NCCL_TIMEOUT: 1800}\n")
    assert result.status == status


def test_each_variable_has_a_line_of_its_own(project: Project) -> None:
    job = TORCHRUN + "env: {NCCL_ALGO: Rinng, WANDB_MODE: offlin}\n"
    assert [r.status for r in run_check(project, job)] == ["warn", "warn"]


def test_variables_that_their_readers_accept_pass(project: Project) -> None:
    [result] = run_check(project, TORCHRUN + "env: {NCCL_ALGO: Ring, WANDB_MODE: offline}\n")
    assert (result.status, result.evidence) == ("ok", "2 variables of the job")


def test_a_job_without_variables_says_nothing(project: Project) -> None:
    assert run_check(project, TORCHRUN) == []


def test_a_variable_of_the_profile_alone_says_nothing(project: Project) -> None:
    assert run_check(project, TORCHRUN.replace("h100", "rtx5090")) == []


def test_the_installed_version_decides_about_a_name_that_was_renamed(project: Project) -> None:
    """PyTorch reads NCCL_BLOCKING_WAIT alone before 2.2."""
    job = TORCHRUN + "env: {NCCL_BLOCKING_WAIT: '1'}\n"
    old, new = (box(H100, H100, torch=torch(v, nccl="2.18.1")) for v in ("2.1.2+cu121", "2.4.0"))
    assert [r.status for r in run_check(project, job, old)] == ["ok"]
    assert [r.status for r in run_check(project, job, new)] == ["warn"]


def test_a_value_on_several_hosts_is_one_line(project: Project) -> None:
    project.write("hosts: {gpu1: {}, gpu2: {}}\n", "hosts.yaml")
    job = TORCHRUN + "hosts: [gpu1, gpu2]\nenv: {NCCL_ALGO: Rinng, NCCL_SOCKET_IFNAME: eth0}\n"
    flags = Flags(remote=True, hosts_file=str(project.folder / "hosts.yaml"))
    facts = [box(H100, H100), box(H100, H100)]
    context = make_context(project, job, flags=flags, facts=facts, answers=[Replies(), Replies()])
    assert result_of(context, "variables").host is None


def test_what_a_shell_would_expand_is_a_warning_of_the_plan(project: Project) -> None:
    [result] = run_check(project, TORCHRUN + "args: {data_dir: $HOME/data}\n")
    assert (result.id, result.status) == ("plan", "warn")
    assert "never expanded" in result.evidence


def test_what_a_check_of_its_own_says_better_is_left_to_it(project: Project) -> None:
    """`profile-facts` knows the versions of the host, the plan does not."""
    job = TORCHRUN.replace("h100", "rtx5090")
    assert results_of(make_context(project, job, facts=box(H100), answers=Replies()), "plan") == []
