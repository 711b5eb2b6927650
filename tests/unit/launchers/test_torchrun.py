"""torchrun behind options of Python, and in front of a program that is none of Python's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.pasted_line import argv_of, assert_same_job
from support.project import Project

if TYPE_CHECKING:
    from pathlib import Path

RUN = "-m torch.distributed.run --nnodes 1 --nproc_per_node 2 --node_rank 0"
MEETING = "--master_addr 127.0.0.1 --master_port <port>"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


PLANS = {
    "python -W ignore -X dev -m torch.distributed.run --nproc_per_node 2 train.py": (
        f"<python> -W ignore -X dev {RUN} {MEETING} train.py"
    ),
    "numactl -N 0 python -Wignore -m torch.distributed.run --nproc_per_node 2 train.py": (
        f"numactl -N 0 <python> -Wignore {RUN} {MEETING} train.py"
    ),
    "uv --project=p run torchrun --nproc_per_node 2 train.py": (
        f"uv --project=p run python {RUN} {MEETING} train.py"
    ),
    "hatch -e gpu run python -m torch.distributed.run --nproc_per_node 2 train.py": (
        f"hatch -e gpu run python {RUN} {MEETING} train.py"
    ),
    "conda -v run -n rl torchrun --nproc_per_node 2 train.py": (
        f"conda -v run --no-capture-output -n rl python {RUN} {MEETING} train.py"
    ),
    "torchrun --no_python --nproc_per_node 2 pytest -q": (
        f"<python> {RUN} {MEETING} --no_python pytest -q"
    ),
}


@pytest.mark.parametrize("line", PLANS)
def test_the_words_of_a_line_stay_where_they_were(line: str, project: Project) -> None:
    assert argv_of(project, line) == PLANS[line]
    assert_same_job(project, line.split(" "))


def test_a_script_is_missed_where_python_runs_it(project: Project) -> None:
    job = "launcher: torchrun\nprocesses: 2\nscript: nothere\n"
    assert "does not exist" in project.refused(job).message
    named = job.replace("nothere", "nothere.py") + "launcher_args: {no_python: true}\n"
    assert "does not exist" in project.refused(named).message
    path = "script: ./nothere\nlauncher_args: {no_python: true}\n"
    assert "does not exist" in project.refused(job.replace("script: nothere\n", path)).message


def test_options_of_python_need_one(project: Project) -> None:
    job = "launcher: command\ncommand: [make]\npython_options: [-O]\n"
    assert project.refused(job).message == "launcher `command` runs no Python here"
