"""The nodes of a run on an engine, by what they and the engine have recorded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.engines import nodes
from safelaunch.runtime.engines.slurm import batch_log
from safelaunch.runtime.engines.slurm.jobs import SlurmJob
from safelaunch.runtime.engines.slurm.query import SlurmAnswer, SlurmAnswers
from safelaunch.runtime.records import EngineJob, RunRecord, Status

if TYPE_CHECKING:
    from pathlib import Path


def run_folder(home: Path, job: SlurmJob, own: Status | None) -> Path:
    """Return the folder of a run of one node, about whose job Slurm has just been asked."""
    folder = home / "runs" / "run-1"
    node = folder / "node-0"
    node.mkdir(parents=True)
    EngineJob(name="slurm", job="7").write(str(node))
    RunRecord(id="run-1", name="run").write(str(node))
    if own is not None:
        own.write(str(node))
    answer = SlurmAnswer(job=job, asked_at=time.time(), wanted_at=time.time())
    SlurmAnswers(version=1, answers={"7": answer}).write(str(home))
    return folder


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("slurmstepd-n1: error: StepId=5.0 exceeded memory limit (9 > 8), being killed", "failed"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=5.0.", "failed"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.batch.", "failed"),
        ("srun: error: n1: task 0: Killed", "lost"),
    ],
)
def test_slurms_log_tells_of_a_kill_for_memory_that_no_state_of_the_job_shows(
    tmp_path: Path, line: str, expected: str
) -> None:
    own = Status(id="run-1", state="lost", started_at=time.time())
    folder = run_folder(tmp_path, SlurmJob(id="7", state="FAILED", exit_code=137), own)
    (folder / batch_log.NAME).write_text(f"{line}\n")
    (node,) = nodes.nodes(str(folder))
    assert node.status.state == expected
    assert (node.failure is not None and node.failure.class_name == "host-oom") is (
        expected == "failed"
    )
