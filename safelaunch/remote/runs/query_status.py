"""Asks hosts for the status of runs, stops them, and records what was seen in the mirror.

A host that cannot be reached never changes a run: its state is `unknown` then, with the last status
that was seen.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from safelaunch.errors import HostError
from safelaunch.remote.parallel import as_completed, together
from safelaunch.runs import mirror, store
from safelaunch.runs.access import HostAnswer
from safelaunch.runtime import run_state
from safelaunch.runtime.agent.runs import NodeView
from safelaunch.runtime.engines import current
from safelaunch.runtime.records import NodePlace, PlanRecord, RemoteRecord
from safelaunch.runtime.units import brief_duration
from safelaunch.sync.answers import checked

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from safelaunch.remote.host_pool import HostPool
    from safelaunch.runtime.records import Status

    Views = dict[str, dict[int, NodeView]]  # by run id and node
    HostKey = tuple[str | None, str]  # hosts file, and the name of a host in it

_MAX_ANSWERS = 100  # with the ends of parts of one run; ten thousand parts take some dozen


def status(pool: HostPool, run: store.Run, pointer: RemoteRecord) -> Status:
    """Return the status of a run as it is on its hosts, or as it was when last seen."""
    for _ in range(_MAX_ANSWERS):
        before = mirror.parts_positions(run)
        answers = statuses({pointer.hosts_file: pool}, [(run, pointer)])
        status = next(status for answer in answers for _, status in answer.runs)
        is_complete = all(mirror.has_parts(run, place.node) for place in pointer.places)
        if is_complete or mirror.parts_positions(run) == before:
            break
    return status


def statuses(
    pools: Mapping[str | None, HostPool],
    runs: Sequence[tuple[store.Run, RemoteRecord]],
    *,
    brief: bool = False,
) -> Iterator[HostAnswer]:
    """Yield runs with their status as it is on the hosts, or as it was when last seen.

    Each host is asked once, for all of its runs, beside the others; `pools` by hosts file. A run
    comes with the last of its hosts. `brief` leaves runs alone that are recorded as ended, though
    less is recorded of them.
    """
    ids_of: dict[HostKey, list[str]] = {}
    for run, pointer in runs:
        for place in pointer.places:
            if not _is_complete(run, place, brief=brief):
                ids_of.setdefault((pointer.hosts_file, place.host), []).append(run.id)
    places = [(run, place) for run, pointer in runs for place in pointer.places]
    files = [] if brief or all(_has_plan(*place) for place in places) else mirror.PLAN_FILES
    starting = {run.id for run, _ in runs if mirror.is_starting(run)}

    parts = _parts_positions(runs)

    def ask(key: HostKey) -> Views | HostError:
        ids = ids_of[key]
        own_parts = {run_id: parts[key][run_id] for run_id in ids}
        return _ask(pools[key[0]], key[1], ids=ids, files=files, parts=own_parts)

    answers: dict[HostKey, Views | HostError] = {}
    waiting = list(runs)

    def completed() -> Iterator[tuple[store.Run, Status]]:
        for run, pointer in list(waiting):
            path, hosts = pointer.hosts_file, [place.host for place in pointer.places]
            if any((path, host) in ids_of and (path, host) not in answers for host in hosts):
                continue
            waiting.remove((run, pointer))
            own = {host: answer for (at, host), answer in answers.items() if at == path}
            status = node_statuses(run, pointer.places, own, is_starting=run.id in starting)
            if not brief:
                _record_clocks(pools[path], run, pointer.places, own, status)
            yield run, status

    yield HostAnswer(None, None, list(completed()))
    for key, answer in as_completed(ask, list(ids_of)):
        answers[key] = answer
        error = answer if isinstance(answer, HostError) else None
        yield HostAnswer(key[1], error, list(completed()))


def _parts_positions(
    runs: Sequence[tuple[store.Run, RemoteRecord]],
) -> Mapping[HostKey, Mapping[str, int]]:
    """Return by host and run from where on the ends of parts are not recorded here.

    Two names may be those of one host, which then has several nodes: all get what one lacks.
    """
    parts: dict[HostKey, dict[str, int]] = {}
    for run, pointer in runs:
        for place in pointer.places:
            own = parts.setdefault((pointer.hosts_file, place.host), {})
            position = mirror.parts_position(store.node_dir(run, place.node))
            own[run.id] = min(own.get(run.id, position), position)
    return parts


def _ask(
    pool: HostPool, host: str, *, ids: Sequence[str] = (), **request: object
) -> Views | HostError:
    """Return the runs of a host, by default all, or why it did not answer as it should."""
    try:
        answer = pool.call(host, "runs.runs", ids=ids, **request)
        with checked(host):
            views: Views = {
                run_id: {int(node): NodeView.from_json(view) for node, view in nodes.items()}
                for run_id, nodes in answer["runs"].items()
                # both become names of folders here
                if (store.is_run_id(run_id) or run_id in ids) and all(map(str.isdigit, nodes))
            }
            now = time.time()
            for view in (view for nodes in views.values() for view in nodes.values()):
                view.ahead = None if view.now is None else view.now - now
            return views
    except HostError as e:
        return e


def node_statuses(
    run: store.Run,
    places: Sequence[NodePlace],
    answers: Mapping[str, Views | HostError],
    *,
    is_starting: bool = False,
) -> Status:
    """Return a run's status; `is_starting`: its start was under way before the answers."""
    nodes = []
    for place in places:
        own = _node_status(run, place, answers.get(place.host), is_starting=is_starting)
        nodes.append((place.node, place.host, own))
    return store.status_of_nodes(run, nodes)


def _node_status(
    run: store.Run, place: NodePlace, answer: Views | HostError | None, *, is_starting: bool
) -> Status:
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

    # an engine's are behind one login node, which stops them all
    places = pointer.places[:1] if store.is_on_engine(run) else pointer.places
    answers = together(stop_node, places)
    pairs = list(zip(places, answers, strict=True))
    stopped = [place.host for place, answer in pairs if not isinstance(answer, HostError)]
    for place, answer in pairs:
        if isinstance(answer, HostError):
            if stopped:
                pool.report(f"{', '.join(stopped)}: stopped; not known to be: {place.host}")
            raise answer
    return all(answers)


def host_runs(
    pool: HostPool, home: str, hosts: Sequence[str]
) -> Generator[HostAnswer, None, list[store.Run]]:
    """Yield all runs of some hosts, whoever started them, and write them into the mirror.

    Of a host that does not answer: those that had not ended when last seen. The generator's value
    are the runs of which a node that has not ended is on a host that was not asked.
    """

    def ask(host: str) -> Views | HostError:
        return _ask(pool, host, brief=True)

    answers: dict[str, Views | HostError] = {}
    waiting: dict[str, store.Run] = {}
    yielded: set[str] = set()  # two names may be those of one host
    elsewhere = []
    for host, answer in as_completed(ask, hosts):
        answers[host] = answer
        if isinstance(answer, HostError):
            listed = _live_runs(home, host)
        else:
            listed = _record_runs(pool, home, host, answer)
        waiting.update((run.id, run) for run in listed if run.id not in yielded)
        runs = []
        for run in list(waiting.values()):
            pointer = mirror.pointer(run)
            if pointer is None:  # of this machine, which is one of the hosts
                runs.append((waiting.pop(run.id), current.status(run.node_dir)))
            elif len(answers) == len(hosts) or _is_known(run, pointer, hosts, answers):
                del waiting[run.id]
                if any(_is_elsewhere(run, place, hosts) for place in pointer.places):
                    elsewhere.append(run)
                else:
                    runs.append((run, node_statuses(run, pointer.places, answers)))
        yielded.update(run.id for run, _ in runs)
        yield HostAnswer(host, answer if isinstance(answer, HostError) else None, runs)
    return elsewhere


def _live_runs(home: str, host: str) -> Iterator[store.Run]:
    """Yield the runs on a host that had not ended when last seen."""
    for run in store.all_runs(home):
        for place in (mirror.pointer(run) or RemoteRecord()).places:
            if place.host == host and not _has_ended(run, place):
                yield run
                break


def _record_runs(pool: HostPool, home: str, host: str, answer: Views) -> Iterator[store.Run]:
    """Write where the runs of a host are into the mirror, and yield those that are there."""
    for run_id, nodes in answer.items():
        # those of a shared home folder may be on another machine
        views = {node: view for node, view in nodes.items() if view.status.state != "unknown"}
        places = [NodePlace(host=host, node=n, run_dir=view.run_dir) for n, view in views.items()]
        run = mirror.run_by_id(home, run_id)
        if os.path.isdir(run.folder):
            mirror.add_nodes(run, places)
        elif views:
            name = next(iter(views.values())).status.name or run.name
            mirror.create(home, run_id, places, name, pool.hosts_path)
        else:
            continue
        yield run


def _is_known(
    run: store.Run,
    pointer: RemoteRecord,
    hosts: Sequence[str],
    answers: Mapping[str, Views | HostError],
) -> bool:
    """Whether the hosts of a run that were asked have answered, and all its nodes are there."""
    if any(place.host in hosts and place.host not in answers for place in pointer.places):
        return False
    replies = [answer for answer in answers.values() if not isinstance(answer, HostError)]
    counts = [view.nodes for reply in replies for view in reply.get(run.id, {}).values()]
    return len(pointer.places) >= max(counts, default=1)


def _is_elsewhere(run: store.Run, place: NodePlace, hosts: Sequence[str]) -> bool:
    """Whether a node has not ended, as far as is known, and its host was not asked."""
    return place.host not in hosts and not _has_ended(run, place)


def _has_ended(run: store.Run, place: NodePlace) -> bool:
    return run_state.is_settled(store.last_status(run, place.node))


def _record_clocks(
    pool: HostPool,
    run: store.Run,
    places: Sequence[NodePlace],
    answers: Mapping[str, Views | HostError],
    status: Status,
) -> None:
    """Record how far the hosts' clocks are ahead of this one: it orders their failures."""
    if store.is_on_engine(run) or not any(node.state == "failed" for node in status.nodes):
        return  # the clock of a login node is none of its nodes'

    def compare(place: NodePlace) -> None:
        if store.mirror_record(run, place.node).ahead is not None:
            return
        try:
            ahead = pool.clock_offset(place.host)
        except HostError:
            return
        mirror.save_clock_offset(run, place.node, ahead)

    lost = [host for host, answer in answers.items() if isinstance(answer, HostError)]
    together(compare, [place for place in places if place.host not in lost])


def _is_complete(run: store.Run, place: NodePlace, *, brief: bool) -> bool:
    """Whether a node's end is recorded, and unless `brief` all that its host could add to it."""
    if not run_state.is_settled(store.last_status(run, place.node)):
        return False
    has_logs = "attempts" in store.mirror_record(run, place.node)
    has_parts = mirror.has_parts(run, place.node)
    return brief or (has_logs and has_parts and _has_plan(run, place))


def _has_plan(run: store.Run, place: NodePlace) -> bool:
    return os.path.exists(os.path.join(store.node_dir(run, place.node), PlanRecord.FILE))
