"""Starts steps: one run for each at once, the later ones waiting for the earlier.

All are recorded before the first is started, and are not once the last one is: where this command
is killed in between, others can say what was not started, and start it.
"""

# ruff: noqa: PLC0415 - a start on one kind of machine does without the others

from __future__ import annotations

import base64
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from safelaunch.cli import start_key
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json, report, say
from safelaunch.cli.plan_text.plan import print_warnings
from safelaunch.cli.start.targets.after_start import (
    check_output,
    earlier_json,
    keeps_running,
    say_notes,
    start_json,
)
from safelaunch.cli.start.targets.local import ForegroundRuns, interruptible
from safelaunch.errors import ConfigError, SafelaunchError
from safelaunch.plan.serialize import freeze
from safelaunch.runs import group_start
from safelaunch.runs.group_start import GroupStart, StepStartRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan
    from safelaunch.runs.groups import RunGroup
    from safelaunch.runs.store import Run
    from safelaunch.start.caller import Caller, Started

    Start = Callable[["StepStart"], Started]


class StepStart(NamedTuple):
    """One step that is to be started, by a caller that knows what it waits for."""

    name: str
    plan: Plan
    by: Caller
    hosts: tuple[str, ...] = ()  # of its nodes, each once; none for this machine
    resolved: Resolved | None = None  # None: from a record
    files: Mapping[str, bytes] = MappingProxyType({})  # further ones of its run directory
    again: str | None = None  # the run on hosts that it starts again

    @property
    def run_id(self) -> str:
        """Return the id of its run."""
        return self.by.run_id(self.plan.name)

    def record(self) -> StepStartRecord:
        """Return what another command needs to start it."""
        files = {name: base64.b64encode(data).decode() for name, data in self.files.items()}
        plan = freeze(self.plan)
        return StepStartRecord(
            self.name, self.run_id, plan, self.hosts, self.by.after, files, self.again
        )


def check_options(steps: Sequence[StepStart], options: dict[str, Any], command: str) -> None:
    """Refuse options that no start of steps has, or not one on these machines."""
    if options["follow"] and options.get("foreground"):
        raise ConfigError("`--follow` and `--foreground` together", hint="give one")
    check_output(options, command)
    if options.get("foreground") and any(step.hosts or step.plan.engine for step in steps):
        what = "`--foreground` is for steps of this machine"
        raise ConfigError(f"{what}, and some run on others", hint="--follow")


def start_here(step: StepStart, options: dict[str, Any]) -> Started:
    """Start a step on this machine, or submit it."""
    print_warnings(step.plan, is_start=True)
    if step.plan.engine is not None:
        from safelaunch.start import engine

        return engine.submit(step.plan, step.by, step.files)
    from safelaunch.start import local

    is_foreground = bool(options.get("foreground"))
    return local.start(step.plan, step.by, more=step.files, foreground=is_foreground)


def start_all(
    steps: Sequence[StepStart],
    start: Start,
    options: dict[str, Any],
    command: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Start all steps, or leave none running; return the exit code of the command.

    `command` is recorded for steps on hosts: it says how their jobs are resolved again.
    """
    by = steps[0].by
    records = tuple(step.record() for step in steps)
    with group_start.start_lock(by.home, by.group), interruptible():
        start_key.record(by.group)
        GroupStart(by.group, records, by.local_time, command).write(by.home)
        try:
            started = start_each(steps, start)
        except BaseException:
            group_start.remove(by.home, by.group)
            start_key.forget()
            raise
        group_start.remove(by.home, by.group)
    return show(by.group, steps, started, options)


def start_each(steps: Sequence[StepStart], start: Start) -> list[Started]:
    """Start steps one after another; where one cannot be, stop those before it."""
    started: list[Started] = []
    try:
        started += (start(step) for step in steps)
    except BaseException:
        _stop([done.run for done in started])
        raise
    return started


def _stop(runs: Sequence[Run]) -> None:
    """Stop what was started before a step that cannot be, the last first."""
    access = catalog()
    for run in reversed(runs):
        say(f"stopping {run.id}: a step after it was not started")
        try:
            access.open(run).stop(5.0)
        except SafelaunchError as e:
            report(e)


def show(
    group: str,
    steps: Sequence[StepStart],
    started: Sequence[Started],
    options: dict[str, Any],
    before: Sequence[tuple[str, Run]] = (),
) -> int:
    """Print what was started, or follow it; `before` are steps that had been started before."""
    start_key.release()
    runs = catalog()
    for done in started:
        say_notes(done)
    if options["as_json"]:
        shown = [{"step": step, **earlier_json(runs.open(run))} for step, run in before]
        shown += [
            {"step": step.name, **start_json(done, runs.open(done.run))}
            for step, done in zip(steps, started, strict=True)
        ]
        print_json({"version": 1, "group": group, "is_new": not before, "steps": shown})
        return 0
    if any(step.by.after and not step.hosts and step.plan.engine is None for step in steps):
        say("note: a step runs the project's files as they are when it begins")
    names = ", ".join(step.name for step in steps)
    if options.get("foreground"):
        return _foreground(group, steps, started)
    click.echo(f"started {group}: {names}")
    for step, done in zip(steps, started, strict=True):
        after = ", ".join(earlier.step or earlier.run for earlier in step.by.earlier_runs(0))
        click.echo(f"  {step.name:<8}  {done.run.id}" + (f", after {after}" if after else ""))
    if options["follow"]:
        return follow(group)
    for word, command in (("follow", "logs -f"), ("wait", "wait"), ("stop", "stop")):
        click.echo(f"  {word:<8}  safelaunch {command} {group}")
    return 0


def print_earlier(group: RunGroup) -> None:
    """Print what `run --json` prints of a group that was started before."""
    runs = catalog()
    steps = [
        {"step": member.step, **earlier_json(group.open(member, runs.open))}
        for member in group.members
    ]
    print_json({"version": 1, "group": group.id, "is_new": False, "steps": steps})


def follow(group: str) -> int:
    """Follow the steps of a group one after another; return the exit code of the command."""
    from safelaunch.cli.runs import groups

    run_group = groups.find_group(group)
    try:
        return 1 if run_group is None else groups.follow_all(run_group)
    except KeyboardInterrupt:
        return keeps_running(group)


def _foreground(group: str, steps: Sequence[StepStart], started: Sequence[Started]) -> int:
    """Follow the steps, which end with this process; return the exit code of the command."""
    runs = ForegroundRuns()
    for done in started:
        runs.add(done)
    say(f"started {group} in the foreground: {', '.join(step.name for step in steps)}")
    code = 0
    for step, done in zip(steps, started, strict=True):
        say(f"--- step {step.name} ({done.run.id})")
        code = max(code, runs.follow(done))
    return runs.exit_code(code)
