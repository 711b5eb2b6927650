"""`safelaunch show`: one run."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from typing import TYPE_CHECKING

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json
from safelaunch.cli.runs import progress
from safelaunch.cli.runs.failure_block import folded
from safelaunch.cli.runs.follow import (
    headline,
    in_short,
    is_suspected,
    is_waiting,
    reasons,
    without_repeats,
)
from safelaunch.runs import store
from safelaunch.runtime import backends, json_files
from safelaunch.runtime.records import Provenance, RunRecord
from safelaunch.runtime.units import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runs.access import RunAccess
    from safelaunch.runtime.records import Status

_RANKS = 8  # that are named with their pids


@click.command("show")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, as_json: bool) -> int:
    """Show one run: state, exit code, processes, what it was made of, how to look at it."""
    access = catalog().find(run)
    record, status = access.record, access.status()
    shown = store.show(record, status, access.ranks())
    if as_json:
        print_json(shown.to_json())
        return 0
    click.echo(headline(access, without_repeats(access, status)))
    why = reasons(access, status)
    for line in (
        *why,
        *_nodes(record, status),
        *_attempts(status),
        *_progress(access, status),
        *_job(record, status),
        *_processes(shown, is_waiting(status)),
        *_record(record),
        *_places(access, status, has_log=any(line.startswith("log ") for line in why)),
    ):
        click.echo(f"  {line}")
    return 0


def _nodes(run: store.Run, status: Status) -> list[str]:
    """Tell how each of several nodes is, and of which nothing is known here."""
    lines: list[str] = []
    for node in status.nodes:
        text = f"{node.node} {node.host}: {in_short(node)}"
        text += f", {node.reason}" if node.reason else ""
        lines += folded("" if lines else "nodes", text, _width(), 3)
    record, numbers = RunRecord.read(run.node_dir), store.node_numbers(run)
    hosts = () if record is None else record.hosts
    missing = [host for number, host in enumerate(hosts) if number not in numbers]
    if missing:
        command = f"safelaunch ps --host {missing[0]}"
        text = f"{len(numbers)} of {len(hosts)} known here; {command}"
        text += " (its starter's name) tells more"
        lines += folded("" if lines else "nodes", text, _width(), 3)
    return lines


def _attempts(status: Status) -> list[str]:
    """Tell each attempt of a run that was restarted."""
    if len(status.attempts) < 2:  # noqa: PLR2004 - the headline tells of a single one
        return []
    lines = []
    for attempt in status.attempts:
        text = attempt.state or "running"
        if attempt.elapsed is not None:
            text += f" after {duration(attempt.elapsed)}"
        why = [part for part in (attempt.class_name, attempt.what) if part]
        text += f", {': '.join(why)}" if why else ""
        lines += folded(f"attempt {attempt.attempt}", text, _width(), 2)
    return lines


def _width() -> int:
    return shutil.get_terminal_size().columns - 2  # the lines are indented


def _progress(run: RunAccess, status: Status) -> list[str]:
    state = "waiting" if is_waiting(status) else status.state
    shown = progress.lines(status.progress, state, late=is_suspected(status))
    # the run's own warning tells since when
    has_warning = "not finite" in (status.warning or "")
    shown = [line for line in shown if not (has_warning and "not finite" in line)]
    if shown and status.as_of is not None:
        shown.append(f"as of {_moment(status.as_of)}: the supervisor tells no more")
    elif shown and is_waiting(status):
        shown.append(f"of attempt {len(status.attempts)}, which has ended")
    lines = [("progress" if not i else "", line) for i, line in enumerate(shown)]
    lines += [("note", note) for note in run.notes()]
    return [line for label, text in lines for line in folded(label, text, _width(), 3)]


def _job(run: store.Run, status: Status) -> list[str]:
    plan = json_files.read_json(os.path.join(run.node_dir, "plan.json")) or {}
    record = RunRecord.read(run.node_dir)
    file = (record is not None and record.job_file) or "a pasted line"
    lines = [f"job       {file}"]
    lines.append(f"launcher  {plan.get('launcher')}, profile {plan.get('profile') or 'none'}")
    if status.started_at is not None:
        ago = f", {duration(max(0.0, time.time() - status.started_at))} ago"
        lines.append(f"started   {_moment(status.started_at)}{ago}")
    return lines


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _processes(shown: store.ShownRun, waits: bool) -> list[str]:
    """Name the processes that live: between two attempts that is the supervisor alone."""
    if shown.state != "running":
        return []
    lines: list[str] = []
    nodes: Sequence[store.ShownNode | store.ShownRun] = shown.nodes or [shown]
    for node in nodes:
        text = _pids(node.pids, waits)
        text = f"{node.host}: {text}" if shown.nodes else text
        lines += folded("" if lines else "processes", text, _width(), 4)
    return lines


def _pids(pids: store.Pids, waits: bool) -> str:
    ranks = {} if waits else pids.ranks
    parts = [] if pids.supervisor is None else [f"supervisor {pids.supervisor}"]
    parts += [] if waits or pids.launcher is None else [f"launcher {pids.launcher}"]
    parts += [f"rank {rank} {pid}" for rank, pid in list(ranks.items())[:_RANKS]]
    if len(ranks) > _RANKS:
        parts.append(f"and {len(ranks) - _RANKS} more ranks (--json has them)")
    return ", ".join(parts)


def _record(run: store.Run) -> list[str]:
    record = Provenance.read(run.node_dir)
    if record is None:
        return []
    lines = []
    git = record.git
    if git is not None and git.commit:
        changed = len(git.changed or ()) + git.more_changed
        more = f", changed files: {changed}" if changed else ""
        lines.append(f"commit    {git.commit[:12]}{more}")
    if record.packages is not None:
        versions = [f"{name} {version}" for name, version in record.packages.items()]
        text = ", ".join([f"Python {record.python}", *versions[:6]])
        lines += folded("versions", text, _width(), 2)
        lines.append(f"python    {shlex.quote(str(record.interpreter))}")
    return lines


def _places(run: RunAccess, status: Status, *, has_log: bool) -> list[str]:
    lines = [] if has_log else [f"log       safelaunch logs {run.id}"]
    places = run.places()
    if not places:
        lines.append(f"files     {shlex.quote(run.record.node_dir)}")
    elif len(places) == 1:
        lines.append(f"host      {places[0].host}")
    for place in places:
        label = "" if place is not places[0] else "files"
        lines.append(f"{label:<10}{place.host}:{shlex.quote(place.run_dir)}")
    backend, handle = backends.from_record(status)
    command = backend.attach(handle)
    if status.state == "running" and command:
        if run.has_terminal(status):
            shown = f"safelaunch attach {run.id}" if places else shlex.join(command)
            lines.append(f"attach    {shown}")
        else:
            lines.append("attach    no longer: its tmux server is gone, the job goes on")
    return lines
