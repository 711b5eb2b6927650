"""`--after RUN` and `--after-any RUN`: the runs that must have ended before another begins."""

# ruff: noqa: PLC0415 - a start without them does without

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.cli.plan_options import earlier_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.model import Plan
    from safelaunch.runtime.records import EarlierRun
    from safelaunch.start.conditions.earlier_runs import WaitingPlan


def waiting_plan(
    plan: Plan,
    options: dict[str, Any],
    hosts: Sequence[str] = (),
    inputs: tuple[tuple[EarlierRun, ...], ...] = (),
) -> WaitingPlan:
    """Return a plan with the runs that the options name.

    `hosts` are those of its nodes; `inputs` are earlier steps of each, whose outputs it needs.
    Raises ConfigError, and Refused where one has failed already.
    """
    names = earlier_names(options)
    from safelaunch.start.conditions.earlier_runs import WaitingPlan, after_runs

    if not names:
        return WaitingPlan(plan, inputs)
    from safelaunch.cli.connections import catalog
    from safelaunch.cli.output import say

    runs = catalog()
    waiting = after_runs(plan, [(runs.find(name), is_any) for name, is_any in names], hosts)
    live = [end.run for end in waiting.after[0] if not end.has_ended]
    if live and not hosts and plan.engine is None:
        say(f"note: waits for {', '.join(live)}; then it runs the project's files as they are then")
    if inputs:
        after = tuple(a + b for a, b in zip(waiting.after, inputs, strict=True))
        waiting = waiting._replace(after=after)
    return waiting
