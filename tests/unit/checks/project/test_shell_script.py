"""A shell script that a `command:` runs: what its text shows before a start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.facts.check_cases import make_context, project_at, results_of

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

JOB = "launcher: command\ncommand: [bash, run.sh]\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = project_at(tmp_path)
    project.write("", "train.py")
    return project


def evidence(project: Project, script: str, job: str = JOB) -> list[tuple[str, str]]:
    project.write(script, "run.sh")
    results = results_of(make_context(project, job), "shell-script")
    return [(result.status, result.evidence) for result in results]


def test_a_broken_command_in_the_script_is_a_warning_with_its_line(project: Project) -> None:
    ((status, text),) = evidence(project, "torchrun train.py\n  --lr 1\n")
    assert (status, text[:12]) == ("warn", "run.sh:2:3: ")


def test_a_program_that_the_script_launches_and_that_is_absent_is_a_warning(
    project: Project,
) -> None:
    ((status, text),) = evidence(project, "A=1 torchrun --nproc_per_node 2 trian.py\n")
    assert (status, "torchrun starts trian.py, which does not exist" in text) == ("warn", True)


@pytest.mark.parametrize(
    "script",
    [
        "torchrun --nproc_per_node 2 train.py | tee log\n",
        "cd src && torchrun other.py\n",
        "torchrun $SCRIPT\n",
        "torchrun -m pkg.train\n",
        "export TRANSFORMERS_OFFLINE=1\n",
    ],
)
def test_a_script_without_errors_passes(project: Project, script: str) -> None:
    assert evidence(project, script) == [("ok", "run.sh has no errors")]


@pytest.mark.parametrize(
    "job",
    ["launcher: command\ncommand: [make, train]\n", "launcher: python\nscript: train.py\n",
     "launcher: command\ncommand: [bash, absent.sh]\n"],
)  # fmt: skip
def test_a_job_without_a_shell_script_has_no_such_check(project: Project, job: str) -> None:
    assert evidence(project, "torchrun train.py\n  --lr 1\n", job) == []
