"""The plan of a step: its job's, with a late value for each output of an earlier step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.model import Dependency
from safelaunch.plan.build import make_plan
from safelaunch.plan.members.words import with_step_outputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.resolve import ResolvedStep
    from safelaunch.model import Plan


def step_plan(step: ResolvedStep, runs: Mapping[str, str]) -> Plan:
    """Return the plan of a step; `runs` are the names or ids of the earlier ones."""
    plan = with_step_outputs(make_plan(step.resolved))
    plan = replace(plan, after=tuple(Dependency(runs[name]) for name in step.after))
    check_dependencies(plan)
    return plan


def check_dependencies(plan: Plan) -> None:
    """Refuse a plan that waits for runs where nothing can wait for them. Raises ConfigError."""
    if not plan.after:
        return
    where = plan.job_file or None
    hint = "start it once they have ended: safelaunch wait RUN && safelaunch run ..."
    name = plan.engine.engine_name if plan.engine else ""
    if name not in ("", "slurm"):
        what = f"{name} starts a job at once: it cannot wait for other runs"
        raise ConfigError(what, where=where, hint=hint)
    if any(node.container is not None for node in plan.nodes):
        what = "a job in a container cannot wait for runs: its supervisor sees no others there"
        raise ConfigError(what, where=where, hint=hint)
