"""`queue`: what a plan has of it, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.config.resolve import Flags
from safelaunch.errors import ConfigError
from safelaunch.model import CardQueue
from safelaunch.plan.serialize import plan_json

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import Plan

JOB = "launcher: torchrun\nscript: train.py\ngpus: 2\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def variables(plan: Plan) -> dict[str, str]:
    env = plan.nodes[0].env
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES",
             "CUDA_DEVICE_ORDER")  # fmt: skip
    return {name: str(env[name].value) for name in names if name in env}


@pytest.mark.parametrize(
    ("line", "flags", "queue"),
    [
        ("queue: true", Flags(), CardQueue(0, 2)),
        ("queue: {priority: -5}", Flags(), CardQueue(-5, 2)),
        ("queue: {priority: 7}", Flags(queue=True), CardQueue(7, 2)),
        ("queue: false", Flags(queue=True), CardQueue(0, 2)),
        ("queue: false", Flags(), None),
        ("", Flags(queue=True), CardQueue(0, 2)),
        ("", Flags(), None),
    ],
)
def test_a_job_or_a_flag_asks_the_queue_for_as_many_cards_as_the_job_has(
    project: Project, line: str, flags: Flags, queue: CardQueue | None
) -> None:
    plan = project.plan(f"{JOB}{line}\n", flags)
    assert plan.queue == queue
    assert ("queue" in plan_json(plan)) is (queue is not None)
    assert plan.topology.processes == 2


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("rtx5090", {"CUDA_VISIBLE_DEVICES": "<cards>", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        ("mi300x", {"HIP_VISIBLE_DEVICES": "<cards>"}),
        ("ascend910b", {"ASCEND_RT_VISIBLE_DEVICES": "<cards>"}),
    ],
)
def test_the_variable_of_the_accelerator_has_a_place_for_the_cards(
    project: Project, profile: str, expected: dict[str, str]
) -> None:
    assert variables(project.plan(f"{JOB}queue: true\nprofile: {profile}\n")) == expected


def test_deepspeed_which_names_the_cards_itself_gets_those_of_the_queue(project: Project) -> None:
    job = JOB.replace("torchrun", "deepspeed") + "queue: true\n"
    argv = " ".join(map(str, project.plan(job).nodes[0].argv))
    assert "--include localhost:<cards>" in argv
    with pytest.raises(ConfigError, match="1 process on 2 cards"):
        project.plan(job + "processes: 1\n")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("queue: yes", "expected true, false, or a mapping"),
        ("queue: {priority: 1000}", "expected a whole number from -999 to 999"),
        ("queue: {priority: 1.5}", "expected a whole number"),
        ("queue: {place: 1}", "unknown key `place`"),
        ("queue: true\ngpus: null\nprocesses: 1", "without the number of cards"),
        ("queue: true\ngpus: auto", "without the number of cards"),
        ("queue: true\ngpus: [0, 3]", "the queue chooses the cards"),
        ("queue: true\nprofile: cpu", "has no cards to wait for"),
        ("queue: true\nhosts: [a, b]", "`queue` and several nodes"),
        ("queue: true\nnodes: 2\nnode_rank: 0", "`queue` and several nodes"),
        ("queue: true\ncontainer: {image: pytorch}", "`queue` and `container`"),
        ("queue: true\nenv: {CUDA_VISIBLE_DEVICES: '1'}", "which chooses the cards"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_with_its_place(
    project: Project, lines: str, message: str
) -> None:
    gpus = "" if "gpus" in lines else "gpus: 2\n"
    with pytest.raises(ConfigError, match=message) as caught:
        project.plan(f"launcher: torchrun\nscript: train.py\n{gpus}{lines}\n")
    assert caught.value.where


@pytest.mark.parametrize("engine", ["slurm", "ray"])
def test_an_engine_has_a_queue_of_its_own(project: Project, engine: str) -> None:
    with pytest.raises(ConfigError, match="has one of its own"):
        project.plan(JOB, Flags(engine=engine, queue=True))
