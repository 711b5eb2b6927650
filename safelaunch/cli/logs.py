"""`safelaunch logs`: the combined log of a run, or one rank's."""

from __future__ import annotations

import os
import sys

import click

from safelaunch import runs
from safelaunch.cli import say
from safelaunch.cli.complete import complete_run
from safelaunch.cli.watch import describe, growing, is_over, log_path, writer
from safelaunch.errors import RunError
from safelaunch.runtime import state


@click.command("logs")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--follow", "-f", is_flag=True, help="Go on until the run has ended.")
@click.option("--raw", is_flag=True, help="The bytes as they were written, progress bars and all.")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="Only this rank's own file.")
@click.option("--launcher", is_flag=True, help="Only what the launcher itself wrote.")
def command(run: str | None, follow: bool, raw: bool, rank: int | None, launcher: bool) -> int:
    """Print or follow a run's log. Ctrl-C ends the looking, never the job."""
    found = runs.find(runs.home(os.environ), run)
    path = log_path(found, _which(found, rank, launcher))
    if not follow and not os.path.isfile(path):
        status = state.judge(found.node_dir)
        which = f"rank {rank}" if rank is not None else "the launcher" if launcher else "the run"
        known = ", ".join(runs.ranks(found)) or "none"
        raise RunError(
            f"{found.id} has no log of {which} ({describe(status)})",
            hint=f"ranks that logged: {known}",
        )
    write = writer(raw or (follow and sys.stdout.isatty()))
    try:
        for data in growing(path, lambda: follow and not is_over(found)):
            write(data)
        write(b"")
    except KeyboardInterrupt:
        say(f"\n{found.id} goes on")
        return 130
    if follow:
        say(f"{found.id}: {describe(state.judge(found.node_dir))}")
    return 0


def _which(run: runs.Run, rank: int | None, launcher: bool) -> str | None:
    if launcher:
        return "launcher"
    if rank is None:
        return None
    spec = state.read_json(os.path.join(run.node_dir, "run.json")) or {}
    if rank == 0 and not spec.get("rank_logs"):
        return "launcher"  # the only process: what it writes is the launcher's file
    return f"rank-{rank}"
