"""`safelaunch ps`: the runs of this machine."""

from __future__ import annotations

import os
import time
from typing import Any

import click

from safelaunch import runs
from safelaunch.cli import print_json, say
from safelaunch.cli.progress import short
from safelaunch.runtime import state

_SHOWN = 20
_LIVE = ("pending", "running", "lost", "unknown")


@click.command("ps")
@click.option(
    "--all", "-a", "everything", is_flag=True, help="Every ended run, not only the newest."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(everything: bool, as_json: bool) -> int:
    """List runs: those that live, and the newest that have ended."""
    base = runs.home(os.environ)
    found = [(run, state.judge(run.node_dir)) for run in runs.all_runs(base)]
    hidden = 0
    if not everything:
        ended = [pair for pair in found if pair[1].get("state") not in _LIVE]
        hidden = max(0, len(ended) - _SHOWN)
        old = {run.id for run, _ in ended[:hidden]}
        found = [pair for pair in found if pair[0].id not in old]
    if as_json:
        shown = [runs.show_json(run, status, {}) for run, status in found]
        print_json({"version": 1, "runs": shown})
        return 0
    if not found:
        say("no runs yet; start one: safelaunch run JOB.yaml")
    for row in _table([_row(run, status) for run, status in found]):
        click.echo(row)
    if hidden:
        say(f"{hidden} older runs are not shown; safelaunch ps --all shows them")
    return 0


def _row(run: runs.Run, status: dict[str, Any]) -> tuple[str, ...]:
    shown = str(status.get("state"))
    if shown == "lost":
        shown = f"lost, {status.get('alive', 0)} alive"
    elif shown == "failed" and status.get("exit_code") is not None:
        shown = f"failed ({status.get('signal') or status['exit_code']})"
    attempts = len(status.get("attempts") or ())
    if attempts > 1:
        shown += f", attempt {attempts}"
    return (run.id, shown, _age(status), short(status.get("progress") or {}, shown))


def _age(status: dict[str, Any]) -> str:
    from safelaunch.cli.watch import duration  # noqa: PLC0415 - shares nothing else

    begun, ended = status.get("started_at"), status.get("ended_at")
    if isinstance(status.get("elapsed"), (int, float)):
        return f"ran {duration(status['elapsed'])}"
    if not isinstance(begun, (int, float)):
        return ""
    if isinstance(ended, (int, float)):
        return f"ran {duration(max(0.0, ended - begun))}"
    return f"for {duration(max(0.0, time.time() - begun))}"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    rows = [("RUN", "STATE", "TIME", "PROGRESS"), *rows]
    if not any(row[3] for row in rows[1:]):
        rows = [row[:3] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
