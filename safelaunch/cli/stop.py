"""`safelaunch stop`: end a run, and prove that nothing of it is left."""

from __future__ import annotations

import os

import click

from safelaunch import runs
from safelaunch.cli import print_json
from safelaunch.cli.complete import complete_run
from safelaunch.cli.watch import describe, is_live
from safelaunch.errors import RunError
from safelaunch.runtime import state


@click.command("stop")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option(
    "--grace",
    type=click.FloatRange(0, 3600),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between TERM and KILL.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, grace: float, as_json: bool) -> int:
    """Stop a run: TERM, the grace, KILL, then proof that nothing of it is left."""
    found = runs.find_live(runs.home(os.environ), run, is_live)
    ended = state.judge(found.node_dir).get("state") in state.ENDED
    status = state.stop(found.node_dir, grace)
    if as_json:
        print_json(runs.show_json(found, status, runs.ranks(found)))
    if status.get("state") == "unknown":
        raise RunError(f"{found.id} {status.get('reason')}", hint="stop it there")
    if status.get("alive"):
        raise RunError(f"{status['alive']} processes of {found.id} cannot be ended (in the kernel)")
    if not as_json:
        already = "had ended already: " if ended else ""
        click.echo(f"{found.id}: {already}{describe(status)}; no process is left")
    return 0
