"""What the text of a command makes of failures below its shell."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.ended_node import ENDED_WELL, START, Node, error

from safelaunch.runtime.records import PlannedNode, PlanRecord

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.run.update({"single": "shell", "cwd": str(tmp_path), "created_at": START / 1e9})
    return node


def command(node: Node, *words: str) -> None:
    PlanRecord(nodes=[PlannedNode(argv=list(words))]).write(str(node.path))


def step(node: Node, program: str, number: int = 0, code: int = 1) -> None:
    seconds = number / 1000
    node.marked(0, number, seconds, program=program)
    after = {"kind": "exit", "time_ns": START + int((seconds + 0.5) * 1e9), "pid": 1000}
    raised = [error(0, "ValueError", f"in {program}", seconds * 1000 + 400)] if code else []
    node.record(0, *raised, after, restart=number)


def test_a_failure_that_the_shell_handles_is_a_warning(node: Node) -> None:
    command(node, "bash", "-c", "python a.py || echo skipped; echo done")
    step(node, "a.py")
    warning = "the shell handled a failure: a.py: ValueError: in a.py"
    assert node.find(ENDED_WELL) == ({}, [warning])


@pytest.mark.parametrize("script", ["python a.py | tee log", "eval 'python a.py || true'"])
def test_what_the_shell_loses_or_hides_from_the_reader_is_a_failure(
    node: Node, script: str
) -> None:
    command(node, "bash", "-c", script)
    step(node, "a.py")
    failure, warnings = node.find(ENDED_WELL)
    assert failure["what"] == "ValueError: in a.py"
    assert "`set -o pipefail`" in warnings[-1]


@pytest.mark.parametrize(
    ("script", "is_told"),
    [
        ("python a.py; python b.py", True),
        ("python a.py || python b.py", False),
        ("for x in 1 2; do python a.py && break; done; python b.py", False),
    ],
)
def test_an_earlier_step_that_nothing_looked_at_is_a_warning(
    node: Node, script: str, is_told: bool
) -> None:
    command(node, "bash", "-c", script)
    step(node, "a.py")
    step(node, "b.py", 1000, code=0)
    failure, warnings = node.find(ENDED_WELL)
    assert (failure, len(warnings)) == ({}, int(is_told))


@pytest.mark.parametrize(("seconds", "is_failure"), [(-10, False), (10, True)])
def test_a_script_that_was_changed_after_the_start_shows_nothing(
    node: Node, seconds: int, is_failure: bool
) -> None:
    script = node.path / "run.sh"
    script.write_text("python a.py || true\n")
    os.utime(script, ns=(START, START + seconds * 10**9))
    command(node, "bash", "run.sh")
    step(node, "a.py")
    assert bool(node.find(ENDED_WELL)[0]) is is_failure


def test_a_pipe_in_place_of_a_script_is_not_opened(node: Node) -> None:
    os.mkfifo(node.path / "run.sh")
    command(node, "bash", "run.sh")
    step(node, "a.py")
    assert node.find(ENDED_WELL)[0]["what"] == "ValueError: in a.py"


def test_a_shell_that_ended_badly_has_handled_nothing(node: Node) -> None:
    command(node, "bash", "-c", "python a.py || true; exit 3")
    step(node, "a.py")
    assert node.find(dict(ENDED_WELL, exit_code=3))[0]["what"] == "ValueError: in a.py"
