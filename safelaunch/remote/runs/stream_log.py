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
    from collections.abc import Iterator

    from safelaunch.remote.host_pool import HostPool
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
    delays, is_started, has_ended = iter(RETRY_DELAYS), request.follow, False
    while True:
        is_starting = request.follow and mirror.is_starting(run)
        try:
            session = pool.session(place.host)
            reply = session.prefetched_logs.pop((run.id, place.node), None)
            reply = reply or session.agent.ask("runs.log", **words)
            for piece in reply.pieces():
                head, data = piece[: agent_runs.AT.size], piece[agent_runs.AT.size :]
                attempt, position = agent_runs.AT.unpack(head)
                words |= {"attempt": attempt, "position": position, "tail": None}
                delays, is_started = iter(RETRY_DELAYS), True
                if data:
                    yield attempt, position, data
        except (Lost, Unreachable):
            pool.discard(place.host)
            delay = next(delays, None)
            if delay is None or not is_started or pool.is_closed:
                raise
            if delay == RETRY_DELAYS[0]:
                pool.report(f"[{place.host} does not answer; trying again]")
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
