"""Decides whether a failed attempt is followed by another one, after how long, on which rung.

No clock, no processes, no files. The defaults of failure classes are those of classes.py. A rung is
how many steps of the profile's NCCL ladder an attempt has more than the start; each is tried once,
after an illegal memory access.
"""

# ruff: noqa: PLC0415 - classes has a large table, for failures only

from __future__ import annotations

from safelaunch.runtime.messages.ends import Decision
from safelaunch.runtime.units import job_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runtime.records import AttemptRecord, Failure, RecoveryPolicy

LADDER_CLASS = "cuda-illegal-memory-access"
UNMET = "no restart: `success` is not met, and a restart would train it all again"
DOUBLINGS = 30  # of the delay: 2 ** 30 s are 34 years
# NVIDIA/nccl 1637 and 2418, vllm 19890: older builds fault on compute capability 12.0
NCCL_BUILD = (
    "check the NCCL build: RTX 50xx GPUs need 2.26.2.post1 or >= 2.26.5"
    " (`python -c 'import torch; print(torch.cuda.nccl.version())'` prints yours;"
    " `pip install -U nvidia-nccl-cu12` updates it)"
)


def decide(  # noqa: PLR0917 - all that one decision depends on
    policy: RecoveryPolicy | None,
    attempts: Sequence[AttemptRecord],
    failure: Failure,
    now: float,
    started_at: float,
    rungs: int,
) -> Decision:
    """Return whether the failed attempt, the last of `attempts`, is followed by another one.

    `now` and `started_at` are of one clock, `rungs` how many steps of the ladder there are above
    the start.
    """
    rung = attempts[-1].rung if attempts else 0
    if policy is None:
        return Decision(rung=rung, why="no restart: the job has no `recovery:`")
    if failure.unmet and failure.exit_code == 0:
        return Decision(rung=rung, why=UNMET)
    name = failure.class_name
    override = policy.classes.get(name) if name else None
    on_ladder = policy.ladder and name == LADDER_CLASS
    climbs = on_ladder and override != "stop" and rung < rungs  # a reason to retry of its own
    if on_ladder and override is None and not climbs:
        why = f"no restart: `{name}` also at the top of the NCCL ladder; {NCCL_BUILD}"
    else:
        why = "" if climbs else _never(override, failure, attempts) or _stalled(policy, attempts)
    restarts = max(0, len(attempts) - 1)
    # no jitter: there is one node, and no other retries at the same time
    delay = min(policy.backoff * 2.0 ** min(restarts, DOUBLINGS), policy.backoff_max)
    why = why or _exhausted(policy, restarts, max(0.0, now - started_at) + delay)
    if why:
        return Decision(rung=rung, why=why)
    reason = f"restart {restarts + 1} of {policy.max_restarts}: "
    if climbs:
        rung += 1
        reason += f"`{name}`: up to rung {rung} of {rungs} of the NCCL ladder"
    elif name:
        reason += f"`{name}` may pass"
    else:
        which = "it" if progressed(attempts)[-1] else "an earlier attempt"
        reason += f"no known cause, and {which} had made progress"
    return Decision(action="restart", delay=delay, rung=rung, why=reason)


def _never(override: str | None, failure: Failure, attempts: Sequence[AttemptRecord]) -> str:
    """Return why a failure is not retried; "" if it is."""
    name = failure.class_name
    if override == "stop":
        return f"no restart: `recovery.classes` has `{name}: stop`"
    if override == "restart":
        return ""
    if name:
        from safelaunch.runtime.signatures import classes

        if classes.restarts(name, failure.restart or ""):
            return ""
        return f"no restart: `{name}` would fail again; `recovery.classes` can allow it"
    # no known cause: a job that made progress may have met a passing fault, one that never did
    # most likely has a fault of its own
    if any(progressed(attempts)):
        return ""
    return "no restart: no known cause, and no progress before it"


def _exhausted(policy: RecoveryPolicy, restarts: int, seconds: float) -> str:
    """Return which limit forbids another attempt that starts after so many seconds, or ""."""
    if restarts >= policy.max_restarts:
        return f"no restart: `max_restarts: {policy.max_restarts}` is used up"
    if policy.budget is not None and seconds >= policy.budget:
        return f"no restart: the `budget` of {job_duration(policy.budget)} is used up"
    return ""


def _stalled(policy: RecoveryPolicy, attempts: Sequence[AttemptRecord]) -> str:
    """Return that the last attempts made no progress, or ""; lower rungs do not count."""
    limit = policy.no_progress
    last = [
        has_progressed
        for attempt, has_progressed in zip(attempts, progressed(attempts))  # noqa: B905 - `strict` is 3.10
        if attempt.rung == attempts[-1].rung
    ][-limit:]
    if not limit or len(last) < limit or any(last):
        return ""
    if limit == 1:
        return "no restart: no progress (`no_progress: 1`)"
    return f"no restart: no progress in {limit} attempts in a row (`no_progress`)"


def progressed(attempts: Sequence[AttemptRecord]) -> list[bool]:
    """Return for each attempt whether it made more progress than all before it."""
    each: list[bool] = []
    steps = 0
    newest: float | None = None
    for attempt in attempts:
        # a checkpoint of an earlier run is none of this attempt; file systems cut times to 1 s, FAT
        # to 2 s: where an earlier checkpoint is known, newer is enough
        since = (attempt.started_at or 0.0) - 2.0 if newest is None else newest
        is_newer = attempt.checkpoint is not None and attempt.checkpoint > since
        each.append(attempt.progressed or is_newer or (attempt.steps or 0) > steps)
        steps = max(steps, attempt.steps or 0)
        if attempt.checkpoint is not None:
            newest = max(attempt.checkpoint, newest or attempt.checkpoint)
    return each


def advice(attempts: Sequence[AttemptRecord], rungs: Sequence[str], succeeded: bool) -> str | None:
    """Return what the ladder has shown, for the end of a run; None where it was not climbed.

    `rungs` are the variables that each step adds, such as "NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1".
    """
    rung = min(attempts[-1].rung, len(rungs)) if attempts else 0
    if not rung:
        return None
    added = " ".join(rungs[:rung])
    cures = " ".join(word for word in added.split() if not word.startswith("NCCL_DEBUG"))
    if not succeeded:
        if rung < len(rungs) or attempts[-1].class_name != LADDER_CLASS:
            return None
        return f"all rungs of the NCCL ladder failed ({added}): {NCCL_BUILD}"
    if not cures or (rung > 1 and rungs[rung - 1].startswith("NCCL_DEBUG")):
        return (
            "it succeeded on the top rung, which only turns NCCL_DEBUG on: the fault may come"
            f" again; {NCCL_BUILD}"
        )
    return (
        f"rung {rung} ({cures}) succeeded: write it into the job's `env:`, or better, {NCCL_BUILD}"
    )
