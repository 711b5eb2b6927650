"""Logs of runs on hosts as they come: over a lost connection, and of all nodes merged."""

from __future__ import annotations

import queue
import re
import threading
import time
from typing import TYPE_CHECKING, Any

from safelaunch.errors import HostError
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
    from safelaunch.runtime.records import NodePlace, RemoteRecord

START_POLL = 0.1  # seconds between two questions for the log of a run that is being started
READ_AHEAD = 64  # pieces of logs that are read before they are shown
_LINE_END = re.compile(rb"(\r?\n|\r(?!\n|$))")  # a progress bar is a line too
_FINAL_LINE_END = re.compile(rb"(\n)")
_LONGEST_LINE = 1 << 16  # bytes of a line that wait for its end


def pieces(
    pool: HostPool, run: Run, place: NodePlace, request: LogRequest
) -> Iterator[tuple[int, int, bytes]]:
    """Yield attempt, position behind it, and bytes of a node's log.

    A lost connection is made again, and the log resumes. Raises HostError where that fails. A log
    that is followed begins with the run, also if its start is still under way.
    """
    words = {**request.to_json(), "id": run.id, "node": place.node, "position": 0}
    delays, is_started = iter(RETRY_DELAYS), request.follow
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
            if is_starting and _is_early(answer):
                time.sleep(START_POLL)
                continue
            if not (request.follow or answer["exists"]):
                raise MissingLogError(f"{run.id} has no such log")
            return


def _is_early(answer: Any) -> bool:
    """Whether a host ended a log because it did not know the run yet, or only half of it."""
    view = answer["view"]
    return view is None or view["status"].get("state") not in run_state.ENDED


def merged(
    pool: HostPool, run: Run, pointer: RemoteRecord, request: LogRequest
) -> Iterator[tuple[int, int, bytes]]:
    """Yield node, attempt and bytes of the logs of all nodes, as they come.

    A host that does not answer is left out, with a message. Raises HostError where none does,
    MissingLogError where none has such a log.
    """
    arrived: queue.Queue[tuple[NodePlace, int, bytes | Exception | None]] = queue.Queue(READ_AHEAD)

    def read(place: NodePlace) -> None:
        try:
            for attempt, _, data in pieces(pool, run, place, request):
                arrived.put((place, attempt, data))
            arrived.put((place, 0, None))
        except Exception as e:  # noqa: BLE001 - raised by who reads the queue
            arrived.put((place, 0, e))

    for place in pointer.places:
        threading.Thread(target=read, args=(place,), daemon=True).start()
    left, failures = len(pointer.places), 0
    while left:
        place, attempt, data = arrived.get()
        if isinstance(data, bytes):
            yield place.node, attempt, data
            continue
        left -= 1
        if data is None:
            continue
        failures += 1
        is_expected = isinstance(data, (HostError, MissingLogError))
        if failures == len(pointer.places) or not is_expected:
            raise data
        if isinstance(data, HostError):
            pool.report(f"[the log of {place.host} is left out: {data.message}]")


def merged_lines(
    pool: HostPool, run: Run, pointer: RemoteRecord, request: LogRequest
) -> Iterator[bytes]:
    """Yield the lines of all nodes as they come, each behind the name of its host."""
    width = max(len(place.host) for place in pointer.places)
    prefixes = {place.node: f"{place.host:<{width}} | ".encode() for place in pointer.places}
    unfinished = dict.fromkeys(prefixes, b"")
    attempts = dict.fromkeys(prefixes, request.attempt)
    line_end = _FINAL_LINE_END if request.final_lines else _LINE_END
    bar = None  # the node whose progress bar is the last line, if one is
    for node, attempt, data in merged(pool, run, pointer, request):
        if attempt != attempts[node]:
            attempts[node] = attempt
            end = b"\n" if unfinished[node] else b""
            data = end + b"[safelaunch] attempt %d\n" % attempt + data  # noqa: PLW2901
        *lines, rest = line_end.split(unfinished[node] + data)
        if request.final_lines:  # a bar may go on for days
            rest = b"\r".join(rest.split(b"\r")[-2:])
        whole = [text + end for text, end in zip(lines[::2], lines[1::2], strict=True)]
        if len(rest) > _LONGEST_LINE:
            whole, rest = [*whole, rest + b"\n"], b""
        unfinished[node] = rest
        if whole:
            begin = b"\n" if bar not in (None, node) else b""
            bar = node if whole[-1].endswith(b"\r") else None
            yield begin + b"".join(prefixes[node] + line for line in whole)
    for node, rest in unfinished.items():
        if rest:
            yield prefixes[node] + rest + b"\n"
