"""The verb that waits for changes of the runs of this machine."""

from __future__ import annotations

import os
import time

from safelaunch.runtime.agent import runs
from safelaunch.runtime.home import home
from safelaunch.runtime.logs import event_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.agent.wire import Link, Message

TICK = 0.2  # seconds between two looks at the files of runs


def poll(request: Message, link: Link) -> Message:
    """Return {run id: {node: change}} of the nodes that have changed since the last answer.

    `runs` has for each run and node the position in its events and the stamp of the last answer,
    "" at first; without a change the answer waits `wait` seconds for one. A change is the node's
    `view`, brief while it runs, its `stamp`, its `events` (pairs of the position behind an event
    and the event), the `position` behind them all, and whether there is `more`.
    """
    deadline = time.monotonic() + float(request["wait"])
    marks = {
        (str(run), str(node)): (int(position), str(stamp))
        for run, nodes in request["runs"].items()
        for node, (position, stamp) in nodes.items()
    }
    folder = os.path.join(home(), "runs")
    while True:
        stamps = _stamps(folder, marks)
        answer = _changes(folder, marks)
        if answer or time.monotonic() >= deadline:
            return {"runs": answer}
        while time.monotonic() < deadline and _stamps(folder, marks) == stamps:
            if link.is_closed():
                raise BrokenPipeError
            time.sleep(TICK)


def _stamps(folder: str, marks: dict[tuple[str, str], tuple[int, str]]) -> list[str]:
    return [event_lines.stamp(_node_dir(folder, *key)) for key in marks]


def _node_dir(folder: str, run: str, node: str) -> str:
    return os.path.join(folder, run, f"node-{int(node)}")


def _changes(folder: str, marks: dict[tuple[str, str], tuple[int, str]]) -> Message:
    """Return what the verb answers, {} where nothing has changed."""
    before = {key: event_lines.stamp(_node_dir(folder, *key)) for key in marks}
    # in the order of the question: a run before the one after which it begins, so that no begin is
    # seen without the end before it
    views = runs.views(list(dict.fromkeys(run for run, _ in marks)), {"brief": True})
    over: set[str] = set()
    changes: Message = {}
    for (run, node), (position, last) in marks.items():
        view = views.get(run, {}).get(node)
        status = (view or {}).get("status", {})
        state = [status.get(key) for key in ("state", "alive", "reason", "as_of")]
        stamp = f"{before[run, node]} {state}"
        end, events, has_more = event_lines.read_events(_node_dir(folder, run, node), position)
        if end != position or stamp != last:
            if status.get("state") not in ("pending", "running") and run not in over:
                over.add(run)
                views.update(runs.views([run], {}))  # why it has failed too
                view = views.get(run, {}).get(node)
            changes.setdefault(run, {})[node] = {
                "view": view,
                "stamp": stamp,
                "position": end,
                "events": events,
                "more": has_more,
            }
    return changes


VERBS = {"poll": poll}
