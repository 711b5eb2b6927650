"""The check of a job file against the config file that its launcher by hand would read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.facts.check_cases import project_at, results_of
from support.facts.machine_cases import local_context

from safelaunch.checks import run
from safelaunch.launchers.accelerate.config_file import default_path

if TYPE_CHECKING:
    from support.project import Project

JOB = "launcher: accelerate\nscript: train.py\nprocesses: 2\n"
ZERO3 = """\
distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 4
deepspeed_config: {zero_stage: 3}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path / "project")


def evidence(project: Project, job: str, text: str | None) -> list[str]:
    """Return what the check says of a job where the user's default config file has this text."""
    environ = {"HF_HOME": str(project.folder.parent / "hf")}
    if text is not None:
        file = Path(default_path(environ))
        file.parent.mkdir(parents=True)
        file.write_text(text)
    context = local_context(project, job)
    context = run.with_hosts(replace(context, environ=environ), context.hosts)
    return [result.evidence for result in results_of(context, "default-config")]


def test_what_the_default_file_says_more_is_warned_of(project: Project) -> None:
    (text,) = evidence(project, JOB, ZERO3)
    assert text.endswith("not used by this job: use_deepspeed, mixed_precision bf16, zero_stage 3")


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (JOB, None),
        (JOB, "distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: 'no'\n"),
        (
            JOB + "mixed_precision: bf16\nlauncher_args: {use_deepspeed: true, zero_stage: 3}\n",
            ZERO3,
        ),
        (JOB + "launcher_args: {config_file: c.yaml}\n", ZERO3),
        (JOB + "profile: cpu\n", ZERO3),
        (JOB.replace("accelerate", "torchrun"), ZERO3),
        (JOB, "no: file of accelerate\n"),
    ],
    ids=["no file", "the same", "written by init", "names a file", "cpu", "torchrun", "broken"],
)
def test_a_default_file_without_a_difference_is_not_mentioned(
    job: str, text: str | None, project: Project
) -> None:
    assert evidence(project, job, text) == []
