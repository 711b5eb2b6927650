"""Asks hosts for the status of runs, stops them, and records what was seen in the mirror.

A host that cannot be reached never changes a run: its state is `unknown` then, with the last status
that was seen.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from safelaunch.errors import HostError
from safelaunch.remote.parallel import together
from safelaunch.runs import combine_nodes, mirror, store
from safelaunch.runtime import run_state
from safelaunch.runtime.agent.runs import NodeView
from safelaunch.runtime.records import NodePlace, PlanRecord
from safelaunch.runtime.units import brief_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.remote.host_pool import HostPool
    from safelaunch.runtime.records import RemoteRecord, Status

    Views = dict[str, dict[int, NodeView]]  # by run id and node


def statuses(
    pool: HostPool, runs: Sequence[tuple[store.Run, RemoteRecord]], *, brief: bool = False
) -> dict[str, Status]:
    """Return {run id: status} as it is on the hosts, or as it was when last seen.

    Each host is asked once, for all of its runs. `brief` leaves runs alone that are recorded as
    ended, though less is recorded of them.
    """
    ids_of: dict[str, list[str]] = {}
    for run, pointer in runs:
        for place in pointer.places:
            if not _is_complete(run, place, brief=brief):
                ids_of.setdefault(place.host, []).append(run.id)
    places = [(run, place) for run, pointer in runs for place in pointer.places]
    files = [] if brief or all(_has_plan(*place) for place in places) else [PlanRecord.FILE]

    def ask(host: str) -> Views | HostError:
        try:
            return _views(pool.call(host, "runs.runs", ids=ids_of[host], files=files))
        except HostError as e:
            return e

    starting = {run.id for run, _ in runs if mirror.is_starting(run)}
    answers = dict(zip(ids_of, together(ask, list(ids_of)), strict=True))
    by_id = {}
    for run, pointer in runs:
        nodes = []
        for place in pointer.places:
            answer, is_starting = answers.get(place.host), run.id in starting
            status = _node_status(run, place, answer, is_starting=is_starting)
            nodes.append(combine_nodes.NodeState(place.node, place.host, status))
        by_id[run.id] = combine_nodes.status(nodes)
        if len(nodes) > 1 and any(node.state == "failed" for node in nodes):
            lost = [host for host, answer in answers.items() if isinstance(answer, HostError)]
            _record_clocks(pool, run, [p for p in pointer.places if p.host not in lost])
    return by_id


def _views(answer: dict[str, dict[str, dict[str, dict[str, object]]]]) -> Views:
    return {
        run_id: {int(node): NodeView.from_json(view) for node, view in nodes.items()}
        for run_id, nodes in answer["runs"].items()
    }


def _node_status(
    run: store.Run, place: NodePlace, answer: Views | HostError | None, *, is_starting: bool
) -> Status:
    """Return a node's status; `is_starting`: the run was still being started before the answer."""
    last = store.last_status(run, place.node)
    has_ended = last.state in run_state.ENDED
    if answer is None:
        return last  # an end is an end: nothing on the host can change it
    if has_ended and (isinstance(answer, HostError) or not answer.get(run.id)):
        return last
    status = last.copy()
    if isinstance(answer, HostError):
        status.state, status.last_state = "unknown", last.state
        status.reason = f"{place.host} does not answer: {answer.message}"
        at = store.mirror_record(run, place.node).at
        if at is not None and last.state != "unknown":
            ago = brief_duration(time.time() - at)
            status.reason += f"; when last seen, {ago} ago, it was {last.state}"
        return status
    view = answer.get(run.id, {}).get(place.node)
    if is_starting and (view is None or view.status.state == "lost"):
        return last
    if view is not None:
        mirror.save(run, place, view)
        return view.status
    status.state, status.alive = "lost", 0
    status.reason = f"its directory is gone from {place.host}"
    if last.state == "pending":
        status.reason = f"it never started on {place.host}"
    return status


def stop(pool: HostPool, run: store.Run, pointer: RemoteRecord, grace: float) -> bool:
    """Stop a run on all its hosts; return whether it had ended before on each.

    Raises HostError where one of them does not answer; the others are stopped all the same.
    """

    def stop_node(place: NodePlace) -> bool | HostError:
        try:
            answer = pool.call(place.host, "runs.stop", id=run.id, node=place.node, grace=grace)
        except HostError as e:
            return e
        return bool(answer["ended"])

    answers = together(stop_node, pointer.places)
    pairs = list(zip(pointer.places, answers, strict=True))
    stopped = [place.host for place, answer in pairs if not isinstance(answer, HostError)]
    for place, answer in pairs:
        if isinstance(answer, HostError):
            if stopped:
                pool.report(f"{', '.join(stopped)}: stopped; not known to be: {place.host}")
            raise answer
    return all(answers)


def record_runs(pool: HostPool, home: str, host: str) -> list[str]:
    """Write each run of a host into the mirror, whoever started it; return their ids."""
    runs = _views(pool.call(host, "runs.runs", brief=True))
    for run_id, nodes in runs.items():
        # those of a shared home folder may be on another machine
        views = {node: view for node, view in nodes.items() if view.status.state != "unknown"}
        places = [
            NodePlace(host=host, node=node, run_dir=view.run_dir) for node, view in views.items()
        ]
        run = mirror.run_by_id(home, run_id)
        if mirror.pointer(run) is None and not os.path.isdir(run.folder) and views:
            name = next(iter(views.values())).status.name or run.name
            mirror.create(home, run_id, places, name, pool.hosts_path)
        if mirror.pointer(run) is not None:
            mirror.add_nodes(run, places)
            for place in places:
                mirror.save(run, place, views[place.node])
    return list(runs)


def _record_clocks(pool: HostPool, run: store.Run, places: Sequence[NodePlace]) -> None:
    """Record how far the hosts' clocks are ahead of this one: it orders their failures."""

    def compare(place: NodePlace) -> None:
        if store.mirror_record(run, place.node).ahead is not None:
            return
        try:
            ahead = pool.clock_offset(place.host)
        except HostError:
            return
        mirror.save_clock_offset(run, place.node, ahead)

    together(compare, places)


def _is_complete(run: store.Run, place: NodePlace, *, brief: bool) -> bool:
    """Whether a node's end is recorded, and unless `brief` all that its host could add to it."""
    if store.last_status(run, place.node).state not in run_state.ENDED:
        return False
    has_logs = "attempts" in store.mirror_record(run, place.node)
    return brief or (has_logs and _has_plan(run, place))


def _has_plan(run: store.Run, place: NodePlace) -> bool:
    return os.path.exists(os.path.join(store.node_dir(run, place.node), PlanRecord.FILE))
