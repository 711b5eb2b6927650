"""The events of a run in the order of time, as lines that can be read."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HIDDEN = ("time", "event", "launcher", "pid", "processes", "folder", "files")
_FIRST, _LAST = 200, 600  # events that are shown of many
_LONGEST = 500  # characters of an event


class Events(NamedTuple):
    """The events of a node; lines that are none are counted."""

    events: list[dict[str, Any]]
    torn: int = 0


def read(data: bytes) -> Events:
    """Return the events in events.jsonl; a torn line is left out and counted."""
    found: list[dict[str, Any]] = []
    torn = 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            event = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            torn += 1
            continue
        if isinstance(event, dict):
            found.append(event)
        else:
            torn += 1
    return Events(found, torn)


def lines(
    nodes: Mapping[int, Sequence[Mapping[str, Any]]], ahead: Mapping[int, float] | None = None
) -> list[str]:
    """Return a line for each event; `ahead` is how far each node's clock is before this one."""
    several, known = len(nodes) > 1, ahead or {}
    rows = [
        (_time(event) - known.get(node, 0.0), node, event)
        for node, events in nodes.items()
        for event in events
    ]
    rows.sort(key=lambda row: row[0])
    begun = next((at for at, *_ in rows if at > 0), 0.0)
    told = [
        _line(at, begun, f"node {node}  " if several else "", event) for at, node, event in rows
    ]
    if len(told) > _FIRST + _LAST:
        left = len(told) - _FIRST - _LAST
        told = [*told[:_FIRST], f"... {left} events left out ...", *told[-_LAST:]]
    if not told:
        return []
    head = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(begun)) if begun else "time not known"
    return [f"+0 s is {head}", *told]


def _time(event: Mapping[str, Any]) -> float:
    at = event.get("time")
    is_time = isinstance(at, (int, float)) and 0 < at < 1e11  # noqa: PLR2004 - the year 5138
    return float(at) if is_time and at is not None else 0.0


def _line(at: float, begun: float, who: str, event: Mapping[str, Any]) -> str:
    said = ", ".join(
        f"{key} {_plain(value)}"
        for key, value in event.items()
        if key not in _HIDDEN and value not in (None, "", [])
    )
    after = f"{at - begun:+.1f} s" if at > 0 else "?"
    text = f"{after:>12}  {who}{event.get('event', '?')}" + (f": {said}" if said else "")
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    return " ".join(str(value).split())
