"""Reads and adds to events.jsonl of a node, and says when a node's records have changed."""

from __future__ import annotations

import json
import os
import time

from safelaunch.runtime.records import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NAME = "events.jsonl"
MOST = 1 << 20  # bytes that are read at once


def add_event(node_dir: str, name: str, details: Mapping[str, object]) -> None:
    """Append an event, in one write beside those of the supervisor; a full disk has none of it."""
    line = json.dumps({**details, "time": time.time(), "event": name}).encode() + b"\n"
    try:
        fd = os.open(os.path.join(node_dir, NAME), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)
    except OSError:
        pass


def read_events(node_dir: str, position: int) -> tuple[int, list[tuple[int, dict[str, Any]]], bool]:
    """Return the position behind what was read, the events in it, and whether there may be more.

    Each event has the position behind its line; a line that is no JSON object is none. A file that
    has become shorter, as after its folder was removed, is read from its start.
    """
    try:
        with open(os.path.join(node_dir, NAME), "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size < position:
                position = 0
            file.seek(position)
            data = file.read(MOST)
    except OSError:
        return position, [], False
    has_more = len(data) == MOST
    whole = data[: data.rfind(b"\n") + 1]
    if has_more and not whole:
        return position + len(data), [], True  # a line that is no event of ours
    events = []
    for line in whole.split(b"\n")[:-1]:
        position += len(line) + 1
        event = _parse(line)
        if event is not None:
            events.append((position, event))
    return position, events, has_more


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def stamp(node_dir: str) -> str:
    """Return a text that changes with what the supervisor records of a node's state and events."""
    parts = []
    for name in (Status.FILE, NAME):
        try:
            info = os.stat(os.path.join(node_dir, name))
        except OSError:
            parts.append("-")
        else:
            parts.append(f"{info.st_mtime_ns}.{info.st_ino}.{info.st_size}")
    return " ".join(parts)
