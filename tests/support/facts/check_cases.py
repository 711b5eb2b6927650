"""Contexts for checks from a job, facts and answers, and the results of checks on them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from safelaunch.checks import machines, run
from safelaunch.checks.context import CheckContext, HostContext
from safelaunch.checks.run import HostReply
from safelaunch.model import Host
from safelaunch.plan.build import make_plan
from safelaunch.runtime.facts import commands, questions
from support.project import Project

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from safelaunch.checks.registry import CheckResult
    from safelaunch.config.resolve import Flags

Answers = dict[tuple[Any, ...], Any]


def make_context(
    project: Project | None,
    job: str | None,
    *,
    flags: Flags | None = None,
    facts: dict[str, Any] | list[dict[str, Any]] | None = None,
    answers: Answers | list[Answers] | None = None,
    environ: Mapping[str, str] | None = None,
    is_quick: bool = False,
) -> CheckContext:
    """Return the context of a job, or of a machine alone.

    `facts` and `answers` are of one machine, or a list for several. Questions without an answer
    are put to this machine, as the probe would; `{"skip": why}` is an answer that is not known.
    """
    context = CheckContext(is_quick=is_quick, environ=environ or {})
    hosts = [HostContext(Host("localhost"))]
    if job is not None:
        assert project is not None
        resolved = project.resolve(job, flags)
        context = machines.for_plan(resolved, make_plan(resolved), environ or {}, is_quick=is_quick)
        hosts = list(context.hosts)
    context = run.with_hosts(context, hosts)
    host_facts = facts if isinstance(facts, list) else [facts or {}] * len(hosts)
    host_answers = answers if isinstance(answers, list) else [answers or {}] * len(hosts)
    replies = [
        HostReply(host_facts[rank], _parts(host, host_answers[rank]), run.questions(host))
        for rank, host in enumerate(context.hosts)
    ]
    return run.attach_answers(context, replies)


def _parts(host: HostContext, answers: Answers) -> dict[str, Any]:
    host_questions = run.questions(host)
    request = run.request(host, host_questions)
    cwd = request["cwd"] or "."
    finder = questions.Finder(PYTHON, cwd, request["pythonpath"])
    probe_parts = questions.parts(cwd, request["asks"], finder)
    parts = {}
    for index, question in enumerate(host_questions):
        if question in answers:
            answer = answers[question]
            is_skip = isinstance(answer, dict) and "skip" in answer
            parts[f"ask.{index}"] = answer if is_skip else {"value": answer}
            continue
        try:
            parts[f"ask.{index}"] = {"value": probe_parts[f"ask.{index}"]()}
        except commands.Skip as e:
            parts[f"ask.{index}"] = {"skip": str(e)}
    return parts


def results_of(context: CheckContext, *ids: str) -> list[CheckResult]:
    """Return the results of all checks, or of those with these ids."""
    return [result for result in run.run(context) if not ids or result.id in ids]


def result_of(context: CheckContext, id: str) -> CheckResult:  # noqa: A002 - the field's name
    """Return the only result of a check."""
    results = results_of(context, id)
    assert len(results) == 1, results
    return results[0]


def project_at(folder: Path) -> Project:
    """Return a project in a folder of its own."""
    return Project(folder / "project")


PYTHON = sys.executable
