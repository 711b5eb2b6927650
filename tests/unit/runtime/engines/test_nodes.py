"""The nodes of a run on an engine, by what they and the engine have recorded."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from safelaunch.cli.runs import show
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.runtime.engines import current, nodes
from safelaunch.runtime.engines.slurm import batch_log
from safelaunch.runtime.engines.slurm.jobs import SlurmJob
from safelaunch.runtime.engines.slurm.query import SlurmAnswer, SlurmAnswers
from safelaunch.runtime.records import EngineJob, RunRecord, Status

if TYPE_CHECKING:
    from pathlib import Path

RUN = "run-20260102-030405-abcd"


def run_folder(home: Path, job: SlurmJob, own: Status | None) -> Path:
    """Return the folder of a run of one node, about whose job Slurm has just been asked."""
    folder = home / "runs" / RUN
    node = folder / "node-0"
    node.mkdir(parents=True)
    EngineJob(name="slurm", job="7").write(str(node))
    RunRecord(id=RUN, name="run").write(str(node))
    if own is not None:
        own.write(str(node))
    answer = SlurmAnswer(job=job, asked_at=time.time(), wanted_at=time.time())
    SlurmAnswers(version=1, answers={"7": answer}).write(str(home))
    return folder


def test_a_failure_that_only_slurm_tells_of_is_in_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SlurmJob(id="7", state="TIMEOUT", time_limit=60.0)
    run_folder(tmp_path, job, Status(id=RUN, state="lost", started_at=time.time()))
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path))
    show.command.main(["--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["failure"]["class"] == "time-limit"


def interrupted(home: Path, squeue: str, submitted_at: float) -> tuple[Path, EngineJob]:
    """Return the folder of a run whose start ended before it knew the job; `squeue` is a script."""
    folder = run_folder(home, SlurmJob(id="7", state="RUNNING", started_at=time.time()), None)
    program = home / "squeue"
    program.write_text(f"#!/bin/sh\n{squeue}\n")
    program.chmod(0o755)
    job = EngineJob(
        name="slurm", comment=f"safelaunch:{RUN}", submitted_at=submitted_at, prefix=[str(program)]
    )
    job.write(str(folder / "node-0"))
    return folder, job


def test_a_start_that_was_interrupted_finds_its_job_by_the_comment(tmp_path: Path) -> None:
    squeue = f"echo '7|safelaunch:{RUN}'; echo '8|other'"
    folder, _ = interrupted(tmp_path, squeue, time.time())
    (node,) = nodes.nodes(str(folder))
    job = EngineJob.read(str(folder / "node-0"))
    assert (job and job.job, node.status.state) == ("7", "pending")


@pytest.mark.parametrize(
    ("squeue", "age", "state"),
    [
        ("echo '8|other'", 0.0, "pending"),
        ("echo '8|other'", 1000.0, "lost"),
        ("exit 1", 1000.0, "unknown"),
    ],
    ids=["not yet", "not there", "no answer"],
)
def test_a_start_that_was_interrupted_is_lost_once_slurm_says_that_it_has_no_job(
    tmp_path: Path, squeue: str, age: float, state: str
) -> None:
    folder, _ = interrupted(tmp_path, squeue, time.time() - age)
    assert [node.status.state for node in nodes.nodes(str(folder))] == [state]


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
    own = Status(id=RUN, state="lost", started_at=time.time())
    folder = run_folder(tmp_path, SlurmJob(id="7", state="FAILED", exit_code=137), own)
    (folder / batch_log.NAME).write_text(f"{line}\n")
    (node,) = nodes.nodes(str(folder))
    assert node.status.state == expected
    assert (node.failure is not None and node.failure.class_name == "host-oom") is (
        expected == "failed"
    )


@pytest.mark.parametrize("name", ["", "flux"])
def test_a_run_of_an_engine_that_is_not_known_shows_what_it_has_recorded(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Status(id=RUN, state="running", started_at=time.time())
    folder = run_folder(tmp_path, SlurmJob(id="7", state="RUNNING"), own)
    EngineJob(name=name, job="7").write(str(folder / "node-0"))
    assert [node.status.state for node in nodes.nodes(str(folder))] == ["running"]
    assert current.batch_log_alone(str(folder)) is None
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path))
    show.command.main([RUN], standalone_mode=False)
    assert "running" in capsys.readouterr().out


def test_no_log_is_complete_while_slurm_may_queue_the_run_again(tmp_path: Path) -> None:
    """A stop of node 0 by Slurm reaches node 1 through node 0, before Slurm tells what follows."""
    job = SlurmJob(id="7", state="RUNNING", started_at=time.time())
    stop = Status(id=RUN, state="stopped", stopped_by="SIGTERM", started_at=time.time())
    folder = run_folder(tmp_path, job, stop)
    (folder / "node-1").mkdir()
    RunRecord(id=RUN, name="run", node=1).write(str(folder / "node-1"))
    Status(id=RUN, state="stopped", stopped_by="node").write(str(folder / "node-1"))
    assert not agent_runs.is_log_complete(str(folder / "node-1"))
    Status(id=RUN, state="succeeded").write(str(folder / "node-0"))
    assert agent_runs.is_log_complete(str(folder / "node-1"))
