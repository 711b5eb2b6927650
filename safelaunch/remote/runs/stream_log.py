"""Logs of runs on hosts as they come, also over a lost connection."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from safelaunch.remote.agent_client import Lost
from safelaunch.remote.host_pool import RETRY_DELAYS
from safelaunch.runs import mirror
from safelaunch.runs.access import MissingLogError
from safelaunch.runtime import run_state
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.ssh.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.remote.agent_client import PendingReply
    from safelaunch.remote.host_pool import HostPool
    from safelaunch.remote.session import HostSession
    from safelaunch.runs.access import LogRequest
    from safelaunch.runs.store import Run
    from safelaunch.runtime.records import NodePlace

START_POLL = 0.1  # seconds between two questions for the log of a run that is being started


def pieces(
    pool: HostPool, run: Run, place: NodePlace, request: LogRequest
) -> Iterator[tuple[int, int, bytes]]:
    """Yield attempt, position behind it, and bytes of a node's log.

    A lost connection is made again, and the log resumes. Raises HostError where that fails. A log
    that is followed begins with the run, also if its start is still under way.
    """
    words = {**request.to_json(), "id": run.id, "node": place.node, "position": 0}

    def ask(session: HostSession) -> PendingReply:
        reply = session.prefetched_logs.pop((run.id, place.node), None)
        return reply or session.agent.ask("runs.log", **words)

    for piece in _messages(pool, run, place.host, request, ask):
        head, data = piece[: agent_runs.AT.size], piece[agent_runs.AT.size :]
        attempt, position = agent_runs.AT.unpack(head)
        words |= {"attempt": attempt, "position": position, "tail": None, "max_bytes": None}
        if data:
            yield attempt, position, data


def pieces_of_nodes(
    pool: HostPool, run: Run, host: str, nodes: Sequence[int], request: LogRequest
) -> Iterator[tuple[int, int, bytes]]:
    """Yield node, attempt and bytes of the logs of several nodes behind one host, as they come."""
    own = {"attempt": request.attempt, "position": 0, **request.selection._asdict()}
    marks: dict[int, dict[str, Any]] = {node: dict(own) for node in nodes}

    def ask(session: HostSession) -> PendingReply:
        return session.agent.ask(
            "runs.logs", id=run.id, which=request.which, follow=request.follow, nodes=marks
        )

    for piece in _messages(pool, run, host, request, ask):
        head, data = piece[: agent_runs.NODE_AT.size], piece[agent_runs.NODE_AT.size :]
        node, attempt, position = agent_runs.NODE_AT.unpack(head)
        marks[node] = {"attempt": attempt, "position": position, "text": request.text}
        if data:
            yield node, attempt, data


def _messages(
    pool: HostPool,
    run: Run,
    host: str,
    request: LogRequest,
    ask: Callable[[HostSession], PendingReply],
) -> Iterator[bytes]:
    """Yield what a host sends of a log, over connections that are lost and made again."""
    delays, is_started, has_ended = iter(RETRY_DELAYS), request.follow, False
    while True:
        is_starting = request.follow and mirror.is_starting(run)
        try:
            reply = ask(pool.session(host))
            for piece in reply.pieces():
                delays, is_started = iter(RETRY_DELAYS), True
                yield piece
        except (Lost, Unreachable):
            pool.discard(host)
            delay = next(delays, None)
            if delay is None or not is_started or pool.is_closed:
                raise
            if delay == RETRY_DELAYS[0]:
                pool.report(f"[{host} does not answer; trying again]")
            time.sleep(delay)
        else:
            answer = reply.result()
            if is_starting and not has_ended:
                # a short run may have begun and ended since its host found nothing to follow
                has_ended = not _is_early(answer)
                time.sleep(START_POLL)
                continue
            if not (request.follow or answer["exists"]):
                raise MissingLogError(f"{run.id} has no such log")
            return


def _is_early(answer: Any) -> bool:
    """Whether a host ended a log because it did not know the run yet, or only half of it."""
    view = answer["view"]
    return view is None or view["status"].get("state") not in run_state.ENDED
