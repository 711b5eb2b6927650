"""Looks at runs on hosts, and keeps in the mirror what was seen.

A host that cannot be reached never changes what a run is: its state is `unknown` then, with what
was known last.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from safelaunch import runs
from safelaunch.errors import HostError
from safelaunch.remote import mirror
from safelaunch.remote.agent import Lost
from safelaunch.runtime import state, views
from safelaunch.ssh.explain import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Self

    from safelaunch.remote.mirror import Place, Pointer
    from safelaunch.remote.session import Session, Way

PATIENCE = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)  # seconds before each try to reach a host again


class Looker:
    """The hosts of one command: each is connected to once, and closed at the end."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._sessions: dict[str, Session] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._sessions.values():
            session.close()

    def session(self, host: str) -> Session:
        """Return the connection to a host. Raises HostError, ConfigError."""
        if host not in self._sessions:
            self._sessions[host] = self._way.open(host)
        return self._sessions[host]

    def drop(self, host: str) -> None:
        """Forget a connection that is gone."""
        session = self._sessions.pop(host, None)
        if session is not None:
            session.close()

    def call(self, host: str, verb: str, **request: Any) -> Any:
        """Ask a host's agent; once more where an old connection turns out to be gone."""
        is_old = host in self._sessions
        try:
            return self.session(host).agent.call(verb, **request)
        except Lost:
            self.drop(host)
            if not is_old:
                raise
            return self.session(host).agent.call(verb, **request)

    # -- one run -----------------------------------------------------------------------------------

    def judge(self, run: runs.Run, at: Pointer) -> dict[str, Any]:
        """Return a run's status as it is on its hosts, or as it was when last seen."""
        return joined([self._node(run, place) for place in at.places])

    def _node(self, run: runs.Run, place: Place) -> dict[str, Any]:
        node_dir = os.path.join(run.folder, f"node-{place.node}")
        kept = state.read_json(os.path.join(node_dir, "status.json")) or {"id": run.id}
        has_plan = os.path.exists(os.path.join(node_dir, "plan.json"))
        whole = has_plan and "attempts" in (runs.mirrored(run, place.node) or {})
        if kept.get("state") in state.ENDED and whole:
            return kept  # an end is an end: nothing there can change it
        found: dict[str, Any] | HostError
        try:
            found = self.call(
                place.host, "views.runs", ids=[run.id], files=[] if has_plan else ["plan.json"]
            )["runs"]
        except HostError as e:
            found = e
        return self._seen(run, place, found)

    def _seen(
        self, run: runs.Run, place: Place, found: dict[str, Any] | HostError
    ) -> dict[str, Any]:
        node_dir = os.path.join(run.folder, f"node-{place.node}")
        kept = state.read_json(os.path.join(node_dir, "status.json")) or {"id": run.id}
        if kept.get("state") in state.ENDED and (
            isinstance(found, HostError) or not found.get(run.id)
        ):
            return kept
        if isinstance(found, HostError):
            return unreachable(kept, runs.mirrored(run, place.node) or {}, found)
        view = found.get(run.id, {}).get(str(place.node))
        if view is None:
            return gone(kept, place.host)
        mirror.keep(run, place, view)
        return dict(view["status"])

    def judge_several(self, host: str, several: Sequence[runs.Run]) -> dict[str, dict[str, Any]]:
        """Return {run id: status} of runs on a host, by one request."""
        ids = [run.id for run in several]
        try:
            found = self.call(host, "views.runs", ids=ids)["runs"]
        except HostError as e:
            found = e
        statuses = {}
        for run in several:
            at = mirror.pointer(run)
            places = at.places if at is not None else ()
            nodes = [
                self._seen(run, p, found) if p.host == host else self._node(run, p) for p in places
            ]
            statuses[run.id] = joined(nodes)
        return statuses

    def stop(self, run: runs.Run, at: Pointer, grace: float) -> tuple[dict[str, Any], bool]:
        """Stop a run on all its hosts; return its status, and whether it had ended already."""
        answers = []
        for place in at.places:
            answer = self.call(place.host, "views.stop", id=run.id, node=place.node, grace=grace)
            answers.append(answer)
        status = self.judge(run, at)
        return status, all(answer["ended"] for answer in answers)

    def log(self, run: runs.Run, place: Place, **request: Any) -> Iterator[tuple[int, int, bytes]]:
        """Yield attempt, position behind it, and bytes of a node's log.

        A connection that is lost is made again, and the log goes on where it was. Raises HostError
        where that does not succeed.
        """
        attempt, position = request.pop("attempt", None), request.pop("position", 0)
        asked = dict(request, id=run.id, node=place.node)
        patience, is_begun = iter(PATIENCE), bool(request.get("follow"))
        while True:
            try:
                agent = self.session(place.host).agent
                for piece in agent.stream("views.log", **asked, attempt=attempt, position=position):
                    attempt, position = views.AT.unpack(piece[: views.AT.size])
                    asked.pop("tail", None)
                    patience, is_begun = iter(PATIENCE), True
                    if len(piece) > views.AT.size:
                        yield attempt, position, piece[views.AT.size :]
            except (Lost, Unreachable):  # noqa: PERF203 - each try is another connection
                self.drop(place.host)
                pause = next(patience, None)
                if pause is None or not is_begun:
                    raise
                if pause == PATIENCE[0]:
                    self._way.say(f"[{place.host} does not answer; trying again]")
                time.sleep(pause)
            else:
                return

    # -- all runs of a host ------------------------------------------------------------------------

    def runs(self, home: str, host: str) -> list[str]:
        """Write down each run of a host, and return their ids."""
        found = self.call(host, "views.runs", brief=True)["runs"]
        for run_id, nodes in found.items():
            places = [mirror.Place(host, int(n), view["run_dir"]) for n, view in nodes.items()]
            run = mirror.run_of(home, run_id)
            if mirror.pointer(run) is None and not os.path.isdir(run.folder):
                name = next(iter(nodes.values()))["status"].get("name") or run.name
                mirror.make(home, run_id, places, str(name), self._way.hosts_path)
            if mirror.pointer(run) is not None:
                for place, view in zip(places, nodes.values(), strict=True):
                    mirror.keep(run, place, view)
        return list(found)


def unreachable(kept: dict[str, Any], seen: dict[str, Any], error: HostError) -> dict[str, Any]:
    """Return the status of a run whose host does not answer: unknown, and what it was last."""
    was = str(kept.get("state"))
    at = seen.get("at")
    reason = f"{seen.get('host')} does not answer: {error.message}"
    if isinstance(at, (int, float)) and was != "unknown":
        reason += f"; when last seen, {_ago(time.time() - at)} ago, it was {was}"
    return {**kept, "state": "unknown", "reason": reason, "last_state": was}


def gone(kept: dict[str, Any], host: str) -> dict[str, Any]:
    """Return the status of a run whose directory is no longer on its host."""
    if kept.get("state") == "pending":
        return {**kept, "state": "lost", "alive": 0, "reason": f"it never started on {host}"}
    reason = f"its directory is gone from {host}"
    return {**kept, "state": "lost", "alive": 0, "reason": reason}


def joined(statuses: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the status of a run of several nodes: the worst of them, root cause first."""
    first = statuses[0]
    if len(statuses) == 1:
        return first
    order = ("failed", "lost", "unknown", "pending", "running", "stopped", "succeeded")
    worst = min(statuses, key=lambda s: order.index(str(s.get("state"))))
    return {**worst, "nodes": [str(s.get("state")) for s in statuses]}


def _ago(seconds: float) -> str:
    if seconds < 120:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"  # noqa: PLR2004
