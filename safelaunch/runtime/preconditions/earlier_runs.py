"""Runs of the same machine that must have ended before a run begins."""

from __future__ import annotations

import os

from safelaunch.runtime import processes, run_state
from safelaunch.runtime.preconditions import Precondition, PreconditionFailed, step_outputs
from safelaunch.runtime.records import EarlierRun, Failure, Process, RunRecord, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CLASS = "earlier-run"  # failure class of a run whose precondition can never be met


def preconditions(run: RunRecord, node_dir: str, umask: int) -> list[EarlierRunEnd]:
    """Return one for each run that must have ended. An engine has waited for its jobs itself."""
    del umask
    if run.engine is not None:
        return []
    folder = os.path.dirname(os.path.dirname(node_dir))
    return [EarlierRunEnd(earlier, folder, list(run.placeholders)) for earlier in run.after]


def outputs(run: RunRecord, folder: str, names: Iterable[str]) -> dict[str, str]:
    """Return the values of these placeholders that are outputs of earlier steps.

    `folder` is that of all runs. Raises PreconditionFailed.
    """
    values: dict[str, str] = {}
    for earlier in run.after:
        values.update(EarlierRunEnd(earlier, folder, list(names)).values())
    return values


class EarlierRunEnd(Precondition):
    """The end of a run of this machine: with success of all its nodes, or any end of this one."""

    def __init__(self, earlier: EarlierRun, folder: str, names: Sequence[str] = ()) -> None:
        self.earlier = earlier
        self.names = names  # of placeholders
        self.dir = os.path.join(folder, earlier.run, f"node-{earlier.node}")
        self.was_there = os.path.isdir(self.dir)

    def subject(self) -> str:
        """Return which end it waits for."""
        return f"the end of {self.earlier.run}"

    def poll(self) -> str:
        """Return that the run has not ended; raise PreconditionFailed for the wrong end."""
        run = self.earlier.run
        if self.earlier.has_ended:
            return ""
        status = run_state.current_status(self.dir)
        if status.state not in (*run_state.ENDED, "lost"):
            return self.subject()
        if self.earlier.is_any_end:
            left = status.state == "lost" and status.alive  # they go on without a supervisor
            return f"the end of {run}, of which {status.alive} processes are left" if left else ""
        if status.state == "succeeded":
            return self._wait_for_nodes(status)
        if not os.path.isdir(self.dir):
            how = (
                "was removed while this run waited" if self.was_there else "is not on this machine"
            )
            raise self._failure(f"{how}: how it ended is not known")
        reason = f" ({status.reason})" if status.reason else ""
        raise self._failure(f"ended: {status.state}{reason}")

    def values(self) -> Mapping[str, str]:
        """Return the outputs of the run that are words of the later one."""
        prefix = f"steps.{self.earlier.step}."
        values: dict[str, str] = {}
        for name in self.names:
            if self.earlier.step is None or not name.startswith(prefix):
                continue
            try:
                values[name] = step_outputs.value(self.dir, name[len(prefix) :])
            except step_outputs.OutputMissing as e:
                why = e if os.path.isdir(self.dir) else "that run was removed"
                what = f"`{{{name}}}` of {self.earlier.run} is missing: {why}"
                advice = f"`safelaunch logs {self.earlier.run}` shows what it has saved"
                raise PreconditionFailed(
                    Failure(version=1, class_name=CLASS, role="root", what=what, advice=advice)
                ) from e
        return values

    def _wait_for_nodes(self, status: Status) -> str:
        """Return that other nodes of a run have not ended, by what its supervisor here has heard.

        Raises PreconditionFailed where one has not succeeded, or its end will not be known.
        """
        run = RunRecord.read(self.dir) or RunRecord()
        if len(run.hosts) < 2 or run.manual_node is not None:  # noqa: PLR2004 - its own end
            return ""
        ends = {node.node: node for node in status.nodes}
        for number, host in enumerate(run.hosts):
            if number == run.node:
                continue
            name, end = f"{host} (node {number})", ends.get(number)
            if end is not None and end.state == "succeeded":
                continue
            if end is not None and end.state != "unknown":
                raise self._failure(f"ended on {name}: {end.state}")
            if end is None and processes.is_alive(status.supervisor or Process()):
                return f"the end of {run.id} on {name}"
            raise self._failure(f"succeeded here, but how it ended on {name} is not known")
        return ""

    def _failure(self, what: str) -> PreconditionFailed:
        run = self.earlier.run
        advice = f"`safelaunch show {run}` says why; `--after-any` starts after any end"
        text = f"{run}, after which this run was to start, {what}"
        return PreconditionFailed(
            Failure(version=1, class_name=CLASS, role="cascade", what=text, advice=advice)
        )
