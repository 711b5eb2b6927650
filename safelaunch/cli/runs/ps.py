"""`safelaunch ps`: the runs of this machine, and those that it started on hosts."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json, say, table, terminal_width
from safelaunch.cli.runs.follow import is_hang_suspected, is_waiting
from safelaunch.cli.runs.progress import WIDTH, short
from safelaunch.runs import store
from safelaunch.runtime.units import duration, quantity

if TYPE_CHECKING:
    from safelaunch.runtime.records import Status

_MAX_ENDED = 20
_GAP = "  "
_DAY = 86400.0  # seconds
_MIN_PROGRESS = 8  # columns
_LIVE = ("pending", "running", "lost", "unknown")


@click.command("ps")
@click.option("--all", "-a", "show_all", is_flag=True, help="All ended runs, not only the newest.")
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Runs on this host, of all clients."
)
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(hosts: tuple[str, ...], hosts_path: str | None, show_all: bool, as_json: bool) -> int:
    """List runs: those that are running, and the newest that have ended.

    The state of runs on hosts is queried there.
    """
    runs = catalog()
    listed = runs.on_hosts(hosts, hosts_path) if hosts else store.all_runs(runs.home)
    pairs = runs.statuses(listed)
    hidden = 0
    if not show_all:
        ended = [run.id for run, status in pairs if status.state not in _LIVE]
        hidden = max(0, len(ended) - _MAX_ENDED)
        old = set(ended[:hidden])
        pairs = [(run, status) for run, status in pairs if run.id not in old]
    if as_json:
        shown = [store.show(run, status, {}).to_json() for run, status in pairs]
        print_json({"version": 1, "runs": shown})
        return 0
    if not pairs and hosts:
        say(f"no runs on {', '.join(hosts)}")
    elif not pairs:
        say("no runs yet; start one: safelaunch run JOB.yaml")
    width = terminal_width() if sys.stdout.isatty() else None
    for line in _table([_RunRow(run, status) for run, status in pairs], width):
        click.echo(line)
    if hidden:
        say(f"{hidden} older runs are not shown; safelaunch ps --all shows them")
    return 0


class _RunRow:
    """The columns of a run, which are shorter in a narrow terminal."""

    def __init__(self, run: store.Run, status: Status) -> None:
        self.id = run.id
        hosts = [store.mirror_record(run, n).host for n in store.node_numbers(run)]
        self.host = hosts[0] if len(hosts) == 1 else f"{hosts[0]} +{len(hosts) - 1}"
        self.status = status
        self.age = _age(status)

    def state(self, *, brief: bool) -> str:
        """Return `running, hangs?` or `failed (SIGKILL), attempt 3`; without attempt if `brief`."""
        status = self.status
        shown = status.state
        by_command = (status.stop_origin or "").startswith("`safelaunch stop`")
        if shown == "lost":
            shown = f"lost, {status.alive or 0} alive"
        elif shown == "failed" and status.exit_code is not None:
            shown = f"failed ({status.signal or status.exit_code})"
        elif shown == "stopped" and status.stopped_by and not by_command:
            shown = f"stopped ({'Ctrl-C' if status.stopped_by == 'SIGINT' else status.stopped_by})"
        elif is_hang_suspected(status):
            shown += ", hangs?"
        elif status.leftovers:
            shown += f", {quantity(status.leftovers, 'leftover')}"
        elif status.leftover_processes and shown == "running":
            shown += ", launcher ended"
        attempts = len(status.attempts)
        return shown if brief or attempts <= 1 else f"{shown}, attempt {attempts}"

    def progress(self, width: int) -> str:
        """Return the progress; without a supervisor with the time of its last report."""
        status = self.status
        state = "waiting" if is_waiting(status) else status.state
        if status.as_of is None:
            is_late = is_hang_suspected(status)
            return short(status.progress, state, late=is_late, width=width)
        is_old = time.time() - status.as_of > _DAY
        when = time.strftime(" on %m-%d" if is_old else " at %H:%M", time.localtime(status.as_of))
        text = short(status.progress, state, late=True, width=width - len(when))
        return text + when if text else ""


def _age(status: Status) -> str:
    """Return `for 5 min 2 s` or `ran 12.0 s`; `ran 12.0 s+` if it may have run longer."""
    started, ended = status.started_at, status.ended_at
    if status.elapsed is not None:
        return f"ran {duration(status.elapsed)}"
    if started is None:
        return ""
    unsure = "+" if status.last_sign_at is not None else ""
    if status.state == "lost" and not status.alive:
        ended, unsure = status.as_of, "+"
    if ended is not None:
        return f"ran {duration(max(0.0, ended - started))}{unsure}"
    return f"for {duration(max(0.0, time.time() - started))}"


def _table(rows: list[_RunRow], width: int | None) -> list[str]:
    """Return the lines; to fit the width, first the progress is shortened, then the state."""
    if not rows:
        return []
    for brief in (False, True):
        cells: list[tuple[str, ...]] = [("RUN", "HOST", "STATE", "TIME")]
        cells += [(row.id, row.host, row.state(brief=brief), row.age) for row in rows]
        if not any(row.host for row in rows):
            cells = [(run_id, *rest) for run_id, _, *rest in cells]
        used = sum(max(map(len, column)) + len(_GAP) for column in zip(*cells, strict=True))
        room = WIDTH if width is None else min(WIDTH, width - used)
        if room >= _MIN_PROGRESS:
            break
    progress = [row.progress(room) if room >= _MIN_PROGRESS else "" for row in rows]
    if any(progress):
        texts = zip(cells, ["PROGRESS", *progress], strict=True)
        cells = [(*row, text) for row, text in texts]
    return table(cells)
