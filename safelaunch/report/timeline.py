"""Formats the events of a run as lines, in order of time."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HIDDEN_FIELDS = ("time", "event", "launcher", "pid", "processes", "folder", "files")
_MAX_FIRST, _MAX_LAST = 200, 600  # events shown of many
_MAX_EVENT_CHARS = 500  # of one event
_YEAR_5138 = 1e11  # seconds; larger numbers are no time


class Events(NamedTuple):
    """The events of a node, and the number of unreadable lines."""

    events: list[dict[str, Any]]
    unparsable: int = 0


def parse_events(data: bytes) -> Events:
    """Return the events in events.jsonl; unreadable lines are counted."""
    events: list[dict[str, Any]] = []
    unparsable = 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            event = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict):
            events.append(event)
        else:
            unparsable += 1
    return Events(events, unparsable)


def lines(
    nodes: Mapping[int, Sequence[Mapping[str, Any]]], clock_offsets: Mapping[int, float]
) -> list[str]:
    """Return a line for each event; `clock_offsets`: seconds each clock is ahead."""
    is_multi_node = len(nodes) > 1
    rows = [
        (_time(event) - clock_offsets[node], node, event)
        for node, events in nodes.items()
        for event in events
    ]
    rows.sort(key=lambda row: row[0])
    start_time = next((timestamp for timestamp, *_ in rows if timestamp > 0), 0.0)
    shown = [
        _line(timestamp, start_time, f"node {node}  " if is_multi_node else "", event)
        for timestamp, node, event in rows
    ]
    if len(shown) > _MAX_FIRST + _MAX_LAST:
        omitted = len(shown) - _MAX_FIRST - _MAX_LAST
        shown = [*shown[:_MAX_FIRST], f"... {omitted} events left out ...", *shown[-_MAX_LAST:]]
    if not shown:
        return []
    start = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(start_time))
    return [f"+0 s is {start if start_time else 'time not known'}", *shown]


def _time(event: Mapping[str, Any]) -> float:
    timestamp = event.get("time")
    is_time = isinstance(timestamp, (int, float)) and 0 < timestamp < _YEAR_5138
    return float(timestamp) if is_time and timestamp is not None else 0.0


def _line(timestamp: float, start_time: float, prefix: str, event: Mapping[str, Any]) -> str:
    fields = ", ".join(
        f"{key} {_format_value(value)}"
        for key, value in event.items()
        if key not in _HIDDEN_FIELDS and value not in (None, "", [])
    )
    offset = f"{timestamp - start_time:+.1f} s" if timestamp > 0 else "?"
    text = f"{offset:>12}  {prefix}{event.get('event', '?')}" + (f": {fields}" if fields else "")
    return text if len(text) <= _MAX_EVENT_CHARS else text[:_MAX_EVENT_CHARS] + " ..."


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    return " ".join(str(value).split())
