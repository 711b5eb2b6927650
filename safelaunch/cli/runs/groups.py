"""`show`, `wait`, `stop` and `logs` for the steps of a file: the same for each of its runs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json, say
from safelaunch.cli.runs import follow
from safelaunch.runs import group_start, groups, store
from safelaunch.runs.brief import brief_group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.runs.access import RunAccess
    from safelaunch.runs.groups import RunGroup
    from safelaunch.runtime.records import Status

    Statuses = Sequence[tuple[str, RunAccess, Status]]


def find_group(name: str | None) -> RunGroup | None:
    """Return the group that the user names; None where it is a run, or nothing."""
    return groups.find(store.home(os.environ), name)


def show(group: RunGroup, *, as_json: bool, is_brief: bool = False) -> int:
    """Show how each step is."""
    statuses = [(step, run, run.status()) for step, run in _runs(group)]
    _print(group, statuses, as_json=as_json, is_brief=is_brief)
    return 0


def wait(group: RunGroup, timeout: float | None, *, as_json: bool) -> int:
    """Wait until all steps have ended; return 0 if they have succeeded, else 1."""
    until = None if timeout is None else time.monotonic() + timeout
    ends = []
    for step, run in _runs(group):
        left = None if until is None else max(0.0, until - time.monotonic())
        ends.append((step, run, run.wait(left)))
    for step, run, status in ends:
        if status.state != "succeeded" and not as_json and os.path.isdir(run.record.folder):
            say(f"step {step}:")
            follow.outcome(run, status)
            break  # those after it say no more
    _print(group, ends, as_json=as_json)
    return 0 if all(status.state == "succeeded" for _, _, status in ends) else 1


def stop(group: RunGroup, grace: float, *, as_json: bool) -> int:
    """Stop all steps, the last first, so that none begins meanwhile."""
    if group.start is not None:
        group.start._replace(is_stopped=True).write(group.home)
    ends = [(step, run, run.stop(grace)[0]) for step, run in reversed(_runs(group))]
    _print(group, ends[::-1], as_json=as_json)
    return 1 if any(status.alive or status.state == "unknown" for _, _, status in ends) else 0


def logs(group: RunGroup, *, follows: bool, show: Callable[[str], int]) -> int:
    """Print the log of each step that has one, under its name; follow them one after another.

    `show` prints that of a run.
    """
    code = 0
    for step, run in _runs(group):
        status = run.status()
        while follows and not status.attempts and not run.is_over(status):
            time.sleep(run.poll_interval)
            status = run.status()
        say(f"--- step {step} ({follow.describe(status)})")
        if status.attempts:
            code = max(code, show(run.id))
    return code


def follow_all(group: RunGroup) -> int:
    """Follow the steps one after another; return 0 if all have succeeded, else 1."""
    code = 0
    for step, run in _runs(group):
        say(f"--- step {step} ({run.id})")
        code = max(code, follow.outcome(run, follow.follow(run)))
    return code


def _runs(group: RunGroup) -> list[tuple[str, RunAccess]]:
    runs = catalog()
    return [(member.step, group.open(member, runs.open)) for member in group.members]


def _print(group: RunGroup, statuses: Statuses, *, as_json: bool, is_brief: bool = False) -> None:
    state = groups.state([status.state for _, _, status in statuses])
    if as_json:
        shown = [shown_step(group.id, *row).to_json() for row in statuses]
        whole = {"version": 1, "group": group.id, "state": state, "steps": shown}
        print_json(brief_group(whole) if is_brief else whole)
        return
    click.echo(f"{group.id}: {state}")
    width = max(len(step) for step, _, _ in statuses)
    for step, run, status in statuses:
        click.echo(f"  {step:<{width}}  {follow.headline(run, status)}")
    missing = [step for step, run, _ in statuses if not os.path.isdir(run.record.folder)]
    if missing and not group_start.is_starting(group.home, group.id):
        say(f"never started: {', '.join(missing)}; to start: safelaunch rerun {group.id}")


def shown_step(group: str, step: str, run: RunAccess, status: Status) -> store.ShownRun:
    """Return a step as `show --json` prints it, also where it was never started."""
    shown = store.show(run.record, status, run.ranks(), run.failure(status))
    shown.group, shown.step = group, step
    return shown
