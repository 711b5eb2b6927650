"""`safelaunch wait`: until a run has ended."""

from __future__ import annotations

import os
import time

import click

from safelaunch import runs
from safelaunch.cli import print_json, say
from safelaunch.cli.complete import complete_run
from safelaunch.cli.watch import is_live, is_over, outcome
from safelaunch.runtime import state


@click.command("wait")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up after this time (exit 1).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, timeout: float | None, as_json: bool) -> int:
    """Wait until a run has ended; exit 0 if it succeeded, else 1."""
    found = runs.find_live(runs.home(os.environ), run, is_live)
    deadline = None if timeout is None else time.monotonic() + timeout
    while not is_over(found):
        if deadline is not None and time.monotonic() > deadline:
            say(f"{found.id} still runs")
            break
        time.sleep(0.1)
    status = state.judge(found.node_dir)
    if as_json:
        print_json(runs.show_json(found, status, runs.ranks(found)))
    if status.get("state") in ("running", "pending"):
        return 1
    return outcome(found, status)
