"""Checks of the data that arguments name, and of the paths that variables name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import project_at, results_of
from support.facts.machine_cases import local_context, remote_context

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

JOB = "launcher: torchrun\nscript: src/train.py\nprocesses: 2\n"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
DATA = JOB + "args: {train_file: data/a.jsonl}\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = project_at(tmp_path)
    project.write("", "src/train.py")
    return project


def statuses(project: Project, job: str, **more: Any) -> list[str]:
    return [r.status for r in results_of(local_context(project, job, **more), "data-files")]


def test_data_that_does_not_exist_is_a_warning(project: Project) -> None:
    assert statuses(project, DATA) == ["warn"]


@pytest.mark.parametrize("file", ["data/a.jsonl", "src/data/a.jsonl"])
def test_data_that_exists_passes(project: Project, file: str) -> None:
    """Some programs look for it beside the script."""
    project.write("{}", file)
    assert statuses(project, DATA) == ["ok"]


SUBMITTED = "[--train_file, a.csv, --, accelerate, launch, --train_file, /share/a.csv, --model, /m]"


@pytest.mark.parametrize(("name", "expected"), [
    ("data-files", ["`args` name the data a.csv, which does not exist"]), ("models", []),
])  # fmt: skip
def test_options_of_a_program_that_the_script_submits_are_not_judged(
    project: Project, name: str, expected: list[str]
) -> None:
    context = local_context(project, JOB + f"args: {SUBMITTED}\n")
    assert [r.evidence for r in results_of(context, name)] == expected


def test_options_of_the_program_that_a_command_starts_are_judged(project: Project) -> None:
    words = "command: [uv, run, --, python, src/train.py, --train_file, data/a.jsonl]\n"
    assert statuses(project, f"launcher: command\n{words}") == ["warn"]


def test_data_that_setup_may_fetch_is_not_missed(project: Project) -> None:
    assert statuses(project, DATA + "setup: curl -O https://example.org/a.jsonl\n") == []


@pytest.mark.parametrize("job", [DATA, JOB + "inputs: [data/a.jsonl]\n"])
def test_a_pointer_of_git_lfs_is_no_data(project: Project, job: str) -> None:
    project.write(POINTER, "data/a.jsonl")
    assert statuses(project, job) == ["warn"]


def test_data_of_the_host_alone_is_looked_for_there(project: Project) -> None:
    job = JOB + "args: {train_file: /data/a.jsonl}\n"
    answers = {("path", "/data/a.jsonl"): {"kind": "file", "readable": True}}
    assert [r.status for r in results_of(remote_context(project, job, answers), "data-files")] == [
        "ok"
    ]
    assert [r.status for r in results_of(remote_context(project, job), "data-files")] == ["warn"]


VARIABLES = {
    "a certificate that is missing": ("REQUESTS_CA_BUNDLE: /no/ca.pem", ["warn"]),
    "a cache that cannot be created": ("HF_HOME: /proc/hf", ["warn"]),
    "a cache that can": ("HF_HOME: /tmp/hf-of-nobody", []),
    "one that is read-only, perhaps on purpose": ("HF_HOME: /proc", []),
    "a path of the start": ("HF_HOME: $SCRATCH/hf", []),
    "no path": ("HF_HOME: hf", []),
}


@pytest.mark.parametrize(("env", "expected"), VARIABLES.values(), ids=VARIABLES)
def test_a_path_that_a_variable_names(project: Project, env: str, expected: list[str]) -> None:
    case = local_context(project, JOB + f"env: {{{env}}}\n")
    assert [r.status for r in results_of(case, "variable-paths")] == expected
