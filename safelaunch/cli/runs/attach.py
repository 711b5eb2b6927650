"""`safelaunch attach`: shows the run's tmux pane in this terminal."""

from __future__ import annotations

import os
import shlex
import sys

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.runs.follow import rank_log_command, short_state
from safelaunch.errors import HostError, RunError
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import store
from safelaunch.runtime import backends
from safelaunch.runtime.units import quantity


@click.command("attach")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--node", type=click.IntRange(0), metavar="N", help="Node of a run on several hosts.")
def command(run: str | None, node: int | None) -> int:
    """Attach this terminal to a run's tmux pane. Leave with Ctrl-B D; Ctrl-C stops the job."""
    access = catalog().find_live(run)
    status = access.status()
    number = store.node_number(access.record, node)
    logs = f"safelaunch logs -f {access.id}"
    if status.state == "unknown" and isinstance(access, RemoteRun):
        raise HostError(str(status.reason), where=access.id)
    if status.state == "lost":
        alive = quantity(status.alive, "process")
        raise RunError(
            f"the supervisor of {access.id} is gone, and its tmux pane; {alive} alive",
            hint=rank_log_command(access),
        )
    if status.state != "running":
        raise RunError(
            f"{access.id} is not running: {short_state(status)}",
            hint=f"safelaunch logs {access.id}",
        )
    record = store.last_status(access.record, number) if number else status
    backend, handle = backends.from_record(record)
    command = backend.attach(handle)
    if not command:
        raise RunError(f"{access.id} was started without tmux", hint=logs)
    if not access.has_terminal(record, number):
        raise RunError(f"the tmux server of {access.id} is gone; the job keeps running", hint=logs)
    if not sys.stdin.isatty():
        raise RunError("attach needs a terminal", hint=logs)
    if isinstance(access, RemoteRun):
        from safelaunch.cli.runs.attach_remote import attach  # noqa: PLC0415 - over SSH only

        return attach(access, shlex.join(command), number)
    environment = {k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE")}
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - this process becomes tmux
    except OSError as e:
        raise RunError(f"cannot run {command[0]}: {e.strerror}", hint=logs) from e
