"""Starts a plan whose hosts have answered: on each of them, or by the engine of a login node."""

# ruff: noqa: PLC0415 - each start needs one of both

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from safelaunch.remote.start.prepare import PreparedStart
    from safelaunch.start.caller import Started


def start(prepared: PreparedStart, *, follow: bool = False) -> Started:
    """Start a plan. Raises StartError, HostError, Refused.

    `follow`: the log will be read at once, and is requested together with the start.
    """
    if prepared.plan.engine is not None:
        from safelaunch.remote.start.engine import submit

        return submit(prepared)
    from safelaunch.remote.start.nodes import start_nodes

    return start_nodes(prepared, follow=follow)
