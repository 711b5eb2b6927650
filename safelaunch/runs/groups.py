"""Runs that were started together, as the steps of one file: their group, by id or name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.runs import store
from safelaunch.runs.store import Run
from safelaunch.runtime.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

# of the runs of a group that have ended: where one has not succeeded, the group has not
_ORDER = ("running", "unknown", "pending", "lost", "failed", "stopped", "succeeded")


class StepRun(NamedTuple):
    """A run of a group, and which step it is."""

    run: Run
    step: str
    record: RunRecord


class RunGroup(NamedTuple):
    """Runs that were started together, each after those that it waits for."""

    id: str
    members: tuple[StepRun, ...]

    @property
    def name(self) -> str:
        """The name of the file's jobs."""
        return Run(self.id, "").name


def find(home: str, name: str | None) -> RunGroup | None:
    """Return the group of an id, or the newest one of a name; None where a run has that name."""
    if not name:
        return None
    runs = store.all_runs(home)
    if any(name in (run.id, run.name) for run in runs):
        return None
    moment = name[-20:-5] if store.is_run_id(name) else ""
    groups: dict[str, list[StepRun]] = {}
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
    return RunGroup(newest, _ordered(groups[newest]))


def _ordered(members: Sequence[StepRun]) -> tuple[StepRun, ...]:
    """Return the members in the order of their starts, which is that of their steps."""
    return tuple(sorted(members, key=lambda member: member.record.created_at or 0.0))


def state(states: Sequence[str]) -> str:
    """Return the state of a group from those of its runs."""
    return min(states, key=lambda name: _ORDER.index(name) if name in _ORDER else 1)
