"""`safelaunch logs`: the combined log of a run, or one rank's."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from safelaunch import runs
from safelaunch.cli import say
from safelaunch.cli.complete import complete_run
from safelaunch.cli.reading import last_lines
from safelaunch.cli.watch import attempts, describe, following, growing, log_path, writer
from safelaunch.errors import RunError
from safelaunch.runtime import state


@click.command("logs")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--follow", "-f", is_flag=True, help="Go on until the run has ended.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Begin with the last N lines.")
@click.option("--raw", is_flag=True, help="The bytes as they were written, progress bars and all.")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="Only this rank's own file.")
@click.option("--launcher", is_flag=True, help="Only what the launcher itself wrote.")
@click.option(
    "--attempt", type=click.IntRange(1), metavar="N", help="This attempt instead of the newest."
)
def command(run: str | None, **options: Any) -> int:
    """Print or follow a run's log. Ctrl-C ends the looking, never the job."""
    found = runs.find(runs.home(os.environ), run)
    rank, launcher, follow = options["rank"], options["launcher"], options["follow"]
    attempt = options["attempt"] or max(attempts(found), default=1)
    which = _which(found, rank, launcher)
    path = log_path(found, which, attempt)
    _check(found, options, path)
    begin = 0 if options["tail"] is None else last_lines(path, options["tail"])
    write = writer(options["raw"] or (follow and sys.stdout.isatty()))
    try:
        if follow:
            shown = following(found, attempt, which, begin)
        else:
            shown = growing(path, lambda: False, begin)
        for data in shown:
            write(data)
        write(b"")
    except KeyboardInterrupt:
        say(f"\n{found.id} goes on")
        return 130
    if follow:
        say(f"{found.id}: {describe(state.judge(found.node_dir))}")
    return 0


def _check(run: runs.Run, options: dict[str, Any], path: str) -> None:
    """Raise RunError where there is no such log, unless one may still come."""
    there = attempts(run)
    if options["attempt"] and options["attempt"] not in (there or [1]):
        raise RunError(
            f"{run.id} has no attempt {options['attempt']}",
            hint=f"attempts: {', '.join(map(str, there))}",
        )
    if options["follow"] or os.path.isfile(path):
        return
    status = state.judge(run.node_dir)
    rank = options["rank"]
    which = "the launcher" if options["launcher"] else "the run"
    which = which if rank is None else f"rank {rank}"
    known = ", ".join(runs.ranks(run)) or "none"
    raise RunError(
        f"{run.id} has no log of {which} ({describe(status)})",
        hint=f"ranks that logged: {known}",
    )


def _which(run: runs.Run, rank: int | None, launcher: bool) -> str | None:
    if launcher:
        return "launcher"
    if rank is None:
        return None
    spec = state.read_json(os.path.join(run.node_dir, "run.json")) or {}
    if rank == 0 and not spec.get("rank_logs"):
        return "launcher"  # the only process: what it writes is the launcher's file
    return f"rank-{rank}"
