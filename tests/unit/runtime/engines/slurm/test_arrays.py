"""Arrays of Slurm: the option of sbatch, what a site allows, and the tasks that it lists."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.engines.slurm import arrays, engine, jobs

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = "#!/bin/bash\n#SBATCH --array=0-1000%4\necho '#SBATCH --array=0-1'\n"


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [([3], "3"), ([0, 1, 2], "0-2"), ([0, 2, 3, 7], "0,2-3,7"), ([4, 5, 6, 9, 10], "4-6,9-10")],
)
def test_numbers_of_tasks_are_ranges(numbers: list[int], shown: str) -> None:
    assert arrays.ranges(numbers) == shown


def test_a_script_of_missing_parts_keeps_its_limit_and_its_commands() -> None:
    assert arrays.with_tasks(SCRIPT, [1, 2, 8]) == SCRIPT.replace("0-1000%4", "1-2,8%4", 1)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("MaxArraySize            = 1001", ""),
        ("MaxArraySize = 1000", "1001 parts are tasks of one array, and MaxArraySize of"),
        ("MaxJobCount = 10", ""),
    ],
)
def test_an_array_may_have_as_many_tasks_as_the_site_says(
    tmp_path: Path, words: str, problem: str
) -> None:
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\necho '{words}'\n")
    program.chmod(0o755)
    text = arrays.problem(SCRIPT, [], {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert text.startswith(problem)
    assert bool(text) == bool(problem)


def _task(number: str, state: str, reason: str = "") -> jobs.SlurmJob:
    return jobs.SlurmJob(id=f"7_{number}", number="8", array="7", state=state, reason=reason)


def test_an_array_works_while_a_task_does_and_has_failed_where_one_has() -> None:
    rows = {
        ("COMPLETED", "RUNNING", "PENDING"): "RUNNING",
        ("FAILED", "PENDING"): "PENDING",
        ("COMPLETED", "TIMEOUT"): "FAILED",
        ("COMPLETED", "COMPLETED"): "COMPLETED",
    }
    for states, state in rows.items():
        tasks = [_task(str(index), word) for index, word in enumerate(states)]
        job = jobs.gather([jobs.SlurmJob(id="6", number="6"), *tasks], "7")
        assert job is not None
        assert (job.state, len(job.tasks)) == (state, len(states))


def test_a_task_is_found_in_a_range_and_a_silent_slurm_knows_of_none() -> None:
    job = jobs.gather([_task("[3-5%2]", "PENDING", reason="Priority")], "7")
    task = engine.task(job, 4)
    assert task is not None
    assert (task.state, task.reason) == ("PENDING", "Priority")
    assert engine.task(job, 6) is None
    silent = jobs.SlurmJob(problem="squeue: no answer")
    assert engine.task(silent, 4) is silent
