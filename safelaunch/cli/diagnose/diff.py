"""`safelaunch diff`: shows what differs between two runs, the most relevant first."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json, wrap
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.hostfacts.saved import SavedFacts
from safelaunch.report import collect
from safelaunch.report.diff import compare
from safelaunch.runs import store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.report.diff.model import Change, Group, RunSnapshot
    from safelaunch.runs.access import RunAccess

_WIDTH = 80
_LABEL = 22  # columns; a longer name has its values on the next lines
_LINES = 6  # lines of one value


@click.command("diff")
@click.argument("run", shell_complete=complete_run)
@click.argument("other", metavar="RUN", shell_complete=complete_run)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str, other: str, as_json: bool) -> int:
    """Show how two runs differ: code, command, variables, versions, host, outcome.

    Ids, ports, run directories and times, which always differ, are left out; secrets are hidden.
    """
    runs = [catalog().find(run), catalog().find(other)]
    before, after = map(_snapshot, runs)
    groups = compare.compare(before, after)
    if as_json:
        print_json(_json(before, after, groups))
        return 0
    for line in lines(before, after, groups):
        click.echo(line)
    return 0


def _snapshot(run: RunAccess) -> RunSnapshot:
    """Return a run as it is now; if its host does not answer, as last recorded."""
    status, saved = run.status(), SavedFacts(store.home(os.environ))
    hosts = {location.node: location.host for location in run.places()}
    facts = [
        saved.load(hosts.get(number, hosts_file.LOCAL)) or {}
        for number in store.node_numbers(run.record)
    ]
    snapshot = collect.read_snapshot(run.record, facts)
    return snapshot._replace(status=status, failure=run.failure(status))


def _json(before: RunSnapshot, after: RunSnapshot, groups: Sequence[Group]) -> dict[str, object]:
    return {
        "version": 1,
        "runs": [before.id, after.id],
        "differs": any(group.changes for group in groups),
        "groups": [
            {
                "name": group.name,
                "changes": [change._asdict() for change in group.changes],
                **({"unknown": group.unknown} if group.unknown else {}),
                **({"basis": group.basis} if group.basis else {}),
            }
            for group in groups
        ],
    }


def lines(before: RunSnapshot, after: RunSnapshot, groups: Sequence[Group]) -> list[str]:
    """Return the lines for people, at most 80 columns where words allow it."""
    rows = [f"--- {before.id}", f"+++ {after.id}"]
    for group in groups:
        if group.changes:
            rows += ["", *wrap(group.name + (f" ({group.basis})" if group.basis else ""), _WIDTH)]
            for change in group.changes:
                rows += _change(change)
    same = [group.name for group in groups if not group.changes and not group.unknown]
    unknown = [f"{group.name}: {group.unknown}" for group in groups if group.unknown]
    if before.id == after.id:
        return [*rows, "", "no difference: it is the same run"]
    rows.append("")
    if not any(group.changes for group in groups) and not unknown:
        rows.append("no difference")
    elif same:
        rows += wrap("no difference: " + ", ".join(same), _WIDTH, break_words=True)
    for note in unknown:
        rows += wrap(note, _WIDTH, break_words=True)
    return rows


def _change(change: Change) -> list[str]:
    """Return `name  was -> now` in one line if it fits, else the values on lines of their own."""
    was, now = change.was, change.now
    one_line = not any("\n" in text for text in (was, now) if text)
    if was is not None and now is not None and one_line and len(change.what) <= _LABEL:
        text = f"  {change.what:<{_LABEL}} {was} -> {now}"
        if len(text) <= _WIDTH:
            return [text]
    output = [f"  {change.what}"]
    for mark, value in (("-", was), ("+", now)):
        if value is not None:
            indent = " " * 6
            rows = [
                row
                for line in value.split("\n")
                for row in wrap(line, _WIDTH, indent, indent, break_words=True) or [indent]
            ]
            more_rows = [f"      ... {len(rows) - _LINES} more lines"] if len(rows) > _LINES else []
            output += [f"    {mark} {row[6:]}" for row in rows[:_LINES]] + more_rows
    return output
