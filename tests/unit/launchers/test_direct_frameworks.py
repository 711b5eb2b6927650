"""Ranks of swift and LLaMA-Factory, whose files their command lines hand to torchrun."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.plan import direct
from safelaunch.script import launch_script, rank_words

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import DirectStart

SWIFT = "launcher: swift\ncommand: [sft]\nargs: [--model, m]\nprocesses: 2\nstart: direct\n"
LLAMA = "launcher: llamafactory\ncommand: [train]\nargs: [x.yaml]\nprocesses: 2\nstart: direct\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def ranks_of(project: Project, job: str) -> DirectStart | str:
    """Return how the ranks of a job are started directly, or the note that says why not."""
    plan = project.plan(job)
    ranks = direct.newest(plan.nodes[0]).ranks
    return ranks if ranks is not None else plan.notes[0]


def words_of(project: Project, job: str) -> str:
    node = project.plan(job).nodes[0]
    assert node.ranks is not None
    return " ".join(map(str, rank_words(node, node.ranks)))


def test_a_rank_of_swift_runs_the_file_of_its_subcommand(project: Project) -> None:
    expected = "<python> -u <package>/cli/sft.py --model m --ddp_timeout 1800"
    assert words_of(project, SWIFT) == expected
    assert words_of(project, SWIFT + "python_options: [-W, ignore]\n") == expected
    assert words_of(project, SWIFT + "prefix: [numactl, -N, 0]\n") == expected


def test_a_rank_of_llama_factory_runs_its_launcher_file(project: Project) -> None:
    assert words_of(project, LLAMA) == "<python> -u <package>/launcher.py x.yaml"


def test_what_llama_factory_sets_for_its_ranks_is_set(project: Project) -> None:
    names = {"PYTORCH_CUDA_ALLOC_CONF", "TORCH_NCCL_AVOID_RECORD_STREAMS"}
    ranks = ranks_of(project, LLAMA)
    assert not isinstance(ranks, str)
    assert names <= {var.name for var in ranks.variables}
    without = ranks_of(project, LLAMA + "env: {OPTIM_TORCH: '0'}\n")
    assert not isinstance(without, str)
    assert not names & {var.name for var in without.variables}


def test_what_llama_factory_sets_depends_on_a_variable_of_the_caller(project: Project) -> None:
    plan = project.plan(LLAMA)
    text = launch_script(direct.newest(plan.nodes[0]), plan.name)
    lines = [line for line in text.splitlines() if "OPTIM_TORCH" in line]
    assert len(lines) == 2
    show = "\n".join(
        ["unset -v PYTORCH_CUDA_ALLOC_CONF", *lines, 'echo "$PYTORCH_CUDA_ALLOC_CONF"']
    )
    for value, is_set in {
        None: True,
        "1": True,
        "True": True,
        "y": True,
        "0": False,
        "": False,
    }.items():
        env = {"PATH": os.environ["PATH"], **({} if value is None else {"OPTIM_TORCH": value})}
        done = subprocess.run(
            ["bash", "-c", show], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == ("expandable_segments:True" if is_set else ""), value


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (SWIFT.replace("--model, m", "s.yaml"), "swift itself reads s.yaml"),
        (SWIFT.replace("sft", "deploy").replace("processes: 2\n", ""), "one process"),
        (SWIFT.replace("processes: 2\n", ""), "one process"),
        (LLAMA.replace("x.yaml", "'a b'"), "changes the words of its ranks"),
        (LLAMA.replace("processes: 2", "processes: 1"), "one process"),
        (LLAMA + "env: {RDZV_ID: x}\n", "an elastic start needs the launcher"),
    ],
)
def test_the_launcher_starts_what_is_not_certain(job: str, reason: str, project: Project) -> None:
    note = ranks_of(project, job)
    assert isinstance(note, str)
    assert note.startswith("started by the launcher, not directly: ")
    assert reason in note
