"""The status of a node as it is now, and its stop, whether or not an engine has its run."""

# ruff: noqa: PLC0415 - what asks an engine: few runs have one

from __future__ import annotations

import os

from safelaunch.runtime import run_state
from safelaunch.runtime.records import EngineJob

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import Status


def is_on_engine(folder: str) -> bool:
    """Whether an engine has the run in this folder."""
    return os.path.exists(os.path.join(folder, "node-0", EngineJob.FILE))


def status(node_dir: str) -> Status:
    """Return the status of a node as it is now."""
    folder, name = os.path.split(node_dir)
    if not is_on_engine(folder):
        return run_state.current_status(node_dir)
    from safelaunch.runtime.engines import nodes

    return next(node.status for node in nodes.nodes(folder) if f"node-{node.number}" == name)


def stop(node_dir: str, grace: float) -> tuple[Status, bool]:
    """Stop a node, or with an engine its whole run.

    Returns its status, and whether it had ended before.
    """
    folder = os.path.dirname(node_dir)
    if not is_on_engine(folder):
        had_ended = run_state.current_status(node_dir).state in run_state.ENDED
        return run_state.stop(node_dir, grace), had_ended
    from safelaunch.runtime.engines import nodes

    had_ended = nodes.stop(folder, grace)
    return status(node_dir), had_ended
