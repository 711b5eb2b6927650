"""A plan whose project lies in another folder of its host than the plan says at first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.config.resolve import Flags, resolve_steps
from safelaunch.plan.build import make_plan, move_project
from safelaunch.plan.serialize import freeze
from safelaunch.plan.steps import step_plan

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import Plan

FLAGS = Flags(remote=True, hosts=("gpu1",))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def _words(plan: Plan) -> list[str]:
    return [str(word) for word in plan.nodes[0].argv]


def test_the_services_move_with_their_job(project: Project) -> None:
    text = (
        "launcher: python\nscript: train.py\nargs: {url: '{services.server.url}'}\nservices:\n"
        "  server: {launcher: python, script: train.py, args: ['{services.server.port}']}\n"
    )
    resolved = project.resolve(text, FLAGS)
    moved = move_project(make_plan(resolved), resolved, ["/data/project-2"])
    (service,) = moved.services
    assert str(moved.nodes[0].cwd) == str(service.plan.nodes[0].cwd) == "/data/project-2"
    assert _words(moved)[-1] == "<services.server.url>"
    assert _words(service.plan)[-1] == "<services.server.port>"


def test_a_step_that_moves_has_the_outputs_of_earlier_steps(project: Project) -> None:
    steps = {"train": {}, "export": {"args": ["{steps.train.log}"]}}
    job = {"launcher": "python", "script": "train.py", "steps": steps}
    project.write(json.dumps(job))
    _, (_, export) = resolve_steps("job.yaml", FLAGS, str(project.folder))
    plan = step_plan(export, {"train": "job-train"})
    moved = move_project(plan, export.resolved, ["/data/project-2"])
    assert _words(moved)[-1] == "<steps.train.log>"
    assert freeze(moved.nodes[0].argv) == freeze(plan.nodes[0].argv)
