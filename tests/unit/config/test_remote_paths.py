from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.config.resolve import Flags

if TYPE_CHECKING:
    from pathlib import Path

AWAY = Flags(remote=True, hosts=("gpu1",))
JOB = "launcher: torchrun\nprocesses: 2\n"
SCRIPT = f"{JOB}script: train.py\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "llm")


def warned(project: Project, text: str) -> list[str]:
    return [warning.message for warning in project.plan(text, AWAY).warnings]


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        (r"script: src\train.py", "`src/train.py`"),
        ("script: train.py\nworkdir: .\\sub", "`./sub`"),
        ("script: train.py\npythonpath: ['src\\lib']", "`src/lib`"),
        ("script: train.py\nvenv: .\\env", "`./env`"),
        ("script: train.py\npython: .\\env\\python", "`./env/python`"),
        ("script: train.py\nlog: logs\\{name}.log", "`logs/{name}.log`"),
    ],
)
def test_a_backslash_is_refused_with_the_path_to_write(
    project: Project, line: str, instead: str
) -> None:
    error = project.refused(f"{JOB}{line}\n", AWAY)
    assert "has a backslash" in error.message
    assert instead in error.hint
    assert str(error.where).startswith("job.yaml:")


@pytest.mark.parametrize("path", [r"C:\Users\me\llm", "c:/Users/me/llm", r"\\nas\llm"])
@pytest.mark.parametrize("key", ["workdir", "python", "venv", "pythonpath", "script"])
def test_a_windows_path_is_refused(project: Project, key: str, path: str) -> None:
    text = f"{JOB}{key}: {path}\n" if key == "script" else f"{SCRIPT}{key}: {path}\n"
    error = project.refused(text, AWAY)
    assert f"`{path}` in `{key}` is a Windows path" in error.message


@pytest.mark.parametrize("line", ["pythonpath: [src, ../other]", "workdir: ..", "venv: ../env"])
def test_a_path_out_of_the_project_is_refused(project: Project, line: str) -> None:
    error = project.refused(f"{SCRIPT}{line}\n", AWAY)
    assert "leads out of the project" in error.message
    assert "pyproject.toml" in error.hint


def test_a_script_out_of_the_project_is_refused(project: Project) -> None:
    (project.folder.parent / "other.py").touch()
    error = project.refused(f"{JOB}script: ../other.py\n", AWAY)
    assert "`../other.py` in `script` leads out of the project" in error.message


def test_a_path_above_the_job_file_but_in_the_project_is_fine(project: Project) -> None:
    text = f"{SCRIPT}workdir: ..\npythonpath: [../lib]\n"
    node = project.plan(text, AWAY, "jobs/job.yaml").nodes[0]
    assert str(node.cwd) == "<home>/safelaunch/llm"
    assert str(node.env["PYTHONPATH"].value) == "<home>/safelaunch/llm/lib"


def test_a_path_of_the_host_is_taken_as_it_is(project: Project) -> None:
    text = f"{JOB}script: other.py\nworkdir: /data/llm\npython: /opt/env/bin/python\n"
    node = project.plan(text, AWAY).nodes[0]
    assert str(node.cwd) == "/data/llm"
    assert node.interpreter.path == "/opt/env/bin/python"


def test_a_whole_path_into_the_project_is_mapped(project: Project) -> None:
    (project.folder / "sub").mkdir()
    (project.folder / "sub" / "train.py").touch()
    node = project.plan(f"{SCRIPT}workdir: {project.folder}/sub\n", AWAY).nodes[0]
    assert str(node.cwd) == "<home>/safelaunch/llm/sub"


@pytest.mark.parametrize(
    ("path", "what"),
    [
        (r"C:\data", "is a Windows path"),
        ("D:/data", "is a Windows path"),
        ("/mnt/c/data", "is where WSL mounts a Windows drive"),
        ("--data=/mnt/d/x", "is where WSL mounts a Windows drive"),
    ],
)
def test_a_path_of_the_laptop_in_args_and_env_is_warned_of(
    project: Project, path: str, what: str
) -> None:
    text = f"{SCRIPT}args: ['{path}']\nenv: {{HF_HOME: '{path}'}}\n"
    assert warned(project, text) == [
        f"`{path}` in `args` {what}; the job runs on a host",
        f"`{path}` in `HF_HOME` {what}; the job runs on a host",
    ]


@pytest.mark.parametrize("key", ["workdir", "python", "pythonpath"])
def test_a_drive_of_wsl_out_of_the_project_is_warned_of(project: Project, key: str) -> None:
    (message,) = warned(project, f"{SCRIPT}{key}: /mnt/c/llm/x\n")
    assert "is where WSL mounts a Windows drive" in message


@pytest.mark.parametrize(
    "value", ["https://a.example/b", "s3://b/c", "/mnt/data/x", "a:b", "x://y", r"\d+", "a\\b"]
)
def test_what_only_looks_like_a_drive_is_left_alone(project: Project, value: str) -> None:
    assert warned(project, f"{SCRIPT}args: {{data: '{value}'}}\n") == []


def test_a_job_of_this_machine_may_use_what_paths_it_likes(project: Project) -> None:
    (project.folder / "a\\b").mkdir()
    (project.folder / "a\\b" / "train.py").touch()
    plan = project.plan(f"{SCRIPT}workdir: 'a\\b'\nargs: [/mnt/c/data]\n")
    assert str(plan.nodes[0].cwd).endswith("a\\b")
    assert plan.warnings == ()
