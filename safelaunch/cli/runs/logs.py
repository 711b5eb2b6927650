"""`safelaunch logs`: the combined log of a run, or one rank's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import say
from safelaunch.cli.runs.follow import (
    fitted,
    follow_log,
    headline,
    in_short,
    is_cut,
    own_log,
    where_cut,
    writer,
)
from safelaunch.errors import RunError
from safelaunch.runs import store
from safelaunch.runs.access import LogRequest, MissingLogError
from safelaunch.runtime.records import RunRecord

if TYPE_CHECKING:
    from safelaunch.runs.access import RunAccess
    from safelaunch.runtime.records import Status


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
    """Print or follow a run's log. Ctrl-C stops following; the job keeps running."""
    access = catalog().find(run)
    record = access.record
    rank, launcher, follow = options["rank"], options["launcher"], options["follow"]
    access.status()  # what is recorded here of attempts and ranks on hosts may be old
    attempts = access.attempts()
    which = _which(record, rank, launcher)
    node = None if options["node"] is None else store.node_number(record, options["node"])
    node = store.node_of(record, rank) if node is None and rank is not None else node
    raw = options["raw"] or (follow and sys.stdout.isatty())
    attempt = options["attempt"] or max(attempts, default=1)
    request = LogRequest(attempt, which, options["tail"], follow, node, final_lines=not raw)
    if options["attempt"] and options["attempt"] not in (attempts or [1]):
        raise RunError(
            f"{access.id} has no attempt {options['attempt']}",
            hint=f"attempts: {', '.join(map(str, attempts))}",
        )
    write = writer(raw)
    try:
        for data in follow_log(access, request):
            write(data)
        write(b"")
    except MissingLogError:
        raise _no_log(access, options, access.status()) from None
    except KeyboardInterrupt:
        say(f"\n{access.id} goes on")
        return 130
    status = access.status()
    if follow:
        say(headline(access, status))
    elif which is None and is_cut(status):
        say(fitted(f"note: {where_cut(status)}: {own_log(access)}"))
    return 0


def _no_log(run: RunAccess, options: dict[str, Any], status: Status) -> RunError:
    rank = options["rank"]
    which = "the launcher" if options["launcher"] else "the run"
    which = which if rank is None else f"rank {rank}"
    known = ", ".join(run.ranks()) or "none"
    return RunError(
        f"{run.id} has no log of {which} ({in_short(status)})",
        hint=f"ranks that logged: {known}",
    )


def _which(run: store.Run, rank: int | None, launcher: bool) -> str | None:
    if launcher:
        return "launcher"
    if rank is None:
        return None
    record = RunRecord.read(run.node_dir)
    if rank == 0 and not (record is not None and record.rank_logs):
        return "launcher"  # the only process: what it writes is the launcher's file
    return f"rank-{rank}"
