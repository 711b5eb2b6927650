"""What starts a run's supervisor and keeps it alive: tmux, or setsid where there is no tmux."""

from __future__ import annotations

from typing import NamedTuple


class Supervised(NamedTuple):
    """What a backend starts: the supervisor of one node."""

    run_id: str
    argv: tuple[str, ...]
    cwd: str
