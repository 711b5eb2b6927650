"""Starts the steps of an earlier group again that have not succeeded, for `rerun GROUP`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.cli.connections import catalog
from safelaunch.cli.output import say
from safelaunch.cli.start.targets import group_completion
from safelaunch.cli.start.targets.step_starts import StepStart, check_options, start_all
from safelaunch.errors import ConfigError, Refused, RunError
from safelaunch.model import Plan
from safelaunch.plan.serialize import thaw
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import store
from safelaunch.runs.access import LocalRun
from safelaunch.runs.group_start import GroupStart
from safelaunch.runtime.records import EarlierRun, PlanRecord, RunRecord
from safelaunch.start.caller import caller
from safelaunch.start.code import rerun_code
from safelaunch.start.resume import resume_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.config.resolve import Resolved
    from safelaunch.runs.group_start import StepStartRecord
    from safelaunch.runs.groups import RunGroup


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
    """A step that is started again: its plan, and its earlier run or the record of its start."""

    name: str
    run_id: str
    plan: Plan
    run: LocalRun | RemoteRun | None
    record: StepStartRecord | None = None

    @property
    def again(self) -> str | None:
        """The run on hosts whose places and code it has."""
        if isinstance(self.run, RemoteRun):
            return self.run_id
        return None if self.record is None else self.record.again

    @property
    def needs_job(self) -> bool:
        """Whether its job has to be resolved: it was to be on hosts, and has left nothing there."""
        return self.run is None and bool(_hosts(self)) and self.again is None

    def waits(self) -> list[list[EarlierRun]]:
        """Return what each node has waited for, or was to."""
        if self.run is None:
            return [list(node) for node in self.record.after] if self.record else []
        return [
            list((RunRecord.read(store.node_dir(self.run.record, node)) or RunRecord()).after)
            for node in store.node_numbers(self.run.record)
        ]


def rerun_group(group: RunGroup, options: dict[str, Any]) -> int:
    """Start the steps again that have not succeeded, with the outputs of those that have.

    Where its start was cut off, and no step has failed, the steps that are missing are started.
    """
    refused = [name for name in ("after", "after_any") if options[name]]
    if refused:
        option = f"--{refused[0].replace('_', '-')}"
        raise ConfigError(f"`{option}` is for a single run", hint=f"name a step of {group.id}")
    if group_completion.is_possible(group):
        return group_completion.complete(group, options)
    again = _steps_again(group)
    if not again:
        say(f"all steps of {group.id} have succeeded: nothing is left to run")
        return 0
    if options["resume"]:
        again = _resumed(again)
    by = caller(os.environ)
    new = by.run_id(group.name)
    callers = [by.of_step(new, step.name, number) for number, step in enumerate(again, 1)]
    ids = {
        step.run_id: own.run_id(step.plan.name) for step, own in zip(again, callers, strict=True)
    }
    jobs: Mapping[str, Resolved] = {}
    if group.start is not None and any(step.needs_job for step in again):
        jobs = group_completion.resolved_jobs(group.start)
    sibling = _local_run(group)
    starts: list[StepStart] = []
    for step, own in zip(again, callers, strict=True):
        after = tuple(tuple(_again(end, ids) for end in node) for node in step.waits())
        waits = tuple(replace(d, run=ids[d.run]) for d in step.plan.after if d.run in ids)
        plan = replace(step.plan, after=waits)
        start = StepStart(
            step.name, plan, own._replace(after=after), _hosts(step), again=step.again
        )
        source = step.run if isinstance(step.run, LocalRun) else sibling
        if not start.hosts and source is not None:  # before any is started: it may not be there
            plan, files = _with_code(plan, source, options, by.home)
            start = start._replace(plan=plan, files=files)
        starts.append(start._replace(resolved=jobs.get(step.name)))
    check_options(starts, options, "rerun")
    record = group.start or GroupStart(group.id, ())
    code = start_all(
        starts,
        lambda step: group_completion.start_step(step, record, options),
        options,
        record.command,
    )
    if group.start is not None:
        group.start._replace(is_stopped=True).write(group.home)
    return code


def _local_run(group: RunGroup) -> LocalRun | None:
    """Return a run of the group on this machine, which has the code of its launch."""
    runs = [catalog().open(member.run) for member in group.members if member.is_recorded]
    return next((run for run in runs if isinstance(run, LocalRun)), None)


def _steps_again(group: RunGroup) -> list[_Again]:
    """Return the steps that have not succeeded. Raises Refused where one has not ended."""
    runs, again = catalog(), list[_Again]()
    records = {} if group.start is None else {step.run: step for step in group.start.steps}
    for member in group.members:
        record = records.get(member.run.id)
        if not member.is_recorded and record is not None:
            plan = group_completion.recorded_plan(record)
            again.append(_Again(member.step, member.run.id, plan, None, record))
            continue
        run = runs.open(member.run)
        status = run.status()
        if not run.is_over(status):
            hint = f"safelaunch wait {group.id}, or stop"
            raise Refused(f"step {member.step} has not ended: {status.state}", hint=hint)
        if status.state != "succeeded":
            again.append(_Again(member.step, run.id, recorded_plan(run), run))
    return again


def _resumed(again: Sequence[_Again]) -> list[_Again]:
    """Return the steps, of which those that say how go on from where they ended.

    Raises ConfigError where none says how.
    """
    steps = []
    for step in again:
        has_begun = step.run is not None and bool(step.run.attempts())
        if not has_begun or any(node.resume_argv is None for node in step.plan.nodes):
            say(f"step {step.name} starts from the beginning")
            steps.append(step)
            continue
        plan = resume_run(replace(step.plan, after=()), store.home(os.environ), step.run_id)
        steps.append(step._replace(plan=replace(plan, after=step.plan.after)))
    if all(step.plan.resumes is None for step in steps):
        raise ConfigError(
            "no step that is left can resume", hint="`recovery: resume_args` says how"
        )
    return steps


def _hosts(step: _Again) -> tuple[str, ...]:
    """Return the hosts of the nodes of a step, each once; none for this machine."""
    if isinstance(step.run, RemoteRun):
        return tuple(dict.fromkeys(place.host for place in step.run.pointer.places))
    return () if step.record is None else step.record.hosts


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


def _again(end: EarlierRun, ids: Mapping[str, str]) -> EarlierRun:
    """Return what a step waits for now: the new run of a step, or one that has succeeded."""
    again = EarlierRun.from_json(end.to_json())
    again.run, again.has_ended = ids.get(end.run, end.run), end.run not in ids
    return again
