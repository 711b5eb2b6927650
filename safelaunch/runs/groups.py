"""Runs that were started together, as the steps of one file: their group, by id or name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.runs import group_start, store
from safelaunch.runs.access import LocalRun
from safelaunch.runs.store import Run
from safelaunch.runtime.records import RunRecord, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.runs.access import RunAccess
    from safelaunch.runs.group_start import GroupStart
    from safelaunch.runtime.records import StatusSummary

# of the runs of a group that have ended: where one has not succeeded, the group has not
_ORDER = ("running", "unknown", "pending", "lost", "failed", "stopped", "succeeded")
NEVER_STARTED = "it never started"


class StepRun(NamedTuple):
    """A run of a group, and which step it is."""

    run: Run
    step: str
    record: RunRecord

    @property
    def is_recorded(self) -> bool:
        """Whether its run has a folder: its start has begun."""
        return os.path.isdir(self.run.folder)


class RunGroup(NamedTuple):
    """Runs that were started together, each after those that it waits for.

    `start` is the record of a start that is not complete.
    """

    id: str
    members: tuple[StepRun, ...]
    home: str = ""
    start: GroupStart | None = None

    @property
    def name(self) -> str:
        """The name of the file's jobs."""
        return Run(self.id, "").name

    def open(self, member: StepRun, open_run: Callable[[Run], RunAccess]) -> RunAccess:
        """Return access to the run of a step, also to one that is not started yet."""
        if member.is_recorded or self.start is None:
            return open_run(member.run)
        return UnstartedRun(member, self, open_run)


def find(home: str, name: str | None) -> RunGroup | None:
    """Return the group of an id, or the newest one of a name; None where a run has that name."""
    if not name:
        return None
    runs = store.all_runs(home)
    if any(name in (run.id, run.name) for run in runs):
        return None
    starts = {start.id: start for start in group_start.all_starts(home)}
    moment = name[-20:-5] if store.is_run_id(name) else ""
    groups: dict[str, list[StepRun]] = {
        group: [] for group in starts if name in (group, Run(group, "").name)
    }
    for run in runs:
        if not (run.id[-20:-5] == moment if moment else run.name.startswith(f"{name}-")):
            continue
        record = RunRecord.read(run.node_dir)
        if (
            record is not None
            and record.group
            and name in (record.group, Run(record.group, "").name)
        ):
            member = StepRun(run, record.step or run.name, record)
            groups.setdefault(record.group, []).append(member)
    if not groups:
        return None
    newest = max(groups, key=lambda group: group[-20:])
    start = starts.get(newest)
    members = (
        _ordered(groups[newest]) if start is None else _with_start(groups[newest], start, home)
    )
    return RunGroup(newest, members, home, start)


def _ordered(members: Sequence[StepRun]) -> tuple[StepRun, ...]:
    """Return the members in the order of their starts, which is that of their steps."""
    return tuple(sorted(members, key=lambda member: member.record.created_at or 0.0))


def _with_start(members: Sequence[StepRun], start: GroupStart, home: str) -> tuple[StepRun, ...]:
    """Return the members in the order of the start, with those that have no record yet."""
    by_id = {member.run.id: member for member in members}
    for step in start.steps:
        run = Run(step.run, os.path.join(store.folder(home), step.run))
        record = RunRecord(group=start.id, step=step.step)
        by_id.setdefault(run.id, StepRun(run, step.step, record))
    return tuple(by_id[step.run] for step in start.steps)


def unstarted(home: str) -> list[tuple[StepRun, Status]]:
    """Return the steps of all groups that have no run yet, and how they are."""
    return [
        (member, _status(member, start, home))
        for start in group_start.all_starts(home)
        for member in _with_start((), start, home)
        if not member.is_recorded
    ]


def _status(member: StepRun, start: GroupStart, home: str) -> Status:
    """Return the status of a step that has no run yet."""
    status = Status(version=1, id=member.run.id, name=member.run.name, state="lost", alive=0)
    if start.is_stopped:
        status.state = "stopped"
    elif group_start.is_starting(home, start.id):
        status.state, status.waits_for = "pending", "its start"
        return status
    status.reason = NEVER_STARTED
    return status


def has_begun(status: Status) -> bool | None:
    """Whether a start has left a run with this status; None where its host does not say."""
    if status.attempts or status.started_at is not None:
        return True
    if status.state == "unknown":
        return None
    return status.state != "lost" or bool(status.alive)


def state(states: Sequence[str]) -> str:
    """Return the state of a group from those of its runs."""
    return min(states, key=lambda name: _ORDER.index(name) if name in _ORDER else 1)


class UnstartedRun(LocalRun):
    """A step that has no run yet. Once it is started, its status is that of its run."""

    def __init__(
        self, member: StepRun, group: RunGroup, open_run: Callable[[Run], RunAccess]
    ) -> None:
        super().__init__(member.run)
        self._member, self._group, self._open = member, group, open_run

    def _run(self) -> RunAccess | None:
        """Return the run, once there is a record of it."""
        return self._open(self.record) if self._member.is_recorded else None

    def status(self) -> Status:
        """Return the status as it is now."""
        run, home = self._run(), self._group.home
        if run is not None:
            return run.status()
        start = group_start.read(home, self._group.id) or self._group.start
        return Status(state="lost") if start is None else _status(self._member, start, home)

    last_status = status

    def is_over(self, status: StatusSummary) -> bool:
        """Whether nothing more will come of a run with this status."""
        run = self._run()
        return super().is_over(status) if run is None else run.is_over(status)

    def stop(self, grace: float) -> tuple[Status, bool]:
        """Stop the run, if there is one; return its status, and whether it had ended before."""
        run = self._run()
        return (self.status(), True) if run is None else run.stop(grace)
