"""`safelaunch attach`: this terminal becomes the run's tmux pane."""

from __future__ import annotations

import os
import shlex
import sys

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.runs.follow import in_short, own_log
from safelaunch.errors import HostError, RunError
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import store
from safelaunch.runtime import backends
from safelaunch.runtime.units import quantity


@click.command("attach")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--node", type=click.IntRange(0), metavar="N", help="Which node of several.")
def command(run: str | None, node: int | None) -> int:
    """Attach this terminal to a run's tmux pane. Leave with Ctrl-B D; Ctrl-C stops the job."""
    access = catalog().find_live(run)
    status = access.status()
    number = store.node_number(access.record, node)
    look = f"safelaunch logs -f {access.id}"
    if status.state == "unknown" and isinstance(access, RemoteRun):
        raise HostError(str(status.reason), where=access.id)
    if status.state == "lost":
        left = quantity(status.alive, "process")
        raise RunError(
            f"the supervisor of {access.id} is gone, and the pane with it; {left} alive",
            hint=own_log(access),
        )
    if status.state != "running":
        raise RunError(
            f"{access.id} is not running: {in_short(status)}", hint=f"safelaunch logs {access.id}"
        )
    record = store.kept(access.record, number) if number else status
    backend, handle = backends.from_record(record)
    command = backend.attach(handle)
    if not command:
        raise RunError(f"{access.id} was started without tmux", hint=look)
    if not access.has_terminal(record, number):
        raise RunError(f"the tmux server of {access.id} is gone; the job goes on", hint=look)
    if not sys.stdin.isatty():
        raise RunError("attach needs a terminal", hint=look)
    if isinstance(access, RemoteRun):
        from safelaunch.cli.runs.attach_remote import attach  # noqa: PLC0415 - over SSH only

        return attach(access, shlex.join(command), number)
    environment = {k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE")}
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - this process becomes tmux
    except OSError as e:
        raise RunError(f"{command[0]} cannot be run: {e.strerror}", hint=look) from e
