"""`safelaunch attach`: this terminal becomes the run's tmux pane."""

from __future__ import annotations

import os
import sys

import click

from safelaunch import runs
from safelaunch.backends import tmux
from safelaunch.cli.complete import complete_run
from safelaunch.cli.watch import describe, is_live
from safelaunch.errors import RunError
from safelaunch.runtime import state


@click.command("attach")
@click.argument("run", required=False, shell_complete=complete_run)
def command(run: str | None) -> int:
    """Attach this terminal to a run's tmux pane. Leave with Ctrl-B D; Ctrl-C stops the job."""
    found = runs.find_live(runs.home(os.environ), run, is_live)
    status = state.judge(found.node_dir)
    look = f"safelaunch logs -f {found.id}"
    if status.get("state") != "running":
        raise RunError(
            f"{found.id} does not run ({describe(status)})", hint=f"safelaunch logs {found.id}"
        )
    socket = status.get("socket")
    if not socket:
        raise RunError(f"{found.id} was started without tmux", hint=look)
    if not tmux.is_served(str(socket)):
        raise RunError(f"the tmux server of {found.id} is gone; the job goes on", hint=look)
    if not sys.stdin.isatty():
        raise RunError("attach needs a terminal", hint=look)
    environment = {k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE")}
    try:
        os.execvpe(  # noqa: S606 - this process becomes tmux
            "tmux", ["tmux", "-S", str(socket), "attach"], environment
        )
    except OSError as e:
        raise RunError(f"tmux cannot be run: {e.strerror}", hint=look) from e
