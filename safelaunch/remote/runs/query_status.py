"""Asks hosts how their runs are, and stops them; what was seen is written to the mirror.

A host that cannot be reached never changes what a run is: its state is `unknown` then, with what
was known last.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from safelaunch.errors import HostError
from safelaunch.remote.parallel import together
from safelaunch.runs import combine_nodes, mirror, store
from safelaunch.runtime import run_state
from safelaunch.runtime.agent.runs import NodeView
from safelaunch.runtime.records import PlanRecord
from safelaunch.runtime.units import brief_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.remote.host_pool import HostPool
    from safelaunch.runs.mirror import Place, Pointer
    from safelaunch.runtime.records import Status


def statuses(
    pool: HostPool, runs: Sequence[tuple[store.Run, Pointer]], *, brief: bool = False
) -> dict[str, Status]:
    """Return {run id: status} as it is on the hosts, or as it was when last seen.

    Each host is asked once, for all of its runs. `brief` leaves runs alone that are known to have
    ended, though less is known of them.
    """
    ids_of: dict[str, list[str]] = {}
    for run, pointer in runs:
        for place in pointer.places:
            if not _is_over(run, place, brief=brief):
                ids_of.setdefault(place.host, []).append(run.id)
    files = [] if brief or all(_has_plans(*run) for run in runs) else [PlanRecord.FILE]

    def ask(host: str) -> dict[str, Any] | HostError:
        try:
            answer = pool.call(host, "runs.runs", ids=ids_of[host], files=files)
        except HostError as e:
            return e
        views: dict[str, Any] = answer["runs"]
        return views

    answers = dict(zip(ids_of, together(ask, list(ids_of)), strict=True))
    by_id = {}
    for run, pointer in runs:
        nodes = [
            combine_nodes.Node(p.node, p.host, _node_status(run, p, answers.get(p.host)))
            for p in pointer.places
        ]
        by_id[run.id] = combine_nodes.status(nodes)
        if len(nodes) > 1 and any(node.state == "failed" for node in nodes):
            lost = [host for host, answer in answers.items() if isinstance(answer, HostError)]
            _compare_clocks(pool, run, [p for p in pointer.places if p.host not in lost])
    return by_id


def _node_status(run: store.Run, place: Place, answer: dict[str, Any] | HostError | None) -> Status:
    last = store.kept(run, place.node)
    has_ended = last.state in run_state.ENDED
    if answer is None:
        return last  # an end is an end: nothing on the host can change it
    if has_ended and (isinstance(answer, HostError) or not answer.get(run.id)):
        return last
    if isinstance(answer, HostError):
        return unreachable(last, store.mirrored(run, place.node) or store.Mirror(), answer)
    data = answer.get(run.id, {}).get(str(place.node))
    if data is None:
        return removed(last, place.host)
    view = NodeView.from_json(data)
    mirror.keep(run, place, view)
    return view.status


def stop(pool: HostPool, run: store.Run, pointer: Pointer, grace: float) -> bool:
    """Stop a run on all its hosts; return whether it had ended before on each.

    Raises HostError where one of them does not answer; the others are stopped all the same.
    """

    def stop_node(place: Place) -> bool | HostError:
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
                pool.say(f"{', '.join(stopped)}: stopped; not known to be: {place.host}")
            raise answer
    return all(answers)


def record_runs(pool: HostPool, home: str, host: str) -> list[str]:
    """Write each run of a host into the mirror, whoever started it; return their ids."""
    runs = pool.call(host, "runs.runs", brief=True)["runs"]
    for run_id, nodes in runs.items():
        views = {int(number): NodeView.from_json(data) for number, data in nodes.items()}
        # those of a shared home folder may be on another machine
        own = {node: view for node, view in views.items() if view.status.state != "unknown"}
        places = [mirror.Place(host, node, view.run_dir) for node, view in own.items()]
        run = mirror.run_of(home, run_id)
        if mirror.pointer(run) is None and not os.path.isdir(run.folder) and own:
            name = next(iter(own.values())).status.name or run.name
            mirror.make(home, run_id, places, name, pool.hosts_path)
        if mirror.pointer(run) is not None:
            mirror.add(run, places)
            for place, view in zip(places, own.values(), strict=True):
                mirror.keep(run, place, view)
    return list(runs)


def _compare_clocks(pool: HostPool, run: store.Run, places: Sequence[Place]) -> None:
    """Write down how far the hosts' clocks are ahead of this one: it orders their failures."""

    def compare(place: Place) -> None:
        known = store.mirrored(run, place.node)
        if known is None or known.ahead is not None:
            return
        try:
            ahead = pool.clock_offset(place.host)
        except HostError:
            return
        mirror.note_clock(run, place.node, ahead)

    together(compare, places)


def unreachable(last: Status, view: store.Mirror, error: HostError) -> Status:
    """Return the status of a run whose host does not answer: unknown, and what it was last."""
    status = last.copy()
    status.reason = f"{view.host} does not answer: {error.message}"
    if view.at is not None and last.state != "unknown":
        ago = brief_duration(time.time() - view.at)
        status.reason += f"; when last seen, {ago} ago, it was {last.state}"
    status.state, status.last_state = "unknown", last.state
    return status


def removed(last: Status, host: str) -> Status:
    """Return the status of a run whose directory is no longer on its host."""
    status = last.copy()
    status.state, status.alive, status.reason = "lost", 0, f"its directory is gone from {host}"
    if last.state == "pending":
        status.reason = f"it never started on {host}"
    return status


def _is_over(run: store.Run, place: Place, *, brief: bool) -> bool:
    """Whether a node's end is known, and unless `brief` all that is to be known of it."""
    if store.kept(run, place.node).state not in run_state.ENDED:
        return False
    known = store.mirrored(run, place.node)
    has_logs = known is not None and "attempts" in known
    return brief or (has_logs and _has_plan(run, place))


def _has_plan(run: store.Run, place: Place) -> bool:
    return os.path.exists(os.path.join(run.folder, f"node-{place.node}", PlanRecord.FILE))


def _has_plans(run: store.Run, pointer: Pointer) -> bool:
    return all(_has_plan(run, place) for place in pointer.places)
