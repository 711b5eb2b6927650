"""`safelaunch wait`: waits until a run has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json, say
from safelaunch.cli.runs import groups
from safelaunch.cli.runs.follow import fold, headline, outcome
from safelaunch.runs import store
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from safelaunch.runtime.records import Status

_NOT_OVER = {"lost": "some processes are still alive", "unknown": "it may not have ended yet"}


@click.command("wait")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up after this time (exit 1).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, timeout: float | None, as_json: bool) -> int:
    """Wait until a run has ended; exit 0 if it succeeded, else 1.

    With the commands and the upload at its end, but not for the shutdown of its machine.
    """
    group = groups.find_group(run)
    if group is not None:
        return groups.wait(group, timeout, as_json=as_json)
    access = catalog().find_live(run)
    is_reported = False

    def report(status: Status) -> None:
        nonlocal is_reported
        if status.state == "lost" and not is_reported:
            is_reported = True
            processes = quantity(status.alive, "process")
            stop = f"to end them: safelaunch stop {access.id}"
            text = f"the supervisor is gone; waiting for {processes} still alive ({stop})"
            say(fold(f"{access.id}: {text}"))
        elif status.is_ending and not is_reported:
            is_reported = True
            say(headline(access, status))

    status = access.wait(timeout, report)
    if not access.is_over(status):
        say(f"{access.id}: {_NOT_OVER.get(status.state, 'still running')}")
    if as_json:
        print_json(
            store.show(access.record, status, access.ranks(), access.failure(status)).to_json()
        )
    if status.state in ("running", "pending"):
        return 1
    return outcome(access, status)
