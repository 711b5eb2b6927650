"""tmux: one server per run, with no configuration, so that a user's own tmux can do it no harm.

A session on a shared server would get that server's old environment (tmux 3041), and a user's
`destroy-unattached` would kill the job.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from safelaunch.errors import StartError
from safelaunch.runtime.agent import start as agent_start

if TYPE_CHECKING:
    from safelaunch.start.backend import Supervised
    from safelaunch.start.process import Result, Transport

NAME = "tmux"
OLDEST = (2, 1)  # runs several words as they are; older ones join them into one shell line


def why_not(machine: Transport) -> str | None:
    """Return why tmux cannot be used on this machine, or None if it can."""
    try:
        result = machine.run(["tmux", "-V"], timeout=10)
    except StartError as e:
        return e.message
    return judge(result)


def judge(result: Result) -> str | None:
    """Return why tmux cannot be used, from what `tmux -V` said; None if it can."""
    found = re.search(r"(\d+)\.(\d+)", result.out)
    if result.code != 0 or (found is None and "master" not in result.out):
        return f"`tmux -V` says: {result.last_line or result.code}"
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(str(n) for n in OLDEST)
        return f"{result.out.strip()} is too old ({oldest} or newer)"
    return None


def socket_path(run_id: str) -> str:
    """Return a short path for the run's socket. Raises StartError where there is no such place."""
    try:
        return agent_start.socket_path(run_id)
    except OSError as e:
        raise StartError(f"no folder for tmux's socket ({e.strerror})") from e


def start(machine: Transport, supervised: Supervised, socket: str) -> None:
    """Start the supervisor in a detached session on a server of its own. Raises StartError."""
    words = agent_start.tmux_words(supervised.run_id, supervised.cwd, socket, supervised.argv)
    result = machine.run(words, timeout=20)
    if result.code != 0:
        raise StartError(f"tmux did not start: {result.last_line or result.code}")


def attach_command(socket: str) -> str:
    """Return the plain tmux command that shows the run."""
    return f"tmux -S {shlex.quote(socket)} attach"
