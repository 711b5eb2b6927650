"""What ends an attempt early: signals, stop files and limits, and the grace that it gets."""

from __future__ import annotations

import os
import select
import time

from safelaunch.runtime.records import StopRequest
from safelaunch.runtime.units import job_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.runtime.records import RunRecord


DEFAULT_GRACE = 15.0


def ready(descriptors: Iterable[int], seconds: float) -> list[int]:
    """Return which descriptors can be read, as soon as one can, at the latest after `seconds`.

    By poll(2): select(2) takes none from 1024 on.
    """
    poll = select.poll()
    for fd in descriptors:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(seconds * 1000)]


class Control(object):
    """What ends an attempt before its own end: signals to the supervisor, or its own reasons."""

    def __init__(self, node_dir: str) -> None:
        self.dir = node_dir
        self.signals: list[str] = []
        self.heard = 0
        self.kill_at = float("inf")

    def arm(self, grace: float) -> None:
        """KILL comes after the grace, or earlier if it was promised earlier."""
        self.kill_at = min(self.kill_at, time.monotonic() + grace)

    def in_words(self, why: str, run: RunRecord) -> str:
        """Return why an attempt is ended early, for people."""
        if why == "max_duration":
            return "max_duration of %s reached" % job_duration(run.max_duration or 0.0)
        if why == "min_steps":
            steps = run.success.min_steps if run.success else None
            return "smoke run, min_steps of %s reached" % steps
        if why == "hang":
            return "it hangs (hang.action is %s)" % (run.hang.action if run.hang else None)
        if os.path.exists(os.path.join(self.dir, StopRequest.FILE)):
            return "stopped by `safelaunch stop`"
        return "stopped by %s" % why

    def is_late(self) -> bool:
        """Whether it is time to KILL; each signal may bring a `stop` with less grace."""
        if self.heard != len(self.signals):
            self.heard = len(self.signals)
            request = StopRequest.read(self.dir) or StopRequest()
            self.arm(DEFAULT_GRACE if request.grace is None else request.grace)
        return time.monotonic() >= self.kill_at
