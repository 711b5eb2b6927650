"""Detects a suspected hang from a job's output and steps. No clock, no files, no action.

Silent: neither output nor a step for `max(factor x median step, floor)`; before two steps were seen
only `first_progress` counts, from the last sign of life. Sensible values, in seconds:

- first_progress 3 h: one AReaL step lasts 391 to 6,707 s, and models load for an hour
- factor 10: a step that saves or evaluates takes some times as long as a plain one
- floor 5 min: NCCL's own watchdog aborts the job after 10 min and takes the evidence with it

Stepless: output goes on (a server's statistics, one rank's warnings), but after two steps
there was none for `first_progress`, the job's own measure of a long time without one. Such a job
may also just evaluate, or print steps in an unknown format: that is reported, and never a
reason to end it (`is_quiet`).

A suspicion that proves false makes the watchdog patient: a job that came back by itself after
14 min is silent for 28 min before it is suspected again.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runtime.records import HangPolicy

# seconds between two calls that come every second: the machine was suspended, or we were stopped
GAP = 30.0
RECENT = 101  # steps of the median: the present pace, at a bounded cost
PATIENCE_FACTOR = 2.0  # times the silence of a false suspicion, before the next one


class Watchdog:
    """Detects a hang from numbers; `policy` is `hang` of run.json, None switches it off."""

    def __init__(self, policy: HangPolicy | None) -> None:
        self.policy = policy
        self.silent = 0.0  # seconds without a sign of life: at the suspicion, then at its end
        self.kind = ""  # "silent" or "stepless": the present suspicion
        self.median: float | None = None
        self.now: float | None = None
        self.output_at = 0.0
        self.step_at = 0.0
        self.patience = 0.0  # seconds of allowed silence after false suspicions
        self.bytes = 0
        self.steps = 0
        self.ended = False

    def observe(self, now: float, total: int, steps: int, times: Sequence[float]) -> bool:
        """Return True once, when a suspicion starts.

        `now` is a monotonic clock in seconds, `total` the bytes of output so far, `steps` how many
        were seen, `times` their last durations in seconds. Meant to be called about once a second.
        """
        self.ended = False
        if self.policy is None:
            return False
        if self.now is None:
            self.output_at = self.step_at = now
        elif not 0.0 <= now - self.now <= GAP:  # a suspended machine is not silent
            self.output_at += now - self.now
            self.step_at += now - self.now
        self.now = now
        self._note(now, total, steps, times)
        if self.kind:
            self._end_suspicion(now)
            return False
        self.kind = self._suspicion(now)
        self.silent = now - (self.step_at if self.kind == "stepless" else self._alive_at())
        return bool(self.kind)

    def resumed(self) -> bool:
        """Return whether the last call ended a suspicion; `silent` is then its duration."""
        return self.ended

    def is_quiet(self) -> bool:
        """Return whether there is no suspicion, or one that is only reported."""
        return self.kind != "silent"

    def limit(self) -> float:
        """Return for how many seconds the job may be silent."""
        if self.policy is None:
            limit = 0.0
        elif self.median is None:
            limit = self.policy.first_progress
        else:
            limit = max(self.policy.factor * self.median, self.policy.floor)
        return max(limit, self.patience)

    # -- observing -----------------------------------------------------------------------------

    def _note(self, now: float, total: int, steps: int, times: Sequence[float]) -> None:
        if total != self.bytes:
            self.bytes = total
            # output does not end a "stepless" suspicion
            self.output_at = now if self.kind != "silent" else self.output_at
            self.ended = self.kind == "silent"
        if steps == self.steps:
            return
        self.steps = steps
        self.ended = bool(self.kind)
        if not self.kind:
            self.step_at = now
        recent = sorted(list(times)[-RECENT:])
        if steps > 1 and recent:
            self.median = recent[len(recent) // 2]

    def _end_suspicion(self, now: float) -> None:
        if not self.ended:
            return
        self.silent = now - (self.step_at if self.kind == "stepless" else self._alive_at())
        if self.kind == "silent":
            self.patience = max(self.patience, PATIENCE_FACTOR * self.silent)
            self.output_at = now
        # after mere output too: the next step gets the whole time again
        self.step_at = now
        self.kind = ""

    def _alive_at(self) -> float:
        return max(self.output_at, self.step_at)

    def _suspicion(self, now: float) -> str:
        limit = self.limit()
        if limit > 0.0 and now - self._alive_at() >= limit:
            return "silent"
        first = self.policy.first_progress if self.policy is not None else 0.0
        if self.median is None or first <= 0.0:
            return ""  # no steps were ever seen: its output is the only evidence
        return "stepless" if now - self.step_at >= max(first, limit) else ""
