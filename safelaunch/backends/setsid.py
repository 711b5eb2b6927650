"""A supervisor without a terminal: everything but `attach` works."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from safelaunch.backends import Supervised
    from safelaunch.transports import Transport

NAME = "setsid"


def start(machine: Transport, supervised: Supervised) -> int:
    """Start the supervisor in a session of its own and return its pid."""
    return machine.detach(supervised.argv, cwd=supervised.cwd)
