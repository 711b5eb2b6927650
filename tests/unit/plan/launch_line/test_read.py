"""A pasted line with what its shell has exported, and without its secrets."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from support.pasted_line import plain
from support.project import Project, script, shown

from safelaunch.config.write_job import job_yaml
from safelaunch.plan.launch_line.parse import parse_line
from safelaunch.plan.launch_line.read import read_line
from safelaunch.plan.launch_line.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from safelaunch.config.yaml_io.node import Node

RANKS = "torchrun --nproc_per_node 2 train.py"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def read(words: Sequence[str], exported: Mapping[str, str]) -> tuple[Node, tuple[str, ...]]:
    line = read_line(words, Shell("/", exported))
    return line.tree, line.notes


def test_a_secret_in_the_environment_of_a_line_becomes_a_name() -> None:
    words = ("HF_TOKEN=abcdef", "A=1", "python", "x.py")
    tree, public, secrets, _ = read_line(words, Shell("/", {}))
    assert plain(tree) == {
        "launcher": "python", "script": "x.py", "env": {"A": "1"}, "env_from": ["HF_TOKEN"],
    }  # fmt: skip
    assert secrets == {"HF_TOKEN": "abcdef"}
    assert ("abcdef" in job_yaml(tree, None), public) == (False, words[1:])


@pytest.mark.parametrize("value", ["abcdef", "'ab cd'", '"a b"', "ab\\ cd"])
def test_a_line_as_one_text_loses_its_secrets_too(value: str) -> None:
    line = read_line([f"A=1 HF_TOKEN={value} python x.py 'a  b'"], Shell("/", {}))
    assert line.words == ("A=1 python x.py 'a  b'",)


@pytest.mark.parametrize("variables", ["RANK=3 WORLD_SIZE=8", "GROUP_RANK=1", "LOCAL_RANK="])
def test_what_each_rank_gets_from_the_launcher_is_left_out(
    project: Project, variables: str
) -> None:
    tree, notes = read([*variables.split(), "A=1", *RANKS.split()], {})
    assert plain(tree)["env"] == {"A": "1"}  # type: ignore[index]
    left_out = ", ".join(variables.split())
    assert notes == (f"left out: {left_out}; torchrun sets it for each rank",)
    assert "A" in project.line(tree).nodes[0].env


EXPORTED = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "a", "MASTER_PORT": "1"}


def test_exported_flags_of_the_launcher_count_unless_the_line_has_its_own(project: Project) -> None:
    tree, notes = read(["torchrun", "--node_rank", "0", "train.py"], EXPORTED)
    assert plain(tree) == {
        "launcher": "torchrun", "script": "train.py", "processes": "1", "nodes": "2",
        "node_rank": "0", "launcher_args": ["--master_addr", "a"],
    }  # fmt: skip
    names = "PET_NNODES=2, PET_NODE_RANK=1, PET_MASTER_ADDR=a"
    assert notes == (f"read from your environment: {names}",)
    assert shown(project.plan(job_yaml(tree, None))) == shown(project.line(tree))


@pytest.mark.parametrize("line", ["python train.py", "bash run.sh"])
def test_a_program_without_ranks_gets_what_its_platform_has_exported(
    project: Project, line: str
) -> None:
    exported = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "", "SLURM_JOB_ID": "7", "X": "1"}
    tree, notes = read(["WORLD_SIZE=4", *line.split()], exported)
    assert plain(tree)["env_from"] == ["RANK"]  # type: ignore[index]
    assert notes == ("handed on from your environment: RANK (`env_from`)",)
    assert script(project.plan(job_yaml(tree, None))) == script(project.line(tree))


def test_the_variables_of_a_rank_say_nothing_of_a_line_that_it_starts() -> None:
    exported = {"RANK": "1", "PET_NNODES": "2", "TORCHELASTIC_RUN_ID": "x"}
    for line in ("python train.py", "torchrun train.py"):
        tree, notes = read(line.split(), exported)
        assert (plain(tree), notes) == (plain(parse_line(line.split())), ())


# -- programs that only PATH can tell --------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """Return a folder with programs of these names."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("python", "python3.11", "torchrun"):
        (folder / name).touch(mode=0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("line", "python"),
    [
        ("python3.11 train.py", "{bin}/python3.11"),
        ("PATH={bin} python train.py", "{bin}/python"),
        ("PATH={bin}:/usr/bin torchrun train.py", "{bin}/python"),
        ("env PATH={bin} python -m torch.distributed.run train.py", "{bin}/python"),
    ],
)
def test_the_python_of_a_line_is_the_one_that_its_path_finds(
    line: str, python: str, programs: str
) -> None:
    tree, _ = read(line.format(bin=programs).split(), {"PATH": programs})
    assert plain(tree)["python"] == python.format(bin=programs)  # type: ignore[index]


@pytest.mark.parametrize(
    "line",
    ["python3.11 train.py", "PATH=/opt/bin torchrun train.py", "srun python3.11 train.py"],
)
def test_on_a_host_its_own_path_decides(line: str, programs: str) -> None:
    tree = read_line(line.split(), Shell("/", {"PATH": programs}), is_remote=True).tree
    keys = plain(tree)
    command = line.removeprefix("PATH=/opt/bin ").removeprefix("srun ").split()
    assert keys["command"] == command  # type: ignore[index]


@pytest.mark.parametrize(
    "line", ["uv run python3.11 train.py", "bash -c '. v/bin/activate && python3.11 train.py'"]
)
def test_an_environment_brings_the_python_of_its_own(line: str, programs: str) -> None:
    tree, _ = read(shlex.split(line), {"PATH": programs})
    assert "python" not in plain(tree)  # type: ignore[operator]


def test_a_python_that_is_not_there_is_left_to_the_start(programs: str) -> None:
    tree, _ = read(["python3.99", "train.py"], {"PATH": programs})
    assert plain(tree) == {"launcher": "command", "command": ["python3.99", "train.py"]}
