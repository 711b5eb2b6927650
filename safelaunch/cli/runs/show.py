"""`safelaunch show`: everything about one run."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json, terminal_width
from safelaunch.cli.runs import follow, progress
from safelaunch.cli.runs.failure_block import labelled
from safelaunch.runs import store
from safelaunch.runtime import backends
from safelaunch.runtime.records import PlanRecord, Provenance, RunRecord
from safelaunch.runtime.units import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runs.access import RunAccess
    from safelaunch.runtime.records import Status

_MAX_RANKS = 8  # shown with their pids


@click.command("show")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, as_json: bool) -> int:
    """Show one run: state, exit code, processes, progress, failure, versions, files."""
    access = catalog().find(run)
    record, status = access.record, access.status()
    shown = store.show(record, status, access.ranks())
    if as_json:
        print_json(shown.to_json())
        return 0
    click.echo(follow.headline(access, follow.without_repeats(access, status)))
    why = follow.reasons(access, status)
    for line in (
        *why,
        *_nodes(record, status),
        *_attempts(status),
        *_progress(access, status),
        *_job(record, status),
        *_processes(shown, follow.is_waiting(status)),
        *_record(record),
        *_places(access, status, has_log=any(line.startswith("log ") for line in why)),
    ):
        click.echo(f"  {line}")
    return 0


def _nodes(run: store.Run, status: Status) -> list[str]:
    """Return a line for each of several nodes, and those that are not known here."""
    lines: list[str] = []
    for node in status.nodes:
        text = f"{node.node} {node.host}: {follow.short_state(node)}"
        text += f", {node.reason}" if node.reason else ""
        lines += labelled("" if lines else "nodes", text, _width(), 3)
    record, numbers = RunRecord.read(run.node_dir), store.node_numbers(run)
    hosts = () if record is None else record.hosts
    missing = [host for number, host in enumerate(hosts) if number not in numbers]
    if missing:
        text = f"{len(numbers)} of {len(hosts)} known here; for more: safelaunch ps --host "
        text += f"{missing[0]} (the host's name on the machine that started the run)"
        lines += labelled("" if lines else "nodes", text, _width(), 3)
    return lines


def _attempts(status: Status) -> list[str]:
    """Return a line for each attempt of a run that was restarted."""
    if len(status.attempts) < 2:  # noqa: PLR2004 - the headline has a single one
        return []
    lines = []
    for attempt in status.attempts:
        text = attempt.state or "running"
        if attempt.elapsed is not None:
            text += f" after {duration(attempt.elapsed)}"
        why = [part for part in (attempt.class_name, attempt.what) if part]
        text += f", {': '.join(why)}" if why else ""
        lines += labelled(f"attempt {attempt.attempt}", text, _width(), 2)
    return lines


def _width() -> int:
    return terminal_width() - 2  # the lines are indented


def _progress(run: RunAccess, status: Status) -> list[str]:
    state = "waiting" if follow.is_waiting(status) else status.state
    shown = progress.lines(status.progress, state, late=follow.is_hang_suspected(status))
    # the run's own warning has the step too
    has_warning = "not finite" in (status.warning or "")
    shown = [line for line in shown if not (has_warning and "not finite" in line)]
    if shown and status.as_of is not None:
        shown.append(f"as of {_local_time(status.as_of)}, when the supervisor died")
    elif shown and follow.is_waiting(status):
        shown.append(f"of attempt {len(status.attempts)}, which has ended")
    lines = [("progress" if not i else "", line) for i, line in enumerate(shown)]
    lines += [("note", note) for note in run.notes()]
    return [line for label, text in lines for line in labelled(label, text, _width(), 3)]


def _job(run: store.Run, status: Status) -> list[str]:
    plan = PlanRecord.read(run.node_dir) or PlanRecord()
    record = RunRecord.read(run.node_dir)
    file = (record is not None and record.job_file) or "a pasted line"
    lines = [f"job       {file}"]
    lines.append(f"launcher  {plan.launcher or 'unknown'}, profile {plan.profile or 'none'}")
    if status.started_at is not None:
        ago = f", {duration(max(0.0, time.time() - status.started_at))} ago"
        lines.append(f"started   {_local_time(status.started_at)}{ago}")
    return lines


def _local_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _processes(shown: store.ShownRun, waits: bool) -> list[str]:
    """Return the running processes: between two attempts only the supervisor."""
    if shown.state != "running":
        return []
    lines: list[str] = []
    nodes: Sequence[store.ShownNode | store.ShownRun] = shown.nodes or [shown]
    for node in nodes:
        text = _pids(node.pids, waits)
        text = f"{node.host}: {text}" if shown.nodes else text
        lines += labelled("" if lines else "processes", text, _width(), 4)
    return lines


def _pids(pids: store.Pids, waits: bool) -> str:
    ranks = {} if waits else pids.ranks
    parts = [] if pids.supervisor is None else [f"supervisor {pids.supervisor}"]
    parts += [] if waits or pids.launcher is None else [f"launcher {pids.launcher}"]
    parts += [f"rank {rank} {pid}" for rank, pid in list(ranks.items())[:_MAX_RANKS]]
    if len(ranks) > _MAX_RANKS:
        parts.append(f"and {len(ranks) - _MAX_RANKS} more ranks (--json has them)")
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
        lines += labelled("versions", text, _width(), 2)
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
            lines.append("attach    not possible: its tmux server is gone; the job keeps running")
    return lines
