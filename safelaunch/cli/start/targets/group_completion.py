"""Starts the steps of a group whose start was cut off, in that group.

Those of this machine from their record; those on hosts from the job file, which must be the same.
"""

# ruff: noqa: PLC0415 - targets.remote: for hosts only

from __future__ import annotations

import base64
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.cli.connections import catalog
from safelaunch.cli.output import say
from safelaunch.cli.start.targets import step_starts
from safelaunch.cli.start.targets.local import interruptible
from safelaunch.cli.start.targets.step_starts import StepStart, start_here
from safelaunch.config.resolve import Flags, resolve_steps
from safelaunch.errors import HostError, Refused, RunError
from safelaunch.model import Plan
from safelaunch.plan.serialize import thaw
from safelaunch.plan.steps import step_plan
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import group_start, groups, mirror
from safelaunch.runtime import run_state
from safelaunch.runtime.records import EarlierRun
from safelaunch.runtime.start import starter
from safelaunch.start.caller import caller
from safelaunch.start.conditions.once import compared, plan_differences, some

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.resolve import Resolved
    from safelaunch.runs.group_start import GroupStart, StepStartRecord
    from safelaunch.runs.groups import RunGroup
    from safelaunch.runs.store import Run
    from safelaunch.start.caller import Started

_OPTIONS = ("no_check", "no_sync", "delete")  # of a start on hosts


class _State(NamedTuple):
    """How the steps of a group are, by the ids of their runs."""

    states: Mapping[str, str]
    has_begun: Mapping[str, bool]


def command_record(
    file: str, folder: str, flags: Flags, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a start of steps on hosts records, so that their jobs can be resolved again."""
    own = {name: options[name] for name in _OPTIONS}
    path = options["hosts_file"]
    own["hosts_file"] = os.path.abspath(path) if path else None
    return {"file": file, "folder": folder, "flags": flags._asdict(), "options": own}


def _state(group: RunGroup) -> _State:
    """Ask all runs of a group how they are. Raises HostError where that is not known."""
    runs = catalog()
    states: dict[str, str] = {}
    has_begun: dict[str, bool] = {}
    for member in group.members:
        status = group.open(member, runs.open).status()
        is_known = groups.has_begun(status) if member.is_recorded else False
        if is_known is None:
            reason = status.reason or "its host does not answer"
            text = f"whether `{member.run.id}` was started is not known: {reason}"
            raise HostError(text, hint="try again")
        states[member.run.id], has_begun[member.run.id] = status.state, is_known
    return _State(states, has_begun)


def is_possible(group: RunGroup) -> bool:
    """Whether steps of a group were never started, and none has ended without success."""
    if group.start is None or group.start.is_stopped:
        return False
    state = _state(group)
    ends = [state.states[run] for run, has_begun in state.has_begun.items() if has_begun]
    bad = [name for name in ends if name in (*run_state.ENDED, "lost") and name != "succeeded"]
    return not bad and not all(state.has_begun.values())


def complete(
    group: RunGroup, options: dict[str, Any], resolved: Mapping[str, Resolved] | None = None
) -> int:
    """Start the steps of a group that were never started; return the exit code of the command.

    `resolved` are the jobs of its steps, where they are on hosts; else they are resolved again.
    Raises Refused, RunError, HostError, and what a start raises.
    """
    with group_start.start_lock(group.home, group.id) as is_own, interruptible():
        start = group_start.read(group.home, group.id)
        if not is_own or start is None:
            what = f"another command starts the steps of {group.id}"
            raise Refused(what, hint=f"safelaunch show {group.id}")
        state = _state(group)
        missing = [step for step in start.steps if not state.has_begun[step.run]]
        ended = [run for run, name in state.states.items() if name == "succeeded"]
        steps = [step_start(step, start, ended, resolved) for step in missing]
        runs = {member.run.id: member.run for member in group.members}
        for step in steps:
            _remove_rest(runs[step.run_id])
        started = step_starts.start_each(steps, lambda step: start_step(step, start, options))
        group_start.remove(group.home, group.id)
    before = [(m.step, m.run) for m in group.members if state.has_begun[m.run.id]]
    if not options["as_json"]:
        names = ", ".join(step for step, _ in before) or "none"
        say(f"{group.id} was started before, but not to its last step; started then: {names}")
    return step_starts.show(group.id, steps, started, options, before)


def _remove_rest(run: Run) -> None:
    """Remove what a start on this machine that was cut off has left of a run."""
    if os.path.isdir(run.folder) and mirror.pointer(run) is None:
        starter.undo(run.id, 0)


def step_start(
    step: StepStartRecord,
    start: GroupStart,
    ended: list[str],
    resolved: Mapping[str, Resolved] | None = None,
) -> StepStart:
    """Return a step of a start that was cut off, with the id that was meant for it.

    `ended` are runs that have succeeded. Raises RunError, and Refused where its job is another now.
    """
    plan = recorded_plan(step)
    if step.hosts and not step.again:
        resolved = resolved_jobs(start) if resolved is None else resolved
    # an engine may have forgotten a job that has ended
    plan = replace(plan, after=tuple(run for run in plan.after if run.run not in ended))
    after = tuple(tuple(_earlier(run, ended) for run in node) for node in step.after)
    by = caller(os.environ)._replace(
        id_suffix=step.run[len(plan.name) + 1 :],
        local_time=start.local_time,
        group=start.id,
        step=step.step,
        after=after,
    )
    files = {name: base64.b64decode(data) for name, data in step.files.items()}
    job = None if resolved is None else resolved.get(step.step)
    return StepStart(step.step, plan, by, step.hosts, job, files, step.again)


def _earlier(run: EarlierRun, ended: list[str]) -> EarlierRun:
    earlier = EarlierRun.from_json(run.to_json())
    earlier.has_ended = earlier.has_ended or earlier.run in ended
    return earlier


def recorded_plan(step: StepStartRecord) -> Plan:
    """Return the plan of a step that was never started. Raises RunError."""
    plan = thaw(step.plan)
    if not isinstance(plan, Plan):
        raise RunError(f"the recorded plan of {step.run} cannot be read")
    return plan


def resolved_jobs(start: GroupStart) -> dict[str, Resolved]:
    """Return the jobs of the steps of a start on hosts, by step.

    Raises Refused where they are not the ones that were recorded.
    """
    command = start.command
    flags: Any = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in command.get("flags", {}).items()
        if key in Flags._fields
    }
    flags = Flags(**flags)
    _, steps = resolve_steps(str(command["file"]), flags, str(command["folder"]))
    ids = {step.step: step.run for step in start.steps}
    for step in steps:
        record = next((own for own in start.steps if own.step == step.name), None)
        if record is None:
            raise _changed(start, f"it has a step `{step.name}`")
        before = compared(replace(recorded_plan(record), after=()))
        now = compared(replace(step_plan(step, ids), after=()))
        differences = list(plan_differences(before, now))
        if differences:
            raise _changed(start, some(differences))
    return {step.name: step.resolved for step in steps}


def _changed(start: GroupStart, what: str) -> Refused:
    return Refused(
        f"the job file is not the one with which {start.id} was started: {what}",
        where=str(start.command.get("file")),
        hint="put it back, or start it anew: safelaunch remote",
    )


def start_step(step: StepStart, start: GroupStart, options: dict[str, Any]) -> Started:
    """Start a step of a start that was cut off. Raises SafelaunchError."""
    if not step.hosts:
        return start_here(step, options)
    from safelaunch.cli.start.targets import remote

    if step.again is not None:
        run = catalog().find(step.again)
        if not isinstance(run, RemoteRun):
            raise RunError(f"{step.again} is no run on hosts any more")
        return remote.start_again(step.plan, step.by, run.record, run.pointer, options)
    if step.resolved is None:
        raise RunError(f"the job of {step.run_id} is not recorded")
    own = {**start.command.get("options", {}), "resume": False, "resume_from": None}
    return remote.start_plan(step.resolved, step.plan, step.by, {**options, **own})
