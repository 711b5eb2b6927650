"""Cases for checks: a job, facts and answers as a test gives them; short ways to what is said."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from safelaunch.checks import machines, run
from safelaunch.checks.run import Case, Result, Site
from safelaunch.model import Host
from safelaunch.plan.build import make_plan
from safelaunch.runtime.facts import commands, questions
from support.project import Project

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from safelaunch.config.resolve import Flags

Answers = dict[tuple[Any, ...], Any]


def case_of(
    project: Project | None,
    job: str | None,
    *,
    flags: Flags | None = None,
    facts: dict[str, Any] | list[dict[str, Any]] | None = None,
    answers: Answers | list[Answers] | None = None,
    environ: Mapping[str, str] | None = None,
    is_quick: bool = False,
) -> Case:
    """Return a case for a job, or for a machine alone.

    `facts` and `answers` are of the one machine, or a list for several. An answer that is not given
    is asked of this machine, as the probe would; `{"skip": why}` is one that could not be told.
    """
    made = Case(is_quick=is_quick, environ=environ or {})
    sites = [Site(Host("localhost"), case=made)]
    if job is not None:
        assert project is not None
        resolved = project.resolve(job, flags)
        made = machines.for_plan(resolved, make_plan(resolved), environ or {}, is_quick=is_quick)
        sites = list(made.sites)
    made = run.joined(made, sites)
    known = facts if isinstance(facts, list) else [facts or {}] * len(sites)
    said = answers if isinstance(answers, list) else [answers or {}] * len(sites)
    told = [
        (known[rank], _parts(site, said[rank]), run.questions(made, site))
        for rank, site in enumerate(made.sites)
    ]
    return run.with_facts(made, told)


def _parts(site: Site, answers: Answers) -> dict[str, Any]:
    wanted = run.questions(site.case, site)
    asks = run.request(site, wanted)
    cwd = asks["cwd"] or "."
    finder = questions.Finder(PYTHON, cwd, asks["pythonpath"])
    works = questions.parts(cwd, asks["asks"], finder)
    parts = {}
    for at, question in enumerate(wanted):
        if question in answers:
            given = answers[question]
            is_skip = isinstance(given, dict) and "skip" in given
            parts[f"ask.{at}"] = given if is_skip else {"value": given}
            continue
        try:
            parts[f"ask.{at}"] = {"value": works[f"ask.{at}"]()}
        except commands.Skip as e:
            parts[f"ask.{at}"] = {"skip": str(e)}
    return parts


def said(case: Case, *ids: str) -> list[Result]:
    """Return what checks say, all or those of these ids."""
    return [result for result in run.run(case) if not ids or result.id in ids]


def only(case: Case, id: str) -> Result:  # noqa: A002 - the field's name
    """Return the one thing that a check says."""
    found = said(case, id)
    assert len(found) == 1, found
    return found[0]


def project_at(folder: Path) -> Project:
    """Return a project in a folder of its own."""
    return Project(folder / "project")


PYTHON = sys.executable
