"""What starts a run's supervisor and keeps it alive: tmux, or setsid where there is no tmux."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from safelaunch.start.process import Transport


class Supervised(NamedTuple):
    """What a backend starts: the supervisor of one node."""

    run_id: str
    argv: tuple[str, ...]
    cwd: str


NAME = "setsid"


def start(machine: Transport, supervised: Supervised) -> int:
    """Start the supervisor in a session of its own and return its pid."""
    return machine.detach(supervised.argv, cwd=supervised.cwd)


class Backend(NamedTuple):
    """What will hold the supervisor, and what to say if it is not tmux."""

    name: str
    socket: str | None
    note: str | None
