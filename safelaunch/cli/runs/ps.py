"""`safelaunch ps`: the runs of this machine, and those that it started on hosts."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json, say, terminal_width
from safelaunch.cli.runs.follow import is_suspected, is_waiting
from safelaunch.cli.runs.progress import WIDTH, short
from safelaunch.runs import store

if TYPE_CHECKING:
    from safelaunch.runtime.records import Status
from safelaunch.runtime.units import duration

_SHOWN = 20
_GAP = "  "
_DAY = 86400.0  # seconds
_LEAST = 8  # columns below which progress is left out
_LIVE = ("pending", "running", "lost", "unknown")


@click.command("ps")
@click.option(
    "--all", "-a", "everything", is_flag=True, help="Every ended run, not only the newest."
)
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="All runs of this host, whoever started."
)
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file, instead of your own.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(hosts: tuple[str, ...], hosts_path: str | None, everything: bool, as_json: bool) -> int:
    """List runs: those that live, and the newest that have ended. Runs on hosts are asked for."""
    runs = catalog()
    listed = runs.on_hosts(hosts, hosts_path) if hosts else store.all_runs(runs.home)
    found = runs.statuses(listed)
    hidden = 0
    if not everything:
        ended = [pair for pair in found if pair[1].state not in _LIVE]
        hidden = max(0, len(ended) - _SHOWN)
        old = {run.id for run, _ in ended[:hidden]}
        found = [pair for pair in found if pair[0].id not in old]
    if as_json:
        shown = [store.show(run, status, {}).to_json() for run, status in found]
        print_json({"version": 1, "runs": shown})
        return 0
    if not found:
        said = f"no runs on {', '.join(hosts)}"
        say(said if hosts else "no runs yet; start one: safelaunch run JOB.yaml")
    width = terminal_width() if sys.stdout.isatty() else None
    for row in _table([_Row(run, status) for run, status in found], width):
        click.echo(row)
    if hidden:
        say(f"{hidden} older runs are not shown; safelaunch ps --all shows them")
    return 0


class _Row:
    """What is told of a run, and shorter where the terminal is narrow."""

    def __init__(self, run: store.Run, status: Status) -> None:
        self.id = run.id
        hosts = [(store.mirrored(run, n) or store.Mirror()).host for n in store.node_numbers(run)]
        self.host = hosts[0] if len(hosts) == 1 else f"{hosts[0]} +{len(hosts) - 1}"
        self.status = status
        self.age = _age(status)

    def state(self, *, brief: bool) -> str:
        """Return `running, hangs?`, `failed (SIGKILL), attempt 3`; in brief without the attempt."""
        status = self.status
        shown = status.state
        if shown == "lost":
            shown = f"lost, {status.alive or 0} alive"
        elif shown == "failed" and status.exit_code is not None:
            shown = f"failed ({status.signal or status.exit_code})"
        elif is_suspected(status):
            shown += ", hangs?"
        attempts = len(status.attempts)
        return shown if brief or attempts <= 1 else f"{shown}, attempt {attempts}"

    def progress(self, width: int) -> str:
        """Return how far it is, and of a run without supervisor as of when."""
        status = self.status
        doing = "waiting" if is_waiting(status) else status.state
        known = status.progress
        if status.as_of is None:
            return short(known, doing, late=is_suspected(status), width=width)
        is_old = time.time() - status.as_of > _DAY
        seen = time.strftime(" on %m-%d" if is_old else " at %H:%M", time.localtime(status.as_of))
        said = short(known, doing, late=True, width=width - len(seen))
        return said + seen if said else ""


def _age(status: Status) -> str:
    """Return `for 5 min 2 s`, `ran 12.0 s`; `ran 12.0 s+` where only the least is known."""
    begun, ended = status.started_at, status.ended_at
    if status.elapsed is not None:
        return f"ran {duration(status.elapsed)}"
    if begun is None:
        return ""
    unsure = "+" if status.last_sign_at is not None else ""
    if status.state == "lost" and not status.alive:
        ended, unsure = status.as_of, "+"
    if ended is not None:
        return f"ran {duration(max(0.0, ended - begun))}{unsure}"
    return f"for {duration(max(0.0, time.time() - begun))}"


def _table(found: list[_Row], width: int | None) -> list[str]:
    """Return the lines, within the width where there is one: progress gives way, then the state."""
    if not found:
        return []
    for brief in (False, True):
        rows: list[tuple[str, ...]] = [("RUN", "HOST", "STATE", "TIME")]
        rows += [(row.id, row.host, row.state(brief=brief), row.age) for row in found]
        if not any(row.host for row in found):
            rows = [(run_id, *rest) for run_id, _, *rest in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        taken = sum(widths) + len(widths) * len(_GAP)
        room = WIDTH if width is None else min(WIDTH, width - taken)
        if room >= _LEAST:
            break
    progress = [row.progress(room) if room >= _LEAST else "" for row in found]
    if any(progress):
        progress = ["PROGRESS", *progress]
        widths.append(0)
        rows = [(*row, said) for row, said in zip(rows, progress, strict=True)]
    return [
        _GAP.join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
