"""Options whose values are known only late: the port of a service, a value of a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.facts.check_cases import project_at, results_of
from support.facts.machine_cases import local_context

from safelaunch.checks.machines import for_plan
from safelaunch.config.resolve import Flags, resolve_steps
from safelaunch.plan.steps import step_plan

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

PARSER = (
    "import argparse\n"
    "parser = argparse.ArgumentParser()\n"
    "parser.add_argument('--port', type=int)\n"
    "parser.add_argument('--lr', type=float)\n"
    "parser.add_argument('--loss', type=float)\n"
    "parser.add_argument('--url')\n"
    "args = parser.parse_args()\n"
)
JOB = "launcher: python\nscript: train.py\nprofile: cpu\n"
SERVICES = "services:\n  server: {launcher: command, command: [serve]}\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = project_at(tmp_path)
    project.write(PARSER, "train.py")
    return project


@pytest.mark.parametrize(
    ("keys", "evidence"),
    [
        (
            "args: {port: '{services.server.port}', url: '{services.server.url}'}\n" + SERVICES,
            None,
        ),
        ("args: {port: '{services.server.url}'}\n" + SERVICES, "`--port http://127.0.0.1:20000`"),
        ("args: {lr: '{matrix.lr}', url: u}\nmatrix: {lr: [1e-4, 1e-5]}\n", None),
        ("args: {lr: '{matrix.lr}'}\nmatrix: {lr: [1e-4, fast]}\n", "`--lr fast` is not a number"),
        ("args: {port: '{shard.index}', url: '{shard.output}'}\nshards: 3\n", None),
        # no late word: nothing replaces it
        ("args: {port: '{services.server.port}'}\n", "`--port {services.server.port}`"),
    ],
)
def test_a_late_word_is_judged_by_a_plausible_value(
    project: Project, keys: str, evidence: str | None
) -> None:
    results = results_of(local_context(project, JOB + keys), "flags")
    warnings = [result.evidence for result in results if result.status == "warn"]
    assert len(warnings) == (evidence is not None)
    assert evidence is None or evidence in warnings[0]


def test_the_output_of_an_earlier_step_is_judged_so_too(project: Project) -> None:
    args = "{loss: '{steps.train.metrics.loss}', url: '{steps.train.log}'}"
    project.write(f"{JOB}steps:\n  train: {{}}\n  test: {{args: {args}}}\n")
    _, (_, step) = resolve_steps("job.yaml", Flags(), str(project.folder))
    context = for_plan(step.resolved, step_plan(step, {"train": "job-train"}), {})
    assert [result.status for result in results_of(context, "flags")] == ["ok"]
