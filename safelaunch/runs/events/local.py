"""The changes of a run whose files are on this machine."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from safelaunch.runs import store
from safelaunch.runs.events.changes import Notice, RunView
from safelaunch.runtime.logs import event_lines

if TYPE_CHECKING:
    from safelaunch.runs.access import RunAccess
    from safelaunch.runs.events.cursor import Mark
    from safelaunch.runs.store import Run

CHECK = 2.0  # seconds between two looks for the processes of a run that records nothing


def _is_being_recorded(run: Run) -> bool:
    """Whether the folder of a run has just been made, and no node in it yet."""
    try:
        age = time.time() - os.stat(run.folder).st_mtime
    except OSError:
        return False
    return age < CHECK and not os.path.isdir(run.node_dir)


class LocalSource:
    """Looks at the files of a run, and at its processes where they have changed, or seldom."""

    def __init__(self, run: RunAccess, mark: Mark) -> None:
        self.run = run
        self._positions = dict(mark.positions)
        self._stamps: list[str] = []
        self._due = 0.0

    def poll(self) -> RunView | None:
        """Return the run as it is; None where nothing can have changed since the last look."""
        record = self.run.record
        nodes = {node: store.node_dir(record, node) for node in store.node_numbers(record)}
        stamps, now = [event_lines.stamp(path) for path in nodes.values()], time.monotonic()
        if stamps == self._stamps and now < self._due:
            return None
        if not self._stamps and _is_being_recorded(record):
            return None
        status = self.run.status()  # before the events: of an end all of them are read
        notices: list[Notice] = []
        for node, path in nodes.items():
            has_more = True
            while has_more:
                position = self._positions.get(node, 0)
                self._positions[node], events, has_more = event_lines.read_events(path, position)
                notices += [Notice(node, at, event) for at, event in events]
        self._stamps, self._due = stamps, now + CHECK
        return RunView(
            status,
            notices,
            is_over=self.run.is_over(status),
            failure=lambda: self.run.failure(status),
            now=time.time(),
        )
