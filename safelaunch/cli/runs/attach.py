"""`safelaunch attach`: this terminal becomes the run's tmux pane."""

from __future__ import annotations

import os
import shlex
import sys

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.runs import access
from safelaunch.cli.runs.follow import counted, in_short, own_log
from safelaunch.errors import HostError, RunError
from safelaunch.runs import store
from safelaunch.runtime import backends


@click.command("attach")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--node", type=click.IntRange(0), metavar="N", help="Which node of several.")
def command(run: str | None, node: int | None) -> int:
    """Attach this terminal to a run's tmux pane. Leave with Ctrl-B D; Ctrl-C stops the job."""
    found = store.find_live(store.home(os.environ), run, access.is_live)
    status = access.judge(found)
    number = store.node_number(found, node)
    look = f"safelaunch logs -f {found.id}"
    if status.get("state") == "unknown" and access.is_remote(found):
        raise HostError(str(status.get("reason")), where=found.id)
    if status.get("state") == "lost":
        left = counted(status.get("alive"))
        raise RunError(
            f"the supervisor of {found.id} is gone, and the pane with it; {left} alive",
            hint=own_log(found),
        )
    if status.get("state") != "running":
        raise RunError(
            f"{found.id} does not run ({in_short(status)})", hint=f"safelaunch logs {found.id}"
        )
    own = store.kept(found, number) if number else status
    backend, handle = backends.from_record(own)
    command = backend.attach(handle)
    if not command:
        raise RunError(f"{found.id} was started without tmux", hint=look)
    if not access.has_terminal(found, own, number):
        raise RunError(f"the tmux server of {found.id} is gone; the job goes on", hint=look)
    if not sys.stdin.isatty():
        raise RunError("attach needs a terminal", hint=look)
    if access.is_remote(found):
        from safelaunch.cli.runs.attach_remote import attach  # noqa: PLC0415 - over SSH only

        return attach(found, shlex.join(command), number)
    environment = {k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE")}
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - this process becomes tmux
    except OSError as e:
        raise RunError(f"{command[0]} cannot be run: {e.strerror}", hint=look) from e
