"""Runs of the same machine that must have ended before a run begins."""

from __future__ import annotations

import os

from safelaunch.runtime import run_state
from safelaunch.runtime.preconditions import Precondition, PreconditionFailed
from safelaunch.runtime.records import EarlierRun, Failure, RunRecord

CLASS = "earlier-run"  # failure class of a run whose precondition can never be met


def preconditions(run: RunRecord, node_dir: str) -> list[EarlierRunEnd]:
    """Return one for each run that must have ended."""
    folder = os.path.dirname(os.path.dirname(node_dir))
    return [EarlierRunEnd(earlier, folder) for earlier in run.after]


class EarlierRunEnd(Precondition):
    """The end of a run of this machine: with success, or any."""

    def __init__(self, earlier: EarlierRun, folder: str) -> None:
        self.earlier = earlier
        self.dir = os.path.join(folder, earlier.run, f"node-{earlier.node}")

    def poll(self) -> str:
        """Return that the run has not ended; raise PreconditionFailed for the wrong end."""
        run = self.earlier.run
        status = run_state.current_status(self.dir)
        if status.state not in (*run_state.ENDED, "lost"):
            return f"the end of {run}"
        if self.earlier.is_any_end or status.state == "succeeded":
            return ""
        reason = f" ({status.reason})" if status.reason else ""
        what = f"{run}, after which this run was to start, ended: {status.state}{reason}"
        advice = f"`safelaunch show {run}` says why; `--after-any` starts after any end"
        raise PreconditionFailed(
            Failure(version=1, class_name=CLASS, role="cascade", what=what, advice=advice)
        )
