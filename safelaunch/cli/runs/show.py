"""`safelaunch show`: one run."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json
from safelaunch.cli.runs import progress
from safelaunch.cli.runs.failure_block import folded
from safelaunch.cli.runs.follow import (
    headline,
    in_short,
    is_cut,
    is_suspected,
    is_waiting,
    reasons,
    without_repeats,
)
from safelaunch.runs import store
from safelaunch.runtime import backends, run_state
from safelaunch.runtime.units import duration

if TYPE_CHECKING:
    from safelaunch.runs.access import RunAccess

_RANKS = 8  # that are named with their pids


@click.command("show")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, as_json: bool) -> int:
    """Show one run: state, exit code, processes, what it was made of, how to look at it."""
    access = catalog().find(run)
    record, status = access.record, access.status()
    shown = store.show_json(record, status, access.ranks())
    if as_json:
        print_json(shown)
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


def _nodes(run: store.Run, status: dict[str, Any]) -> list[str]:
    """Tell how each of several nodes is, and of which nothing is known here."""
    lines: list[str] = []
    for node in status.get("nodes") or ():
        said = f"{node['node']} {node['host']}: {in_short(node)}"
        said += f", {node['reason']}" if node.get("reason") else ""
        lines += folded("" if lines else "nodes", said, _width(), 3)
    spec: dict[str, Any] = run_state.read_json(os.path.join(run.node_dir, "run.json")) or {}
    hosts, known = spec.get("hosts") or [], store.node_numbers(run)
    missing = [str(host) for number, host in enumerate(hosts) if number not in known]
    if missing:
        asked = f"safelaunch ps --host {missing[0]}"
        said = f"{len(known)} of {len(hosts)} known here; {asked} (its starter's name) tells more"
        lines += folded("" if lines else "nodes", said, _width(), 3)
    return lines


def _attempts(status: dict[str, Any]) -> list[str]:
    """Tell each attempt of a run that was restarted."""
    attempts = status.get("attempts") or []
    if len(attempts) < 2:  # noqa: PLR2004 - the headline tells of a single one
        return []
    lines = []
    for record in attempts:
        said = str(record.get("state") or "running")
        if isinstance(record.get("elapsed"), (int, float)):
            said += f" after {duration(record['elapsed'])}"
        why = [str(record[key]) for key in ("class", "what") if record.get(key)]
        said += f", {': '.join(why)}" if why else ""
        lines += folded(f"attempt {record.get('attempt')}", said, _width(), 2)
    return lines


def _width() -> int:
    return shutil.get_terminal_size().columns - 2  # the lines are indented


def _progress(run: RunAccess, status: dict[str, Any]) -> list[str]:
    known, doing = status.get("progress") or {}, str(status.get("state"))
    attempts = len(status.get("attempts") or ())
    told = progress.lines(
        known, "waiting" if is_waiting(status) else doing, late=is_suspected(status)
    )
    # the run's own warning tells since when
    has_warning = "no finite number" in str(status.get("warning"))
    said = [line for line in told if not (has_warning and "no finite number" in line)]
    if said and is_cut(status):
        said.append(f"as of {_moment(status['as_of'])}: the supervisor tells no more")
    elif said and is_waiting(status):
        said.append(f"of attempt {attempts}, which has ended")
    lines = [("progress" if not i else "", line) for i, line in enumerate(said)]
    lines += [("note", note) for note in run.notes()]
    return [line for label, text in lines for line in folded(label, text, _width(), 3)]


def _job(run: store.Run, status: dict[str, Any]) -> list[str]:
    plan = run_state.read_json(os.path.join(run.node_dir, "plan.json")) or {}
    spec = run_state.read_json(os.path.join(run.node_dir, "run.json")) or {}
    file = spec.get("job_file") or "a pasted line"
    lines = [f"job       {file}"]
    lines.append(f"launcher  {plan.get('launcher')}, profile {plan.get('profile') or 'none'}")
    begun = status.get("started_at")
    if isinstance(begun, (int, float)):
        ago = f", {duration(max(0.0, time.time() - begun))} ago"
        lines.append(f"started   {_moment(begun)}{ago}")
    return lines


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _processes(shown: dict[str, Any], waits: bool) -> list[str]:
    """Name the processes that live: between two attempts that is the supervisor alone."""
    if shown["state"] != "running":
        return []
    lines: list[str] = []
    for node in shown.get("nodes") or [shown]:
        said = _pids(node["pids"], waits)
        said = f"{node['host']}: {said}" if "nodes" in shown else said
        lines += folded("" if lines else "processes", said, _width(), 4)
    return lines


def _pids(pids: dict[str, Any], waits: bool) -> str:
    ranks = {} if waits else pids.get("ranks", {})
    names = ["supervisor"] if waits else [name for name in pids if name != "ranks"]
    parts = [f"{name} {pids[name]}" for name in names if name in pids]
    parts += [f"rank {rank} {pid}" for rank, pid in list(ranks.items())[:_RANKS]]
    if len(ranks) > _RANKS:
        parts.append(f"and {len(ranks) - _RANKS} more ranks (--json has them)")
    return ", ".join(parts)


def _record(run: store.Run) -> list[str]:
    record = run_state.read_json(os.path.join(run.node_dir, "record.json"))
    if record is None:
        return []
    lines = []
    git = record.get("git")
    if isinstance(git, dict) and git.get("commit"):
        changed = len(git.get("changed") or ()) + int(git.get("more_changed") or 0)
        lines.append(
            f"commit    {git['commit'][:12]}" + (f", changed files: {changed}" if changed else "")
        )
    packages = record.get("packages")
    if isinstance(packages, dict):
        versions = [f"{name} {version}" for name, version in packages.items()]
        said = ", ".join([f"Python {record.get('python')}", *versions[:6]])
        lines += folded("versions", said, _width(), 2)
        lines.append(f"python    {shlex.quote(str(record.get('interpreter')))}")
    return lines


def _places(run: RunAccess, status: dict[str, Any], *, has_log: bool) -> list[str]:
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
    if status.get("state") == "running" and command:
        if run.has_terminal(status):
            shown = f"safelaunch attach {run.id}" if places else shlex.join(command)
            lines.append(f"attach    {shown}")
        else:
            lines.append("attach    no longer: its tmux server is gone, the job goes on")
    return lines
