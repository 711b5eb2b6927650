"""Starts the steps of a file on this machine, on an engine, or on hosts."""

# ruff: noqa: PLC0415 - a start on one kind of machine does without the others

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from safelaunch.cli import start_key
from safelaunch.cli.output import say
from safelaunch.cli.start.targets import step_starts
from safelaunch.cli.start.targets.earlier_runs import waiting_plan
from safelaunch.cli.start.targets.step_starts import StepStart, start_here
from safelaunch.errors import ConfigError
from safelaunch.plan.steps import step_plan
from safelaunch.runtime.records import EarlierRun
from safelaunch.start.caller import caller
from safelaunch.start.conditions.earlier_runs import step_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.config.resolve import Flags, Resolved, ResolvedStep
    from safelaunch.runs.groups import RunGroup
    from safelaunch.start.caller import Started


def run_steps(name: str, steps: Sequence[ResolvedStep], options: dict[str, Any]) -> int:
    """Start the steps on this machine, or submit them; return the exit code of the command."""
    earlier = _earlier(steps, options)
    if earlier is not None:
        return _go_on(earlier, steps, options, "run")
    planned = _planned(name, steps, options)
    step_starts.check_options(planned, options, "run")
    for step in planned:
        _check(step, options)
    return step_starts.start_all(planned, lambda step: start_here(step, options), options)


def remote_steps(
    name: str, steps: Sequence[ResolvedStep], flags: Flags, file: str, options: dict[str, Any]
) -> int:
    """Start the steps of a file on their hosts; return the exit code of the command."""
    from safelaunch.cli.start.targets import group_completion, remote

    earlier = _earlier(steps, options)
    if earlier is not None:
        return _go_on(earlier, steps, options, "remote")
    planned = _planned(name, steps, options)
    step_starts.check_options(planned, options, "remote")

    def start(step: StepStart) -> Started:
        if step.resolved is None:
            raise TypeError("a step without its job")
        return remote.start_plan(step.resolved, step.plan, step.by, options)

    command = group_completion.command_record(file, os.getcwd(), flags, options)
    return step_starts.start_all(planned, start, options, command)


def _earlier(steps: Sequence[ResolvedStep], options: dict[str, Any]) -> RunGroup | None:
    """Return the group that the key of the options has started. Raises ConfigError, Refused."""
    refused = [option for option in ("resume", "resume_from") if options.get(option)]
    if refused:
        option = f"--{refused[0].replace('_', '-')}"
        hint = "safelaunch rerun GROUP --resume goes on from the step that has failed"
        raise ConfigError(f"`{option}` is for a single job, and this file has `steps`", hint=hint)
    names = {step.name: step.name for step in steps}
    plans = {step.name: step_plan(step, names) for step in steps}
    return start_key.earlier_group(plans, options)


def _go_on(
    earlier: RunGroup, steps: Sequence[ResolvedStep], options: dict[str, Any], command: str
) -> int:
    """Start what is missing of a group that was started before, and show it."""
    from safelaunch.cli.runs import groups
    from safelaunch.cli.start.targets import group_completion

    step_starts.check_options((), options, command)
    resolved: dict[str, Resolved] = {step.name: step.resolved for step in steps}
    if group_completion.is_possible(earlier):
        return group_completion.complete(earlier, options, resolved)
    start_key.release()
    if options["as_json"]:
        step_starts.print_earlier(earlier)
        return 0
    say(f"{earlier.id} was started with this key before")
    return (
        step_starts.follow(earlier.id) if options["follow"] else groups.show(earlier, as_json=False)
    )


def _planned(name: str, steps: Sequence[ResolvedStep], options: dict[str, Any]) -> list[StepStart]:
    """Return what is to be started, with the ids that the runs will have. Raises ConfigError."""
    by = caller(os.environ)
    group = by.run_id(name)
    callers = {
        step.name: by.of_step(group, step.name, number) for number, step in enumerate(steps, 1)
    }
    ids = {step.name: callers[step.name].run_id(step.resolved.job.name) for step in steps}
    planned: dict[str, StepStart] = {}
    for step in steps:
        plan = step_plan(step, ids)
        own = callers[step.name]
        start = StepStart(step.name, plan, own, _hosts(step.resolved), step.resolved)
        if not step.after:
            plan, after = waiting_plan(plan, options, start.hosts)
        else:
            after = _after(step, start, planned, ids)
        planned[step.name] = start._replace(plan=plan, by=start.by._replace(after=after))
    return list(planned.values())


def _hosts(resolved: Resolved) -> tuple[str, ...]:
    """Return the hosts of the nodes of a job, each once; none for this machine."""
    if not resolved.flags.remote:
        return ()
    return tuple(dict.fromkeys(host.name for host in resolved.hosts))


def _after(
    step: ResolvedStep, start: StepStart, planned: dict[str, StepStart], ids: dict[str, str]
) -> tuple[tuple[EarlierRun, ...], ...]:
    """Return the runs that each node of a step waits for. Raises ConfigError."""
    nodes: list[list[EarlierRun]] = [[] for _ in start.plan.nodes]
    for name in dict.fromkeys((*step.after, *step.inputs)):
        numbers = step_nodes(start.plan, start.hosts, name, planned[name].hosts)
        for own, number in zip(nodes, numbers, strict=True):
            own.append(EarlierRun(run=ids[name], node=number, step=name))
    return tuple(map(tuple, nodes))


def _check(step: StepStart, options: dict[str, Any]) -> None:
    """Make the quick checks of a step of this machine. Raises Refused."""
    if options["no_check"] or step.plan.engine is not None or step.resolved is None:
        return
    from safelaunch.checks import quick
    from safelaunch.cli.check.quick import report as report_checks
    from safelaunch.remote.hosts.probe_facts import active_python

    checks = quick.start(step.resolved, step.plan, os.environ, active_python(os.environ))
    if checks is not None:
        checks.finish(report_checks)
