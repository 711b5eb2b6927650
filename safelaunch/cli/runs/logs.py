"""`safelaunch logs`: the combined log of a run, or one rank's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import say
from safelaunch.cli.runs import follow
from safelaunch.cli.runs.log_output import stdout_writer
from safelaunch.errors import RunError
from safelaunch.runs import store
from safelaunch.runs.access import LogRequest, MissingLogError
from safelaunch.runtime.records import RunRecord

if TYPE_CHECKING:
    from safelaunch.runs.access import RunAccess


@click.command("logs")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--follow", "-f", is_flag=True, help="Continue until the run has ended.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Start with the last N lines.")
@click.option("--raw", is_flag=True, help="Print unchanged bytes, escape sequences included.")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="Only this rank's own log.")
@click.option("--launcher", is_flag=True, help="Only the launcher's own output.")
@click.option("--node", type=click.IntRange(0), metavar="N", help="Only this node.")
@click.option(
    "--attempt", type=click.IntRange(1), metavar="N", help="Attempt; default: the newest."
)
def command(run: str | None, **options: Any) -> int:
    """Print or follow a run's log. Ctrl-C stops following; the job keeps running."""
    access = catalog().find(run)
    rank, follows = options["rank"], options["follow"]
    access.status()  # updates the attempts and ranks that are recorded here of a run on hosts
    attempt = _attempt(access, options["attempt"])
    which = _which(access.record, rank, options["launcher"])
    node = options["node"]
    if node is not None:
        node = store.node_number(access.record, node)
    elif rank is not None:
        node = store.node_of(access.record, rank)
    raw = options["raw"]
    at_once = raw or (follows and sys.stdout.isatty())
    request = LogRequest(attempt, which, options["tail"], follows, node, final_lines=not at_once)
    write, is_empty = stdout_writer(at_once, unfiltered=raw), True
    try:
        for data in follow.follow_log(access, request):
            write(data)
            is_empty = False
        write(b"")
    except MissingLogError:
        raise _no_log(access, options) from None
    except KeyboardInterrupt:
        say(f"\n{access.id} keeps running")
        return 130
    status = access.status()
    if follows:
        say(follow.headline(access, status))
    elif which is None:
        follow.report_truncation(access, status)
    missing = follow.missing_output(status)
    if is_empty and not (missing or follows) and options["tail"] != 0:
        missing = [f"{access.id} has printed nothing there ({follow.short_state(status)})"]
    for line in missing:
        say(line)
    return 0


def _attempt(run: RunAccess, number: int | None) -> int:
    """Return that attempt, or the newest. Raises RunError."""
    attempts = run.attempts()
    attempt = number or max(attempts, default=1)
    if attempt not in (attempts or [1]):
        raise RunError(
            f"{run.id} has no attempt {attempt}",
            hint=f"attempts: {', '.join(map(str, attempts))}",
        )
    return attempt


def _no_log(run: RunAccess, options: dict[str, Any]) -> RunError:
    which = "the launcher" if options["launcher"] else "the run"
    which = which if options["rank"] is None else f"rank {options['rank']}"
    ranks = ", ".join(run.ranks()) or "none"
    return RunError(
        f"{run.id} has no log of {which} ({follow.short_state(run.status())})",
        hint=f"ranks with a log: {ranks}",
    )


def _which(run: store.Run, rank: int | None, launcher: bool) -> str | None:
    if launcher:
        return "launcher"
    if rank is None:
        return None
    record = RunRecord.read(run.node_dir)
    is_only = rank == 0 and not (record is not None and record.rank_logs)
    if is_only or (record is not None and record.single == "mpi"):  # it prints for all its ranks
        return "launcher"
    return f"rank-{rank}"
