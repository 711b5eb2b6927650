"""`safelaunch logs`: the combined log of a run, or one rank's."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.output import say
from safelaunch.cli.runs import access
from safelaunch.cli.runs.follow import (
    fitted,
    following,
    headline,
    in_short,
    is_cut,
    own_log,
    where_cut,
    writer,
)
from safelaunch.errors import RunError
from safelaunch.runs import store
from safelaunch.runtime import json_files
from safelaunch.runtime.logs import reader


@click.command("logs")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--follow", "-f", is_flag=True, help="Go on until the run has ended.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Begin with the last N lines.")
@click.option("--raw", is_flag=True, help="The bytes as they were written, progress bars and all.")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="Only this rank's own file.")
@click.option("--launcher", is_flag=True, help="Only what the launcher itself wrote.")
@click.option("--node", type=click.IntRange(0), metavar="N", help="Only this node of several.")
@click.option(
    "--attempt", type=click.IntRange(1), metavar="N", help="This attempt instead of the newest."
)
def command(run: str | None, **options: Any) -> int:
    """Print or follow a run's log. Ctrl-C ends the looking, never the job."""
    found = store.find(store.home(os.environ), run)
    rank, launcher, follow = options["rank"], options["launcher"], options["follow"]
    if access.is_remote(found):
        access.judge(found)  # what is known of its attempts and ranks may be old
    attempt = options["attempt"] or max(access.attempts(found), default=1)
    which = _which(found, rank, launcher)
    node = None if options["node"] is None else store.node_number(found, options["node"])
    node = store.node_of(found, rank) if node is None and rank is not None else node
    raw = options["raw"] or (follow and sys.stdout.isatty())
    wanted = access.Log(attempt, which, options["tail"], follow, node, settled=not raw)
    _check(found, options, wanted)
    write = writer(raw)
    is_there = False
    try:
        for data in following(found, wanted):
            is_there = True
            write(data)
        write(b"")
    except KeyboardInterrupt:
        say(f"\n{found.id} goes on")
        return 130
    status = access.judge(found)
    is_silent = not is_there and status.get("state") not in ("pending", "running")
    if access.is_remote(found) and is_silent and not follow:
        raise _no_log(found, options, status)
    if follow:
        say(headline(found, status))
    elif which is None and is_cut(status):
        say(fitted(f"note: {where_cut(status)}: {own_log(found)}"))
    return 0


def _check(run: store.Run, options: dict[str, Any], wanted: access.Log) -> None:
    """Raise RunError where there is no such log, unless one may still come."""
    there = access.attempts(run)
    if options["attempt"] and options["attempt"] not in (there or [1]):
        raise RunError(
            f"{run.id} has no attempt {options['attempt']}",
            hint=f"attempts: {', '.join(map(str, there))}",
        )
    path = reader.log_path(run.node_dir, wanted.which, wanted.attempt)
    if options["follow"] or access.is_remote(run) or os.path.isfile(path):
        return
    raise _no_log(run, options, access.judge(run))


def _no_log(run: store.Run, options: dict[str, Any], status: dict[str, Any]) -> RunError:
    rank = options["rank"]
    which = "the launcher" if options["launcher"] else "the run"
    which = which if rank is None else f"rank {rank}"
    known = ", ".join(store.ranks(run)) or "none"
    return RunError(
        f"{run.id} has no log of {which} ({in_short(status)})",
        hint=f"ranks that logged: {known}",
    )


def _which(run: store.Run, rank: int | None, launcher: bool) -> str | None:
    if launcher:
        return "launcher"
    if rank is None:
        return None
    spec = json_files.read_json(os.path.join(run.node_dir, "run.json")) or {}
    if rank == 0 and not spec.get("rank_logs"):
        return "launcher"  # the only process: what it writes is the launcher's file
    return f"rank-{rank}"
