"""`safelaunch rerun`: the same plan again, whatever has become of the job file."""

from __future__ import annotations

import os
from typing import Any

import click

from safelaunch import runs
from safelaunch.cli import looking
from safelaunch.cli.complete import complete_run
from safelaunch.cli.start import start
from safelaunch.errors import ConfigError, RunError
from safelaunch.execute.resume import of_run
from safelaunch.model import Plan
from safelaunch.remote import mirror
from safelaunch.runtime import state
from safelaunch.serial import thaw


@click.command("rerun")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--resume", is_flag=True, help="Go on from its end, with `recovery: resume_args`.")
@click.option("--follow", "-f", is_flag=True, help="Stream the log; exit 0/1 with the job.")
@click.option("--foreground", is_flag=True, help="For CI: stay, and stop the job when stopped.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, **options: Any) -> int:
    """Start a recorded run's plan again: same command and variables, fresh id and port.

    Later changes of the job file do not count; for those use `safelaunch run`.
    """
    home = runs.home(os.environ)
    found = runs.find(home, run)
    if looking.is_remote(found):
        looking.judge(found)
    record = state.read_json(os.path.join(found.node_dir, "plan.json"))
    plan = thaw(record.get("unbound")) if record else None
    if not isinstance(plan, Plan):
        raise RunError(f"{found.id} has no recorded plan", where=found.node_dir)
    if options["resume"]:
        plan = of_run(plan, home, found.id)
    at = mirror.pointer(found) if looking.is_remote(found) else None
    if at is None:
        return start(plan, options)
    if options["foreground"]:
        raise ConfigError("`--foreground` is for a run of this machine", hint="--follow")
    from safelaunch.cli.afar import again  # noqa: PLC0415 - for hosts only

    return again(plan, at, options)
