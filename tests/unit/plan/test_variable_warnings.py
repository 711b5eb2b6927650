"""Variables of a job are judged in its plan as lint judges them; those of its profile are not."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.project import PYTHON, TORCHRUN, Project

from safelaunch.config.resolve import Flags

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def problems(
    project: Project, text: str, flags: Flags | None = None
) -> list[tuple[str, str | None]]:
    """Return id and place of the warnings that are about variables."""
    plan = project.plan(TORCHRUN + text, flags)
    return [(w.id, w.where) for w in plan.warnings if w.id.startswith("env-")]


def hosts(project: Project, entry: str) -> Flags:
    project.write(f"hosts: {{localhost: {entry}}}\n", "hosts.yaml")
    return Flags(hosts_file="hosts.yaml")


@pytest.mark.parametrize(
    ("text", "problem", "where"),
    [
        ("env: {NCCL_TIMEOUT: 1800}\n", "env-never-existed", "job.yaml:4:21"),
        ("env: {NCCL_IB_DISABLE: true}\n", "env-number", "job.yaml:4:24"),
        ("env: {NCCL_IB_DISBLE: 1}\n", "env-unknown", "job.yaml:4:23"),
        ("env: {NCCL_BLOCKING_WAIT: 1}\n", "env-renamed", "job.yaml:4:27"),
        ("env_from: [NCCL_TIMEOUT]\n", "env-never-existed", "job.yaml:4:11"),
        ("env: {NCCL_SHM_DISABLE: 1, NCCL_P2P_DISABLE: 1}\n", "env-together", "job.yaml:4:25"),
        ("profile: h100\nenv: {NCCL_P2P_DISABLE: 1}\n", "env-machine", "job.yaml:5:25"),
    ],
)
def test_a_variable_of_the_job_is_judged(
    text: str, problem: str, where: str, project: Project
) -> None:
    assert problems(project, text) == [(problem, where)]


@pytest.mark.parametrize(
    "text",
    [
        "env: {NCCL_DEBUG: INFO, MY_OWN: x, NCCL_IB_DISABLE: 1}\n",
        "env: {NCCL_TIMEOUT: null}\n",
        "env_from: [NCCL_DEBUG, HF_TOKEN]\n",
        "env: {TORCH_NCCL_AVOID_RECORD_STREAMS: 1}\n",  # a note: harmless where it does nothing
        "env: {LD_LIBRARY_PATH: {prepend: /opt/x}}\n",
        "profile: a100-pcie\nenv: {NCCL_P2P_DISABLE: 1}\n",  # NVLink only over a bridge
        "profile: rtx4090\nenv: {NCCL_P2P_DISABLE: 1}\n",
    ],
)
def test_a_variable_that_is_read_as_meant_is_not_warned_about(text: str, project: Project) -> None:
    assert problems(project, text) == []


def test_a_variable_that_does_harm_between_nodes_is_found(project: Project) -> None:
    text = "profile: h800\nhosts: [a, b]\nenv: {NCCL_IB_DISABLE: 1}\n"
    assert problems(project, text) == [("env-machine", "job.yaml:6:24")]
    assert problems(project, "profile: h800\nenv: {NCCL_IB_DISABLE: 1}\n") == []


def test_a_job_without_variables_does_not_load_the_table(project: Project) -> None:
    project.write(PYTHON)
    code = (
        "import sys; from safelaunch.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: sys.exit('safelaunch.lint.env.names' in sys.modules)"
    )
    words = [sys.executable, "-c", code, "run", "--dry-run", "job.yaml"]
    done = subprocess.run(words, cwd=project.folder, check=False, capture_output=True)
    assert done.returncode == 0


def test_the_warning_says_what_to_do_by_the_launcher(project: Project) -> None:
    plan = project.plan("launcher: swift\ncommand: [sft]\nenv: {NCCL_TIMEOUT: 1800}\n")
    (warning,) = plan.warnings
    assert "never existed" in warning.message
    assert warning.text.endswith("; set `--ddp_timeout` (seconds)")


def test_a_variable_of_a_flag_is_judged(project: Project) -> None:
    flags = Flags(sets=("env.NCCL_TIMEOUT=5",))
    assert problems(project, "", flags) == [("env-never-existed", "--set env.NCCL_TIMEOUT")]


def test_a_variable_of_the_host_is_judged_unless_the_job_takes_it_away(project: Project) -> None:
    flags = hosts(project, "{env: {NCCL_TIMEOUT: 5}}")
    assert problems(project, "", flags) == [("env-never-existed", "hosts.yaml:1:41")]
    assert problems(project, "env: {NCCL_TIMEOUT: null}\n", flags) == []


def test_what_the_profile_sets_is_its_own_to_answer_for(project: Project) -> None:
    assert problems(project, "profile: rtx5090\n") == []
    same = "profile: rtx5090\nenv: {NCCL_SHM_DISABLE: 1, NCCL_P2P_DISABLE: 1}\n"
    assert problems(project, same) == []
    assert problems(project, same, Flags(workarounds=False)) == [("env-together", "job.yaml:5:25")]


def test_a_variable_of_the_job_is_judged_beside_those_of_the_profile(project: Project) -> None:
    text = "profile: rtx4090\nenv: {NCCL_SHM_DISABLE: 1}\n"
    assert problems(project, text) == [("env-together", "job.yaml:5:25")]


def test_what_the_host_declares_counts(project: Project) -> None:
    text = "env: {NCCL_IB_GID_INDEX: 3, TORCH_NCCL_AVOID_RECORD_STREAMS: 1}\n"
    new = hosts(project, "{facts: {nccl: 2.27.3, torch: 2.9.1}}")
    assert [p for p, _ in problems(project, text, new)] == ["env-removed", "env-machine"]
    old = hosts(project, "{facts: {nccl: 2.20.5, torch: 2.4.0}}")
    assert problems(project, text, old) == []


def test_what_the_profile_asks_the_site_for_is_not_warned_about(project: Project) -> None:
    project.write(
        "facts: {nvlink: 900 GB/s; NVSwitch}\nsite: {NCCL_P2P_DISABLE: {why: x}}\n", "p.yaml"
    )
    assert problems(project, "profile: ./p.yaml\nenv: {NCCL_P2P_DISABLE: 1}\n") == []


def test_a_renamed_name_is_right_where_the_library_is_older(project: Project) -> None:
    old = hosts(project, "{facts: {torch: 2.1.2}}")
    assert problems(project, "env: {NCCL_BLOCKING_WAIT: 1}\n", old) == []
