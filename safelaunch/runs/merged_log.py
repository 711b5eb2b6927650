"""The logs of all nodes of a run, merged as they come: each line behind the name of its node."""

from __future__ import annotations

import queue
import re
import threading
from typing import TYPE_CHECKING

from safelaunch.errors import HostError
from safelaunch.runs.access import MissingLogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.runs.access import LogRequest
    from safelaunch.runtime.records import NodePlace

    Pieces = Callable[[NodePlace], Iterator[tuple[int, int, bytes]]]

READ_AHEAD = 64  # pieces of logs that are read before they are shown
_LINE_END = re.compile(rb"(\r?\n|\r(?!\n|$))")  # a progress bar is a line too
_FINAL_LINE_END = re.compile(rb"(\n)")
_LONGEST_LINE = 1 << 16  # bytes of a line that wait for its end


def pieces(
    places: Sequence[NodePlace], read_node: Pieces, report: Callable[[str], object]
) -> Iterator[tuple[int, int, bytes]]:
    """Yield node, attempt and bytes of the logs of all nodes, as they come.

    `read_node` yields attempt, position behind it, and bytes of a node's log; `report` gets
    messages for the user. A host that does not answer is left out, with a message. Raises
    HostError where none does, MissingLogError where none has such a log.
    """
    arrived: queue.Queue[tuple[NodePlace, int, bytes | Exception | None]] = queue.Queue(READ_AHEAD)

    def read(place: NodePlace) -> None:
        try:
            for attempt, _, data in read_node(place):
                arrived.put((place, attempt, data))
            arrived.put((place, 0, None))
        except Exception as e:  # noqa: BLE001 - raised by who reads the queue
            arrived.put((place, 0, e))

    for place in places:
        threading.Thread(target=read, args=(place,), daemon=True).start()
    left, failures = len(places), 0
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
        if failures == len(places) or not is_expected:
            raise data
        if isinstance(data, HostError):
            report(f"[the log of {place.host} is left out: {data.message}]")


def share(request: LogRequest, places: Sequence[NodePlace]) -> LogRequest:
    """Return the request for each of the nodes: all of them share the bytes that are allowed."""
    if request.max_bytes is None or request.follow:
        return request
    return request._replace(max_bytes=request.max_bytes // len(places))


def lines(
    places: Sequence[NodePlace],
    request: LogRequest,
    pieces: Iterator[tuple[int, int, bytes]],
) -> Iterator[bytes]:
    """Yield the lines of all nodes as they come, each behind the name of its host.

    `pieces` has node, attempt and bytes of their logs.
    """
    width = max(len(place.host) for place in places)
    prefixes = {place.node: f"{place.host:<{width}} | ".encode() for place in places}
    unfinished = dict.fromkeys(prefixes, b"")
    attempts = dict.fromkeys(prefixes, request.attempt)
    line_end = _FINAL_LINE_END if request.final_lines else _LINE_END
    bar = None  # the node whose progress bar is the last line, if one is
    for node, attempt, data in pieces:
        if attempt != attempts[node]:
            attempts[node] = attempt
            end = b"\n" if unfinished[node] else b""
            data = end + b"[safelaunch] attempt %d\n" % attempt + data  # noqa: PLW2901
        *ended, rest = line_end.split(unfinished[node] + data)
        if request.final_lines:  # a bar may go on for days
            rest = b"\r".join(rest.split(b"\r")[-2:])
        whole = [text + end for text, end in zip(ended[::2], ended[1::2], strict=True)]
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
