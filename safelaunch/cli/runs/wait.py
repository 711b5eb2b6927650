"""`safelaunch wait`: until a run has ended."""

from __future__ import annotations

import os
import time

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.output import print_json, say
from safelaunch.cli.runs import access
from safelaunch.cli.runs.follow import counted, fitted, outcome
from safelaunch.runs import store
from safelaunch.runtime.agent.runs import is_over


@click.command("wait")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up after this time (exit 1).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, timeout: float | None, as_json: bool) -> int:
    """Wait until a run has ended; exit 0 if it succeeded, else 1."""
    found = store.find_live(store.home(os.environ), run, access.is_live)
    deadline = None if timeout is None else time.monotonic() + timeout
    is_told = False
    status = access.judge(found)
    is_away = access.is_remote(found)
    pause = 1.0 if is_away else 0.1
    while not is_over(status) or (is_away and status.get("state") == "unknown"):
        if status.get("state") == "lost" and not is_told:
            is_told = True
            left = f"waiting for what is left, {counted(status.get('alive'))}"
            stop = f"safelaunch stop {found.id} ends it"
            say(fitted(f"{found.id}: the supervisor is gone; {left} ({stop})"))
        if deadline is not None and time.monotonic() > deadline:
            still = {"lost": "some of it is still alive", "unknown": "not known to have ended"}
            say(f"{found.id}: {still.get(str(status.get('state')), 'still runs')}")
            break
        time.sleep(pause)
        status = access.judge(found)
    if as_json:
        print_json(store.show_json(found, status, store.ranks(found)))
    if status.get("state") in ("running", "pending"):
        return 1
    return outcome(found, status)
