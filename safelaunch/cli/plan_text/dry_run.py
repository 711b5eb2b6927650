"""Plans printed without a start, for `run` and `remote`."""

# ruff: noqa: PLC0415 - plan.serialize is imported only to print JSON or a script

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli import plan_options as shared
from safelaunch.cli.output import print_json, report, say
from safelaunch.cli.plan_text.plan import print_explanation, print_plan, print_warnings
from safelaunch.errors import SafelaunchError
from safelaunch.model import Dependency
from safelaunch.plan.build import make_plan, resume
from safelaunch.plan.steps import check_dependencies, step_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.config.resolve import Resolved, ResolvedStep
    from safelaunch.model import Plan


def print_plans(
    targets: Sequence[str], resolve: Callable[[str], Resolved], options: dict[str, Any]
) -> int:
    """Print plans and return the exit code; with several targets each error is reported."""

    def plan_of(target: str) -> tuple[Resolved, Plan]:
        resolved = resolve(target)
        after = tuple(Dependency(*name) for name in shared.earlier_names(options))
        plan = replace(make_plan(resolved), after=after)
        check_dependencies(plan)
        # without reading the run that it resumes
        return resolved, resume(plan) if shared.wants_resume(options) else plan

    if len(targets) == 1:
        resolved, plan = plan_of(targets[0])
        _print_plan(resolved, plan, options)
        return 0
    plans, errors = [], []
    for target in targets:
        try:
            resolved, plan = plan_of(target)
        except SafelaunchError as e:
            errors.append((target, e))
            report(e)
            continue
        plans.append((target, plan))
        if not options["as_json"]:
            click.echo(f"# {target}")
            _print_plan(resolved, plan, options)
    if options["as_json"]:
        from safelaunch.plan.serialize import VERSION, plan_json

        print_json(
            {
                "version": VERSION,
                "plans": [{"file": file, **plan_json(plan)} for file, plan in plans],
                "errors": [
                    {"file": file, "message": e.message, "where": e.where, "hint": e.hint}
                    for file, e in errors
                ],
            }
        )
    if errors:
        say(f"{len(errors)} of {len(targets)} job files have errors")
    return 2 if errors else 0


def print_steps(name: str, steps: Sequence[ResolvedStep], options: dict[str, Any]) -> int:
    """Print the plans of the steps of a file, and return the exit code."""
    names = {step.name: f"step {step.name}" for step in steps}
    after = tuple(Dependency(*run) for run in shared.earlier_names(options))
    plans = [(step, step_plan(step, names)) for step in steps]
    plans = [(step, plan if step.after else replace(plan, after=after)) for step, plan in plans]
    if options["as_json"]:
        from safelaunch.plan.serialize import VERSION, plan_json

        shown = [{"step": step.name, **plan_json(plan)} for step, plan in plans]
        print_json({"version": VERSION, "name": name, "steps": shown})
        return 0
    for number, (step, plan) in enumerate(plans):
        click.echo(f"{chr(10) * bool(number)}# step {step.name}")
        _print_plan(step.resolved, plan, options)
    return 0


def _print_plan(resolved: Resolved, plan: Plan, options: dict[str, Any]) -> None:
    if options["as_json"]:
        from safelaunch.plan.serialize import plan_json

        print_json(plan_json(plan))
    elif options["script"]:
        from safelaunch.plan.serialize import script_of

        for node in plan.nodes:
            click.echo(script_of(plan, node).encode(), nl=False)  # bytes: LF on Windows too
        say("note: a template; a start fills in its `<slots>` and saves the script as launch.sh")
    elif options["explain"]:
        print_explanation(resolved, plan)
    else:
        print_plan(plan)
        return
    if not options["as_json"]:
        print_warnings(plan)
