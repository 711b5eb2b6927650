"""Starts the steps of an earlier group again that have not succeeded, for `rerun GROUP`."""

# ruff: noqa: PLC0415 - targets.remote: for hosts only

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.cli.connections import catalog
from safelaunch.cli.output import say
from safelaunch.cli.start.targets.steps import StepStart, start_all, start_here
from safelaunch.errors import ConfigError, Refused, RunError
from safelaunch.model import Plan
from safelaunch.plan.serialize import thaw
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import store
from safelaunch.runtime.records import EarlierRun, PlanRecord, RunRecord
from safelaunch.start.caller import caller
from safelaunch.start.code import rerun_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.runs.access import LocalRun
    from safelaunch.runs.groups import RunGroup
    from safelaunch.start.caller import Started


def recorded_plan(run: LocalRun | RemoteRun) -> Plan:
    """Return the plan of an earlier run. Raises RunError."""
    run.status()  # the record of a run on hosts may lack its plan until then
    node_dir = run.record.node_dir
    record = PlanRecord.read(node_dir)
    plan = thaw(record.unbound) if record else None
    if not isinstance(plan, Plan):
        raise RunError(f"{run.id} has no recorded plan", where=node_dir)
    run_record = RunRecord.read(node_dir)
    if run_record is not None and run_record.job_file:  # that of the plan may be relative
        plan = replace(plan, job_file=run_record.job_file)
    return plan


def step_inputs(run: LocalRun | RemoteRun) -> tuple[tuple[EarlierRun, ...], ...]:
    """Return the earlier steps that each node of a run had; nothing for a run that is no step."""
    nodes = [
        RunRecord.read(store.node_dir(run.record, node)) or RunRecord()
        for node in store.node_numbers(run.record)
    ]
    ends = tuple(tuple(end for end in node.after if end.step) for node in nodes)
    return ends if any(ends) else ()


class _Again(NamedTuple):
    """A step that is started again: its earlier run, and its plan."""

    name: str
    run: LocalRun | RemoteRun
    plan: Plan


def rerun_group(group: RunGroup, options: dict[str, Any]) -> int:
    """Start the steps again that have not succeeded, with the outputs of those that have."""
    refused = [name for name in ("resume", "foreground", "after", "after_any") if options[name]]
    if refused:
        option = f"--{refused[0].replace('_', '-')}"
        raise ConfigError(f"`{option}` is for a single run", hint=f"name a step of {group.id}")
    runs, again = catalog(), list[_Again]()
    for member in group.members:
        run = runs.open(member.run)
        status = run.status()
        if not run.is_over(status):
            hint = f"safelaunch wait {group.id}, or stop"
            raise Refused(f"step {member.step} has not ended: {status.state}", hint=hint)
        if status.state != "succeeded":
            again.append(_Again(member.step, run, recorded_plan(run)))
    if not again:
        say(f"all steps of {group.id} have succeeded: nothing is left to run")
        return 0
    by = caller(os.environ)
    new = by.run_id(group.name)
    callers = [by.of_step(new, step.name, number) for number, step in enumerate(again, 1)]
    ids = {
        step.run.id: own.run_id(step.plan.name) for step, own in zip(again, callers, strict=True)
    }
    starts: list[StepStart] = []
    files: dict[str, Mapping[str, bytes]] = {}
    for step, own in zip(again, callers, strict=True):
        after = tuple(tuple(_again(end, ids) for end in node) for node in _waits(step.run))
        waits = tuple(replace(d, run=ids[d.run]) for d in step.plan.after if d.run in ids)
        plan = replace(step.plan, after=waits)
        if not isinstance(step.run, RemoteRun):  # before any is started: it may not be there
            plan, files[step.name] = _with_code(plan, step.run, options, by.home)
        starts.append(StepStart(step.name, plan, own._replace(after=after)))
    earlier = {step.name: step.run for step in again}

    def start(step: StepStart) -> Started:
        run = earlier[step.name]
        if not isinstance(run, RemoteRun):
            return start_here(step, files[step.name])
        from safelaunch.cli.start.targets.remote import start_again

        return start_again(step.plan, step.by, run.record, run.pointer, options)

    return start_all(starts, start, options)


def _with_code(
    plan: Plan, run: LocalRun, options: dict[str, Any], home: str
) -> tuple[Plan, Mapping[str, bytes]]:
    """Return the plan in a folder with the code of the launch or of today, and its record."""
    if options["current"]:
        code = rerun_code.code_of_today(plan, run.record)
    else:
        code = rerun_code.code_of_launch(plan, run.record, home)
    say(code.note)
    return code.plan, code.files


def _waits(run: LocalRun | RemoteRun) -> list[list[EarlierRun]]:
    """Return what each node of a run has waited for."""
    return [
        list((RunRecord.read(store.node_dir(run.record, node)) or RunRecord()).after)
        for node in store.node_numbers(run.record)
    ]


def _again(end: EarlierRun, ids: Mapping[str, str]) -> EarlierRun:
    """Return what a step waits for now: the new run of a step, or one that has succeeded."""
    again = EarlierRun.from_json(end.to_json())
    again.run, again.has_ended = ids.get(end.run, end.run), end.run not in ids
    return again
