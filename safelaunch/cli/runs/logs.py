"""`safelaunch logs`: the combined log of a run, or one rank's."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import say
from safelaunch.cli.runs import follow, groups
from safelaunch.cli.runs.output.log_output import stdout_writer
from safelaunch.cli.runs.parts import part_run
from safelaunch.errors import RunError, did_you_mean
from safelaunch.runs import store
from safelaunch.runs.access import LogRequest, MissingLogError
from safelaunch.runtime.logs import reader
from safelaunch.runtime.records import RunRecord

if TYPE_CHECKING:
    from safelaunch.runs.access import RunAccess
    from safelaunch.runtime.records import Status


@click.command("logs")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--follow", "-f", is_flag=True, help="Continue until the run has ended.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Start with the last N lines.")
@click.option("--grep", "text", metavar="TEXT", help="Only lines that contain TEXT, as it is.")
@click.option(
    "--max-bytes",
    type=click.IntRange(1),
    metavar="N",
    help="At most N bytes: the last ones; with --follow the first, and it ends then.",
)
@click.option("--raw", is_flag=True, help="Print unchanged bytes, escape sequences included.")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="Only this rank's own log.")
@click.option("--launcher", is_flag=True, help="Only the launcher's own output.")
@click.option("--service", metavar="NAME", help="Only this service of the job.")
@click.option("--part", type=click.IntRange(0), metavar="N", help="Only this part of the run.")
@click.option("--end", "of_end", is_flag=True, help="Only that of the commands at its end.")
@click.option("--node", type=click.IntRange(0), metavar="N", help="Only this node.")
@click.option(
    "--attempt", type=click.IntRange(1), metavar="N", help="Attempt; default: the newest."
)
def command(run: str | None, **options: Any) -> int:
    """Print or follow a run's log. Ctrl-C stops following; the job keeps running.

    --grep takes a text, no pattern, and --tail then counts the lines that contain it. Both, and
    --max-bytes, are applied where the log is: from a host only those lines are sent.
    """
    group = groups.find_group(run)
    if group is not None:
        return groups.logs(group, follows=options["follow"], show=lambda name: _show(name, options))
    return _show(run, options)


def _show(run: str | None, options: dict[str, Any]) -> int:
    """Print or follow the log of one run."""
    rank, follows = options["rank"], options["follow"]
    access = _open(run, options["service"], options["part"], waits=follows)
    access.status()  # updates the attempts and ranks that are recorded here of a run on hosts
    attempt = _attempt(access, options["attempt"])
    which = reader.END if options["of_end"] else _which(access.record, rank, options["launcher"])
    node = options["node"]
    if node is not None:
        node = store.node_number(access.record, node)
    elif rank is not None:
        node = store.node_of(access.record, rank)
    raw = options["raw"]
    at_once = raw or (follows and sys.stdout.isatty())
    text, max_bytes = options["text"], options["max_bytes"]
    request = LogRequest(
        *(attempt, which, options["tail"], follows, node),
        final_lines=not at_once,
        text=text,
        max_bytes=max_bytes,
    )
    try:
        has_bytes, is_cut = _write(access, request, at_once=at_once, raw=raw)
    except MissingLogError:
        raise _no_log(access, options) from None
    except KeyboardInterrupt:
        say(f"\n{access.id} keeps running")
        return 130
    if is_cut:
        say(f"[safelaunch: --max-bytes is reached; the log of {access.id} may go on]")
        return 0
    status = access.status()
    if follows:
        say(follow.headline(access, status))
    elif which is None:
        follow.report_truncation(access, status)
    missing = follow.missing_output(status)
    if not has_bytes and not (missing or follows) and options["tail"] != 0:
        what = "printed nothing there" if text is None else f"no such line there: `{text}`"
        missing = [f"{access.id} has {what} ({follow.short_state(status)})"]
    for line in missing:
        say(line)
    return 0


def _open(name: str | None, service: str | None, part: int | None, *, waits: bool) -> RunAccess:
    """Return a run, or a service or part of it. Raises RunError."""
    run = catalog().find(name)
    if part is not None:
        return part_run(run, part)
    return run if service is None else _service(run, service, waits=waits)


def _service(run: RunAccess, name: str, *, waits: bool) -> RunAccess:
    """Return a service of a run, which has the files of one. Raises RunError.

    With `waits` one that has not started yet is waited for.
    """
    record = RunRecord.read(run.record.node_dir) or RunRecord()
    names = [service.name for service in record.services]
    if name not in names:
        listed = f"services: {', '.join(names)}" if names else f"{run.id} has no services"
        raise RunError(f"no service `{name}` of {run.id}", hint=did_you_mean(name, names) or listed)
    status, is_noted = run.status(), False
    while _is_pending(status, name):
        reason = f"{run.id} waits for {status.waits_for}" if status.waits_for else None
        if run.is_over(status) or not waits:
            when = "was never started" if run.is_over(status) else "has not started yet"
            raise MissingLogError(f"service {name} of {run.id} {when}", hint=reason)
        if not is_noted:
            say(f"service {name} has not started yet" + (f": {reason}" if reason else ""))
        is_noted = True
        time.sleep(run.poll_interval)
        status = run.status()
    node = store.node_of_service(run.record, name)
    return run.member(name, None, (node, node))


def _is_pending(status: Status, name: str) -> bool:
    """Whether a service is known not to have started yet."""
    states = {service.name: service.state for service in status.services}
    # without states its run is just being started, or its host does not answer
    return status.state != "unknown" and states.get(name, "pending") == "pending"


def _write(run: RunAccess, request: LogRequest, *, at_once: bool, raw: bool) -> tuple[bool, bool]:
    """Write a log; return whether it has bytes, and whether it ended at those that are allowed."""
    write = stdout_writer(at_once, unfiltered=raw)
    left, has_bytes = request.max_bytes if request.follow else None, False
    for data in follow.follow_log(run, request):
        write(data if left is None else data[:left])
        has_bytes = True
        if left is not None:
            left -= len(data)
            if left <= 0:
                break
    write(b"")
    return has_bytes, left is not None and left <= 0


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
    if options["of_end"]:
        return MissingLogError(
            f"{run.id} has no log of its end ({follow.short_state(run.status())})",
            hint="nothing follows its end, or has begun yet",
        )
    which = "the launcher" if options["launcher"] else "the run"
    which = which if options["rank"] is None else f"rank {options['rank']}"
    ranks = ", ".join(run.ranks()) or "none"
    return MissingLogError(
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
