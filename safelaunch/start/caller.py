"""Who starts a run, and what was started."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.runs import store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.runs.mirror import Place
    from safelaunch.runtime.records import Process


class Caller(NamedTuple):
    """What the start takes from its caller: environment, folder, ids and the clock."""

    environ: Mapping[str, str]
    home: str
    random: bytes
    utc: str  # yyyymmdd-hhmmss
    local_time: str


def caller(environ: Mapping[str, str]) -> Caller:
    """Return this process as the caller of a start, with the time of now. Raises ConfigError."""
    return Caller(
        environ=dict(environ),
        home=store.home(environ),
        random=os.urandom(2),
        utc=time.strftime("%Y%m%d-%H%M%S", time.gmtime()),
        local_time=time.strftime("%Y%m%d-%H%M%S"),
    )


class Started(NamedTuple):
    """A run that was started, and what to say about it."""

    run: store.Run
    places: tuple[Place, ...]  # its nodes
    notes: tuple[str, ...]
    attach: tuple[str, ...]  # the command for its terminal on that machine; empty: it has none
    network: tuple[str, ...] = ()  # how each of several nodes reaches the others
    supervisor: Process | None = None  # its process, for a run of this machine
    recorder: Process | None = None  # what writes record.json there
