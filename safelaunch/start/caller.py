"""Who starts a run, and what was started."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.runs import store


class Caller(NamedTuple):
    """What the start takes from its caller: environment, folder, ids and the clock."""

    environ: Mapping[str, str]
    home: str
    random: bytes
    utc: str  # yyyymmdd-hhmmss
    local_time: str


class Started(NamedTuple):
    """A run that was started, and what to say about it."""

    run: store.Run
    socket: str | None
    notes: tuple[str, ...]
    supervisor: tuple[int, int] | None  # pid and start time
    recorder: tuple[int, int] | None  # the process that writes record.json
