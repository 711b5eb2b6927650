"""`safelaunch show`: one run."""

from __future__ import annotations

import os
import shlex
import time
from typing import Any

import click

from safelaunch import runs
from safelaunch.backends import tmux
from safelaunch.cli import print_json
from safelaunch.cli.complete import complete_run
from safelaunch.cli.watch import describe, duration
from safelaunch.runtime import state


@click.command("show")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, as_json: bool) -> int:
    """Show one run: state, exit code, processes, what it was made of, how to look at it."""
    found = runs.find(runs.home(os.environ), run)
    status = state.judge(found.node_dir)
    shown = runs.show_json(found, status, runs.ranks(found))
    if as_json:
        print_json(shown)
        return 0
    click.echo(f"{found.id}: {describe(status)}")
    if status.get("warning"):
        click.echo(f"  warning   {status['warning']}")
    for line in (
        *_job(found, status),
        *_processes(shown),
        *_record(found),
        *_places(found, status),
    ):
        click.echo(f"  {line}")
    return 0


def _job(run: runs.Run, status: dict[str, Any]) -> list[str]:
    plan = state.read_json(os.path.join(run.node_dir, "plan.json")) or {}
    spec = state.read_json(os.path.join(run.node_dir, "run.json")) or {}
    file = spec.get("job_file") or "a pasted line"
    lines = [f"job       {file}"]
    lines.append(f"launcher  {plan.get('launcher')}, profile {plan.get('profile') or 'none'}")
    begun = status.get("started_at")
    if isinstance(begun, (int, float)):
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begun))
        ago = f", {duration(max(0.0, time.time() - begun))} ago"
        lines.append(f"started   {at}{ago}")
    return lines


def _processes(shown: dict[str, Any]) -> list[str]:
    pids = shown["pids"]
    if shown["state"] != "running":
        return []
    parts = [f"{name} {pid}" for name, pid in pids.items() if name != "ranks"]
    parts += [f"rank {rank} {pid}" for rank, pid in pids.get("ranks", {}).items()]
    return ["processes " + ", ".join(parts)]


def _record(run: runs.Run) -> list[str]:
    record = state.read_json(os.path.join(run.node_dir, "record.json"))
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
        lines.append(
            f"versions  Python {record.get('python')}" + "".join(f", {v}" for v in versions[:6])
        )
    return lines


def _places(run: runs.Run, status: dict[str, Any]) -> list[str]:
    lines = [f"log       safelaunch logs {run.id}", f"files     {shlex.quote(run.node_dir)}"]
    socket = status.get("socket")
    if status.get("state") == "running" and socket:
        lines.append(f"attach    {tmux.attach_command(str(socket))}")
    return lines
