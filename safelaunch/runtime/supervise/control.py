"""What ends an attempt early: signals, a stop file and limits, and the grace before KILL."""

from __future__ import annotations

import os
import select
import time

from safelaunch.runtime.monitor import limits
from safelaunch.runtime.records import StopRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.runtime.records import EngineStart, PreemptionSource, RunRecord
    from safelaunch.runtime.supervise.stop_signals import StopSignals

DEFAULT_GRACE = 15.0
SMOKE = "min_steps"  # why a smoke run ends, on all its nodes
SERVICE = "service"  # why an attempt ends whose service has ended
RANKS_END = "ranks_end"  # why a node without ranks ends: all ranks have succeeded
PREEMPTED = "preempted"  # why an attempt ends whose machine is taken away
BUDGET_GRACE = 120.0  # seconds to save a checkpoint once the budget is used up
TIME_LIMIT = "time_limit"  # why an attempt ends whose engine has warned of its time limit
_PLAIN = {
    SERVICE: "a service of the job has ended",
    RANKS_END: "the ranks of all nodes have succeeded",
    PREEMPTED: "the machine is being taken away",
}
AFTER_KILL = 30.0  # seconds before the limit at which nothing of the job may be left
REQUEST_EVERY = 1.0  # seconds between two looks for a stop request that comes without a signal


def readable(descriptors: Iterable[int], seconds: float) -> list[int]:
    """Return which descriptors are readable, as soon as one is, at the latest after `seconds`.

    By poll(2): select(2) takes none from 1024 on.
    """
    poll = select.poll()
    for fd in descriptors:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(seconds * 1000)]


def time_limit_warning(node_dir: str, life: int) -> str:
    """Return the path of the file by which an engine's script warns of the time limit."""
    return os.path.join(os.path.dirname(node_dir), f"time-limit.{life}")


class Control:
    """What ends an attempt early: signals to the supervisor, a stop file, limits; and the grace."""

    def __init__(
        self,
        node_dir: str,
        engine: EngineStart | None = None,
        preemption: PreemptionSource | None = None,
    ) -> None:
        self.dir = node_dir
        self.preemption = preemption
        self.is_preempted = False  # by a TERM of which that is the meaning
        self.is_running = False  # whether there is an attempt that such a TERM would end
        self.engine = engine
        self.is_time_up = False  # whether the engine has warned of its time limit
        # a file: a signal to a step of Slurm's reaches the ranks too, and ends them
        self.warning = time_limit_warning(node_dir, engine.life) if engine else ""
        self.received: list[str] = []  # names of signals
        self.origin = ""  # of the first: who sent it, where that is known
        self.source: StopSignals | None = None  # None: handlers fill `received`
        self.pipe = -1  # what set_wakeup_fd writes into
        self.handled = 0  # how many of the signals have set `kill_at`
        self.kill_at = float("inf")
        # where the one who stops the run may be on another machine: the next look, monotonic
        self.next_request = float("inf") if engine is None else 0.0

    @property
    def signals(self) -> list[str]:
        """The names of the signals that have come to stop the run."""
        now = time.monotonic()
        if now >= self.next_request:
            self.next_request = now + REQUEST_EVERY
            if StopRequest.read(self.dir) is not None:
                self.next_request = float("inf")
                self.received.append("SIGTERM")
            elif os.path.lexists(self.warning):
                self.is_time_up = True
        for name, origin in self.source.read() if self.source else ():
            self.origin = self.origin or origin
            self.received.append(name)
        if self.received and self.is_running:
            self._take_preemption()
        return self.received

    def _take_preemption(self) -> None:
        """Take a TERM that no person has sent for the notice of a container's end, if so set."""
        is_notice = self.preemption is not None and self.preemption.sigterm
        if is_notice and self.received == ["SIGTERM"] and StopRequest.read(self.dir) is None:
            self.received.clear()
            self.is_preempted = True

    def notice(self) -> str:
        """Return why the attempt has to end soon, by a notice from outside; "" without one."""
        if self.is_time_up:
            return TIME_LIMIT
        return PREEMPTED if self.is_preempted else ""

    def clear(self) -> None:
        """Read what has made the descriptor for waiting readable, but signals."""
        try:
            os.read(self.pipe, 4096)
        except OSError:
            pass

    def stop_origin(self) -> str:
        """Return who or what has stopped the run by a signal, as people say it; "" if unknown."""
        request = StopRequest.read(self.dir)
        if request is None:
            return self.origin
        if request.reason:
            return request.reason
        return "`safelaunch stop`" + (f" ({request.origin})" if request.origin else "")

    def grace(self, why: str) -> float:
        """Return the seconds between TERM and KILL of an attempt that no signal ends."""
        if why == TIME_LIMIT and self.engine is not None:  # ranks may save a checkpoint meanwhile
            return max(DEFAULT_GRACE, self.engine.notice - AFTER_KILL)
        if why == PREEMPTED and self.preemption is not None:
            return self.preemption.grace
        if why == limits.BUDGET:
            return BUDGET_GRACE
        return DEFAULT_GRACE

    def arm(self, grace: float) -> None:
        """Let KILL come after the grace, or earlier if it was armed before."""
        self.kill_at = min(self.kill_at, time.monotonic() + grace)

    def describe(self, why: str, run: RunRecord) -> str:
        """Return why an attempt is ended early, for people."""
        if why in limits.LIMITS:
            return limits.warning(why, run)
        if why == TIME_LIMIT:
            return f"the time limit of {self.engine.title if self.engine else 'the engine'} is near"
        if why == SMOKE:
            steps = run.success.min_steps if run.success else None
            return f"smoke run, min_steps of {steps} reached"
        if why in _PLAIN:
            return _PLAIN[why]
        if why == "hang":
            return f"it hangs (hang.action is {run.hang.action if run.hang else None})"
        return f"stopped by {self.stop_origin() or why}"

    def is_late(self) -> bool:
        """Whether it is time to KILL; each signal may bring a `stop` with less grace."""
        if self.handled != len(self.signals):
            self.handled = len(self.signals)
            request = StopRequest.read(self.dir) or StopRequest()
            self.arm(DEFAULT_GRACE if request.grace is None else request.grace)
        return time.monotonic() >= self.kill_at
