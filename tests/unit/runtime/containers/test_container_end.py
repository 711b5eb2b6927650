"""What is recorded of the end of a container, by the words of an engine that is a small program."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime import processes, run_state
from safelaunch.runtime.containers import container_end
from safelaunch.runtime.records import (
    AttemptRecord,
    ContainerEnd,
    ContainerStart,
    Failure,
    Process,
    RunRecord,
    Status,
)

if TYPE_CHECKING:
    from pathlib import Path

NOT_THERE = 'echo "Error: No such container: r1" >&2; exit 1'
NO_ANSWER = 'echo "Cannot connect to the Docker daemon" >&2; exit 1'


def run_dir(folder: Path, script: str) -> str:
    """Write the folder of a run whose supervisor is gone; the engine runs `script` for inspect."""
    program = folder / "engine"
    program.write_text(f'#!/bin/sh\n[ "$1" = inspect ] || exit 0\n{script}\n')
    program.chmod(0o755)
    node = folder / "runs" / "r1" / "node-0"
    node.mkdir(parents=True)
    container = ContainerStart(engine=str(program), name="r1")
    RunRecord(id="r1", container=container, hostname=os.uname().nodename).write(str(node))
    supervisor = processes.identity(os.getpid())
    supervisor.start = 1  # of an earlier process with this pid
    attempts = [AttemptRecord(attempt=1)]
    hostname = os.uname().nodename
    status = Status(
        id="r1", state="running", supervisor=supervisor, attempts=attempts, hostname=hostname
    )
    status.write(str(node))
    return str(node)


def says(**state: object) -> str:
    return f"echo '{json.dumps([{'State': state}])}'"


@pytest.mark.parametrize(
    ("script", "state", "reason"),
    [
        (says(Running=False, ExitCode=137), "exited", "was killed with its container"),
        (says(Running=False, ExitCode=1), "exited", "exited with 1"),
        (NOT_THERE, "removed", "was removed"),
    ],
)
def test_a_run_without_an_end_is_lost_with_the_engines_reason(
    tmp_path: Path, script: str, state: str, reason: str
) -> None:
    node = run_dir(tmp_path, script)
    status = run_state.current_status(node)
    end = ContainerEnd.read(node)
    assert end is not None
    assert (status.state, end.state) == ("lost", state)
    assert reason in (status.reason or "")


def test_memory_is_a_failure_of_its_class(tmp_path: Path) -> None:
    node = run_dir(tmp_path, says(Running=False, ExitCode=137, OOMKilled=True))
    status, failure = run_state.current_status(node), Failure.read(node)
    assert (status.state, status.exit_code) == ("failed", 137)
    assert failure is not None
    assert (failure.class_name, failure.proof) == ("host-oom", f"OOMKilled of {tmp_path}/engine")


def test_memory_that_ended_something_else_before_is_no_reason(tmp_path: Path) -> None:
    node = run_dir(tmp_path, says(Running=False, ExitCode=143, OOMKilled=True))
    assert run_state.current_status(node).state == "lost"


def test_an_engine_that_does_not_answer_settles_nothing(tmp_path: Path) -> None:
    node = run_dir(tmp_path, NO_ANSWER)
    assert run_state.current_status(node).reason == "the supervisor is gone"
    assert ContainerEnd.read(node) is None


def test_a_container_that_runs_is_not_settled(tmp_path: Path) -> None:
    node = run_dir(tmp_path, says(Running=True, Pid=os.getpid()))
    assert container_end.settle(node, is_late=True) is None


def test_an_engine_that_has_missed_the_end_is_corrected_late(tmp_path: Path) -> None:
    node = run_dir(tmp_path, says(Running=True, Pid=1 << 22))
    assert container_end.settle(node) is None
    end = container_end.settle(node, is_late=True)
    assert end is not None
    assert "has not noticed" in (end.error or "")


def test_a_run_is_no_more_lost_while_its_container_is_being_settled(tmp_path: Path) -> None:
    node = run_dir(tmp_path, NOT_THERE)
    ContainerEnd(client=processes.identity(os.getpid())).write(node)
    assert run_state.current_status(node).state == "running"


def test_a_client_that_is_gone_settles_nothing_any_more(tmp_path: Path) -> None:
    node = run_dir(tmp_path, NOT_THERE)
    ContainerEnd(client=Process(pid=1 << 22, start=1)).write(node)
    assert run_state.current_status(node).state == "lost"
