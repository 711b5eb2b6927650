"""Checks the variables that a job or its hosts set, and shows what its plan warns about besides.

The rules are those of `lint` and of the plan (lint/env). Here the versions of the host are known,
so that a name is judged by the library that would read it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.checks.answers import Answer, NotKnown, ok, warn
from safelaunch.checks.hardware import profile_fit
from safelaunch.checks.registry import check
from safelaunch.hostfacts import profile_detection
from safelaunch.plan import warnings as plan_warnings
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.context import CheckContext, HostContext
    from safelaunch.model import PlanWarning

_VARIABLE = "env-"  # how the ids of problems of variables begin
_NAMES = ("env-never-existed", "env-unknown", "env-removed")  # of the name, not of the value
_ELSEWHERE = ("undeclared-fact",)  # `profile-facts` reads the versions of the host


def _problems(host: HostContext) -> Iterator[PlanWarning]:
    """Yield what is wrong with the variables of the job and the host, by the host's versions."""
    env, profile = host.plan.env, host.profile
    facts = {**profile_detection.gate_facts(host.facts), **host.entry.facts}
    count = host.ranks or 1
    selection = None if profile is None else profile_fit.select(host, profile, facts, count)
    # a launcher that sets a variable for each rank itself leaves it out of the plan
    own = replace(host.job, env=tuple(var for var in host.job.env if var.name in env))
    entry = replace(host.entry, facts=facts)
    return plan_warnings.job_variables(own, profile, selection, env, entry)


@check("variables", once=True)
def variables(context: CheckContext) -> list[Answer] | Answer | None:
    """Whether libraries read the variables that the job or its hosts set, and accept the values."""
    names = {var.name for var in context.job.env if var.value is not None}
    names |= {var.name for host in context.hosts for var in host.entry.env if var.value is not None}
    if not names:
        return None
    warnings = dict.fromkeys(problem for host in context.hosts for problem in _problems(host))
    problems = [problem for problem in warnings if not _is_own(context, problem)]
    return [_answer(problem) for problem in problems] or ok(
        f"{quantity(len(names), 'variable')} of the job"
    )


def _is_own(context: CheckContext, problem: PlanWarning) -> bool:
    """Whether the program itself reads the variable, which then is none of a library."""
    if problem.id not in _NAMES:
        return False
    try:
        return context.project_files.reads_variable(problem.message.split("`")[1])
    except NotKnown:
        return False


@check("plan", once=True)
def plan(context: CheckContext) -> Iterator[Answer] | None:
    """Whether the plan has no other warnings: those that a dry-run prints."""
    if context.plan is None:
        return None
    return (
        _answer(warning)
        for warning in context.plan.warnings
        if not warning.id.startswith(_VARIABLE) and warning.id not in _ELSEWHERE
    )


def _answer(warning: PlanWarning) -> Answer:
    where = f" ({warning.where})" if warning.where else ""
    return warn(f"{warning.message}{where}", warning.fix)
