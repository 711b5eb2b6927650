"""Looks at runs on hosts, and keeps in the mirror what was seen.

A host that cannot be reached never changes what a run is: its state is `unknown` then, with what
was known last.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import HostError
from safelaunch.remote.agent_client import Lost
from safelaunch.remote.parallel import together
from safelaunch.runs import combine_nodes, mirror, store
from safelaunch.runtime import run_state
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.ssh.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Self

    from safelaunch.remote.agent_client import Pending
    from safelaunch.remote.session import Session, Way
    from safelaunch.runs.mirror import Place, Pointer

AHEAD = 64  # pieces of logs that are read before they are shown
CLOCKS = 3  # looks at a host's clock: the quickest one tells most
PATIENCE = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)  # seconds before each try to reach a host again


class Looker:
    """The hosts of one command: each is connected to once, and closed at the end."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._sessions: dict[str, Session] = {}
        self._asked: dict[tuple[str, int, str], Pending] = {}  # logs that are on their way
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        # after Ctrl-C threads may still be at work: closing is what ends them
        for session in list(self._sessions.values()):
            session.close()

    def session(self, host: str) -> Session:
        """Return the connection to a host. Raises HostError, ConfigError."""
        if host not in self._sessions:
            self._sessions[host] = self._way.open(host)
        return self._sessions[host]

    def expand(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return hosts, those of each group in its place."""
        return hosts_file.expand(self._way.hosts, tuple(names))

    def say(self, text: str) -> None:
        """Tell the user something."""
        self._way.say(text)

    def drop(self, host: str) -> None:
        """Forget a connection that is gone."""
        session = self._sessions.pop(host, None)
        if session is not None:
            session.close()
        for key in list(self._asked):  # not anew: other threads ask other hosts meanwhile
            if key[2] == host:
                self._asked.pop(key, None)

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

    def judge(self, run: store.Run, at: Pointer) -> dict[str, Any]:
        """Return a run's status as it is on its hosts, or as it was when last seen."""
        return self.judge_all([(run, at)])[run.id]

    def judge_all(
        self, several: Sequence[tuple[store.Run, Pointer]], *, brief: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Return {run id: status}; each host is asked once, for all of its runs.

        `brief` leaves runs alone that are known to have ended, though less is known of them.
        """
        asked: dict[str, list[str]] = {}
        for run, at in several:
            for place in at.places:
                if not _is_over(run, place, brief=brief):
                    asked.setdefault(place.host, []).append(run.id)
        files = [] if brief or all(_has_plans(*one) for one in several) else ["plan.json"]

        def ask(host: str) -> dict[str, Any] | HostError:
            try:
                found: dict[str, Any] = self.call(host, "runs.runs", ids=asked[host], files=files)[
                    "runs"
                ]
            except HostError as e:
                return e
            return found

        answers = dict(zip(asked, together(ask, list(asked)), strict=True))
        statuses = {}
        for run, at in several:
            seen = [
                combine_nodes.Node(p.node, p.host, self._seen(run, p, answers.get(p.host)))
                for p in at.places
            ]
            statuses[run.id] = combine_nodes.status(seen)
            if len(seen) > 1 and any(node.state == "failed" for node in seen):
                lost = [h for h, answer in answers.items() if isinstance(answer, HostError)]
                self._compare_clocks(run, [p for p in at.places if p.host not in lost])
        return statuses

    def _seen(
        self, run: store.Run, place: Place, found: dict[str, Any] | HostError | None
    ) -> dict[str, Any]:
        kept = store.kept(run, place.node)
        has_ended = kept.get("state") in run_state.ENDED
        if found is None:
            return kept  # an end is an end: nothing there can change it
        if has_ended and (isinstance(found, HostError) or not found.get(run.id)):
            return kept
        if isinstance(found, HostError):
            return unreachable(kept, store.mirrored(run, place.node) or {}, found)
        view = found.get(run.id, {}).get(str(place.node))
        if view is None:
            return gone(kept, place.host)
        mirror.keep(run, place, view)
        return dict(view["status"])

    def _compare_clocks(self, run: store.Run, places: Sequence[Place]) -> None:
        """Write down how far the hosts' clocks are ahead of this one: it orders their failures."""

        def one(place: Place) -> None:
            if "ahead" in (store.mirrored(run, place.node) or {"ahead": 0}):
                return
            try:
                best = min(self._clock(place.host) for _ in range(CLOCKS))
            except HostError:
                return
            mirror.note(run, place.node, ahead=best[1])

        together(one, places)

    def _clock(self, host: str) -> tuple[float, float]:
        """Return how long a look at a host's clock took, and how far ahead that clock is."""
        begun, here = time.monotonic(), time.time()
        there = float(self.call(host, "start.clock")["now"])
        took = time.monotonic() - begun
        return took, there - (here + took / 2)

    def stop(self, run: store.Run, at: Pointer, grace: float) -> tuple[dict[str, Any], bool]:
        """Stop a run on all its hosts; return its status, and whether it had ended already.

        Raises HostError where one of them does not answer; the others are stopped all the same.
        """

        def one(place: Place) -> bool | HostError:
            try:
                answer = self.call(place.host, "runs.stop", id=run.id, node=place.node, grace=grace)
            except HostError as e:
                return e
            return bool(answer["ended"])

        answers = together(one, at.places)
        told = list(zip(at.places, answers, strict=True))
        stopped = [place.host for place, answer in told if not isinstance(answer, HostError)]
        for place, answer in told:
            if isinstance(answer, HostError):
                if stopped:
                    self.say(f"{', '.join(stopped)}: stopped; not known to be: {place.host}")
                raise answer
        return self.judge(run, at), all(answers)

    def expect(self, run: store.Run, place: Place) -> None:
        """Ask for a log that is to be followed from its begin: `log` then finds it on its way."""
        request: dict[str, Any] = {"id": run.id, "node": place.node, "which": None, "follow": True}
        pending = self.session(place.host).agent.ask("runs.log", **request, attempt=1, position=0)
        self._asked[run.id, place.node, place.host] = pending

    def log(self, run: store.Run, place: Place, **request: Any) -> Iterator[tuple[int, int, bytes]]:
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
                begun = self._asked.pop((run.id, place.node, place.host), None)
                pending = begun or agent.ask(
                    "runs.log", **asked, attempt=attempt, position=position
                )
                for piece in pending.pieces():
                    attempt, position = agent_runs.AT.unpack(piece[: agent_runs.AT.size])
                    asked.pop("tail", None)
                    patience, is_begun = iter(PATIENCE), True
                    if len(piece) > agent_runs.AT.size:
                        yield attempt, position, piece[agent_runs.AT.size :]
            except (Lost, Unreachable):  # noqa: PERF203 - each try is another connection
                self.drop(place.host)
                pause = next(patience, None)
                if pause is None or not is_begun or self._is_closed:
                    raise
                if pause == PATIENCE[0]:
                    self._way.say(f"[{place.host} does not answer; trying again]")
                time.sleep(pause)
            else:
                return

    def logs(self, run: store.Run, at: Pointer, **request: Any) -> Iterator[tuple[int, int, bytes]]:
        """Yield node, attempt and bytes of the logs of all nodes, as they come.

        A host that does not answer is left out, and said. Raises HostError where none does.
        """
        pieces: queue.Queue[tuple[Place, int, bytes | HostError | None]] = queue.Queue(AHEAD)

        def read(place: Place) -> None:
            try:
                for attempt, _, data in self.log(run, place, **request):
                    pieces.put((place, attempt, data))
                pieces.put((place, 0, None))
            except HostError as e:
                pieces.put((place, 0, e))

        for place in at.places:
            threading.Thread(target=read, args=(place,), daemon=True).start()
        left, lost = len(at.places), 0
        while left:
            place, attempt, data = pieces.get()
            if isinstance(data, bytes):
                yield place.node, attempt, data
                continue
            left -= 1
            if data is not None:
                lost += 1
                if lost == len(at.places):
                    raise data
                self._way.say(f"[the log of {place.host} is left out: {data.message}]")

    # -- all runs of a host ------------------------------------------------------------------------

    def runs(self, home: str, host: str) -> list[str]:
        """Write down each run of a host, and return their ids."""
        found = self.call(host, "runs.runs", brief=True)["runs"]
        for run_id, seen in found.items():
            # those of a shared home folder may be on another machine
            here = {int(n): v for n, v in seen.items() if v["status"].get("state") != "unknown"}
            places = [mirror.Place(host, node, view["run_dir"]) for node, view in here.items()]
            run = mirror.run_of(home, run_id)
            if mirror.pointer(run) is None and not os.path.isdir(run.folder) and here:
                name = next(iter(here.values()))["status"].get("name") or run.name
                mirror.make(home, run_id, places, str(name), self._way.hosts_path)
            if mirror.pointer(run) is not None:
                mirror.add(run, places)
                for place, view in zip(places, here.values(), strict=True):
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


def _is_over(run: store.Run, place: Place, *, brief: bool) -> bool:
    """Whether a node's end is known, and unless `brief` all that is to be known of it."""
    if store.kept(run, place.node).get("state") not in run_state.ENDED:
        return False
    has_logs = "attempts" in (store.mirrored(run, place.node) or {})
    return brief or (has_logs and _has_plan(run, place))


def _has_plan(run: store.Run, place: Place) -> bool:
    return os.path.exists(os.path.join(run.folder, f"node-{place.node}", "plan.json"))


def _has_plans(run: store.Run, at: Pointer) -> bool:
    return all(_has_plan(run, place) for place in at.places)


def _ago(seconds: float) -> str:
    if seconds < 120:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"  # noqa: PLR2004
