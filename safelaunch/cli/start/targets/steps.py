"""Starts the steps of a file: one run for each at once, the later ones waiting for the earlier."""

# ruff: noqa: PLC0415 - a start on one kind of machine does without the others

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json, report, say
from safelaunch.cli.plan_text.plan import print_warnings
from safelaunch.cli.start.targets.after_start import say_notes, start_json
from safelaunch.cli.start.targets.earlier_runs import waiting_plan
from safelaunch.cli.start.targets.local import interruptible
from safelaunch.errors import ConfigError, SafelaunchError
from safelaunch.plan.steps import step_plan
from safelaunch.runtime.records import EarlierRun
from safelaunch.start.caller import caller
from safelaunch.start.conditions.earlier_runs import step_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.config.resolve import Resolved, ResolvedStep
    from safelaunch.model import Plan
    from safelaunch.start.caller import Caller, Started

    Start = Callable[["StepStart"], Started]


class StepStart(NamedTuple):
    """One step that is to be started, by a caller that knows what it waits for."""

    name: str
    plan: Plan
    by: Caller
    resolved: Resolved | None = None  # None: again, from its record

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts of its nodes, each once; none for this machine."""
        if self.resolved is None or not self.resolved.flags.remote:
            return ()
        return tuple(dict.fromkeys(host.name for host in self.resolved.hosts))


def run_steps(name: str, steps: Sequence[ResolvedStep], options: dict[str, Any]) -> int:
    """Start the steps on this machine, or submit them; return the exit code of the command."""
    planned = _planned(name, steps, options)
    for step in planned:
        _check(step, options)
    return start_all(planned, start_here, options)


def remote_steps(name: str, steps: Sequence[ResolvedStep], options: dict[str, Any]) -> int:
    """Start the steps on their hosts; return the exit code of the command."""
    from safelaunch.cli.start.targets import remote

    planned = _planned(name, steps, options)

    def start(step: StepStart) -> Started:
        if step.resolved is None:
            raise TypeError("a step without its job")
        return remote.start_plan(step.resolved, step.plan, step.by, options)

    return start_all(planned, start, options)


def _planned(name: str, steps: Sequence[ResolvedStep], options: dict[str, Any]) -> list[StepStart]:
    """Return what is to be started, with the ids that the runs will have. Raises ConfigError."""
    refused = [option for option in ("key", "resume", "resume_from", "foreground")
               if options.get(option)]  # fmt: skip
    if refused:
        option = "--id" if refused[0] == "key" else f"--{refused[0].replace('_', '-')}"
        hint = "safelaunch rerun GROUP goes on from the step that has failed"
        raise ConfigError(f"`{option}` is for a single job, and this file has `steps`", hint=hint)
    by = caller(os.environ)
    group = by.run_id(name)
    callers = {
        step.name: by.of_step(group, step.name, number) for number, step in enumerate(steps, 1)
    }
    ids = {step.name: callers[step.name].run_id(step.resolved.job.name) for step in steps}
    planned: dict[str, StepStart] = {}
    for step in steps:
        plan = step_plan(step, ids)
        start = StepStart(step.name, plan, callers[step.name], step.resolved)
        if not step.after:
            plan, after = waiting_plan(plan, options, start.hosts)
        else:
            after = _after(step, start, planned, ids)
        planned[step.name] = start._replace(plan=plan, by=start.by._replace(after=after))
    return list(planned.values())


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


def start_here(step: StepStart, files: Mapping[str, bytes] = MappingProxyType({})) -> Started:
    """Start a step on this machine, or submit it, with further `files` of its folder."""
    print_warnings(step.plan, is_start=True)
    if step.plan.engine is not None:
        from safelaunch.start import engine

        return engine.submit(step.plan, step.by, files)
    from safelaunch.start import local

    return local.start(step.plan, step.by, more=files)


def start_all(steps: Sequence[StepStart], start: Start, options: dict[str, Any]) -> int:
    """Start all steps, or leave none running; return the exit code of the command."""
    group = steps[0].by.group
    started: list[Started] = []
    with interruptible():
        try:
            started += (start(step) for step in steps)
        except BaseException:
            _stop([done.run for done in started])
            raise
    return _show(group, steps, started, options)


def _stop(runs: Sequence[Any]) -> None:
    """Stop what was started before a step that cannot be, the last first."""
    access = catalog()
    for run in reversed(runs):
        say(f"stopping {run.id}: a step after it was not started")
        try:
            access.open(run).stop(5.0)
        except SafelaunchError as e:
            report(e)


def _show(
    group: str, steps: Sequence[StepStart], started: Sequence[Started], options: dict[str, Any]
) -> int:
    runs = catalog()
    for done in started:
        say_notes(done)
    if options["as_json"]:
        shown = [
            {"step": step.name, **start_json(done, runs.open(done.run))}
            for step, done in zip(steps, started, strict=True)
        ]
        print_json({"version": 1, "group": group, "steps": shown})
        return 0
    if any(step.by.after and not step.hosts and step.plan.engine is None for step in steps):
        say("note: a step runs the project's files as they are when it begins")
    click.echo(f"started {group}: {', '.join(step.name for step in steps)}")
    for step, done in zip(steps, started, strict=True):
        after = ", ".join(earlier.step or earlier.run for earlier in step.by.earlier_runs(0))
        click.echo(f"  {step.name:<8}  {done.run.id}" + (f", after {after}" if after else ""))
    if options["follow"]:
        from safelaunch.cli.runs import groups
        from safelaunch.cli.start.targets.after_start import keeps_running

        run_group = groups.find_group(group)
        try:
            return 1 if run_group is None else groups.follow_all(run_group)
        except KeyboardInterrupt:
            return keeps_running(group)
    for word, command in (("follow", "logs -f"), ("wait", "wait"), ("stop", "stop")):
        click.echo(f"  {word:<8}  safelaunch {command} {group}")
    return 0
