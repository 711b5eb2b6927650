"""The checks before each start: those that take no time. `--no-check` leaves them out."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks import machines, run
from safelaunch.hostfacts import assemble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.checks.answers import Question
    from safelaunch.checks.run import Case, Result, Site
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan
    from safelaunch.runtime.facts.probe import Probe

LIMIT = 2.0  # seconds that a question may take: a file system that hangs is not waited for


class QuickChecks(NamedTuple):
    """Checks under way: a child process answers the questions about this machine."""

    case: Case
    questions: Sequence[Question]
    probe: Probe

    def results(self) -> list[Result]:
        """Return what the checks say, once the child has answered."""
        early = run_early(self.case)
        return results(self.case, [self.questions], [self.probe.told()], early)


def start(
    resolved: Resolved,
    plan: Plan,
    environ: Mapping[str, str],
    python: str | None,
) -> QuickChecks | None:
    """Start to check a job that is to run here; None where the start refuses it anyway.

    `python` answers where the job names no interpreter.
    """
    if not sys.platform.startswith("linux") or len(plan.nodes) > 1:
        return None
    gc.freeze()  # nothing here is garbage yet: not to look through it again, nor the fork's child
    case = machines.for_plan(resolved, plan, environ, is_quick=True)
    site = case.sites[0]
    from safelaunch.runtime.facts.probe import Probe  # noqa: PLC0415 - subprocess

    questions = run.questions(case, site)
    probe = Probe(request(site, questions, site.interpreter or python))
    return QuickChecks(case, questions, probe)


def request(site: Site, questions: Sequence[Question], python: str | None) -> dict[str, Any]:
    """Return what a machine is asked before a start."""
    return {**run.request(site, questions), "python": python, "limit": LIMIT}


def run_early(case: Case) -> list[Result]:
    """Return what can be said before the machines have answered."""
    from safelaunch.hostfacts import gpus  # noqa: PLC0415 - what reads the answers: 20 ms

    del gpus
    return run.early(case)


def results(
    case: Case,
    questions: Sequence[Sequence[Question]],
    answers: Sequence[Mapping[str, Any]],
    early: Sequence[Result],
) -> list[Result]:
    """Return what the checks say of the machines' answers; `early` is what `run_early` returned."""
    facts = [
        (assemble.from_probe(site.name, answer), answer.get("parts") or {}, asked)
        for site, asked, answer in zip(case.sites, questions, answers, strict=True)
    ]
    return run.run(run.with_facts(case, facts), early)
