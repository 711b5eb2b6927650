"""Decides whether a failed attempt is followed by another one, after how long, on which rung.

Everything is given: no clock, no processes; only `newest` looks at files. The defaults of the
classes are those of classes.py. A rung is how many steps of the profile's NCCL ladder an attempt
has more than the start; each is tried once, after an illegal memory access.
"""

from __future__ import annotations

import os

from safelaunch.runtime.records import Record
from safelaunch.runtime.units import job_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.runtime.records import AttemptRecord, Failure, Nullable, RecoveryPolicy

SMOKE = "min_steps"  # why a smoke run ends, on all its nodes
LADDER_CLASS = "cuda-illegal-memory-access"
UNMET = "no restart: `success` is not met: a restart would train it all again"
MOST = 20000  # directory entries that `newest` looks at: about 0.1 s on a local disk
DOUBLINGS = 30  # of the delay: 2 ** 30 s are 34 years
# NVIDIA/nccl 1637 and 2418, vllm 19890: older builds fault on compute capability 12.0
NCCL_BUILD = (
    "check the NCCL build: RTX 50xx cards need 2.26.2.post1 or >= 2.26.5"
    " (`python -c 'import torch; print(torch.cuda.nccl.version())'` tells yours;"
    " `pip install -U nvidia-nccl-cu12` updates it)"
)


class Decision(Record):
    """What follows an attempt; on several nodes node 0 decides, and sends it to the others."""

    action: str = "stop"  # restart or stop
    delay: float = 0.0  # seconds before a restart
    rung: int = 0  # steps of the NCCL ladder above the start
    port: Nullable[int] = None  # rendezvous port of the next attempt, where node 0 has chosen one
    why: str = ""  # the reason, a sentence


class NodeEnd(Record):
    """How an attempt has ended on one node, as its peers hear it."""

    node: int = -1  # number of the node
    state: str = ""  # succeeded, failed, stopped or lost
    stopped_by: Nullable[str] = None  # what stopped it
    class_name: Nullable[str] = None  # failure class
    rank: Nullable[int] = None  # rank that failed first
    what: Nullable[str] = None  # the failure in one line
    role: Nullable[str] = None  # root, cascade or unknown
    time: Nullable[float] = None  # when it failed, seconds since 1970
    exit_code: Nullable[int] = None  # exit code of the rank or launcher that failed
    unmet: Nullable[Sequence[str]] = None  # conditions of `success` that are not met


def decide(  # noqa: PLR0917 - all the grounds of one decision
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
        return _stop(rung, "no restart: the job has no `recovery:`")
    if failure.unmet and failure.exit_code == 0:
        return _stop(rung, UNMET)
    name = failure.class_name
    override = policy.classes.get(name) if name else None
    on_ladder = policy.ladder and name == LADDER_CLASS
    climbs = on_ladder and override != "stop" and rung < rungs  # a reason to retry of its own
    if on_ladder and override is None and not climbs:
        why = "no restart: `%s` also at the top of the NCCL ladder; %s" % (name, NCCL_BUILD)
    else:
        why = "" if climbs else _never(override, failure, attempts) or _stalled(policy, attempts)
    made = max(0, len(attempts) - 1)
    delay = _delay(policy, made)
    why = why or _exhausted(policy, made, max(0.0, now - started_at) + delay)
    if why:
        return _stop(rung, why)
    reason = "restart %d of %d: " % (made + 1, policy.max_restarts)
    if climbs:
        rung += 1
        reason += "`%s`: up to rung %d of %d of the NCCL ladder" % (name, rung, rungs)
    else:
        reason += "`%s` may pass" % name if name else _unknown(attempts)
    return Decision(action="restart", delay=delay, rung=rung, why=reason)


def _stop(rung: int, why: str) -> Decision:
    return Decision(action="stop", delay=0.0, rung=rung, why=why)


def _never(override: str | None, failure: Failure, attempts: Sequence[AttemptRecord]) -> str:
    """Return why a failure is not retried; "" if it is."""
    name = failure.class_name
    if override == "stop":
        return "no restart: `recovery.classes` says so for `%s`" % name
    if override == "restart":
        return ""
    if name:
        from safelaunch.runtime.signatures import classes  # noqa: PLC0415 - its table is large, and needed only here

        if classes.restarts(name, failure.restart or ""):
            return ""
        return "no restart: `%s` would fail again; `recovery.classes` can allow it" % name
    # no known cause: a job that once worked may have met with bad luck, one that never did is
    # most likely wrong by itself
    if any(_moved(attempts)):
        return ""
    return "no restart: no known cause, and no progress before it"


def _unknown(attempts: Sequence[AttemptRecord]) -> str:
    """Say why a failure of no known class is retried: one of the attempts came further."""
    who = "it" if _moved(attempts)[-1] else "an earlier attempt"
    return "no known cause, and %s had made progress" % who


def _delay(policy: RecoveryPolicy, made: int) -> float:
    """Return the pause before the next attempt. No jitter: there is one node, and no herd."""
    delay = policy.backoff * 2.0 ** min(made, DOUBLINGS)
    return min(delay, policy.backoff_max)


def _exhausted(policy: RecoveryPolicy, made: int, spent: float) -> str:
    """Say which limit forbids another attempt that begins after `spent` seconds."""
    if made >= policy.max_restarts:
        return "no restart: `max_restarts: %d` are used up" % policy.max_restarts
    if policy.budget is not None and spent >= policy.budget:
        return "no restart: the `budget` of %s is used up" % job_duration(policy.budget)
    return ""


def _stalled(policy: RecoveryPolicy, attempts: Sequence[AttemptRecord]) -> str:
    """Say that the last attempts came no further; those on a lower rung have shown nothing."""
    limit = policy.no_progress
    rung = attempts[-1].rung if attempts else 0
    same = [
        moved
        for attempt, moved in zip(attempts, _moved(attempts))  # noqa: B905 - `strict` is 3.10
        if attempt.rung == rung
    ]
    last = same[-limit:] if limit else []
    if len(last) < max(1, limit) or any(last):
        return ""
    if limit == 1:
        return "no restart: no progress (`no_progress: 1`)"
    return "no restart: no progress in %d attempts in a row (`no_progress`)" % limit


def _moved(attempts: Sequence[AttemptRecord]) -> list[bool]:
    """Return for each attempt whether it came further than all before it."""
    moved, best, newest = [], 0, None  # type: list[bool], int, float | None
    for attempt in attempts:
        steps = attempt.steps or 0
        checkpoint = attempt.checkpoint
        fresh = checkpoint is not None and checkpoint > _since(attempt, newest)
        moved.append(attempt.progressed or fresh or steps > best)
        best = max(best, steps)
        if checkpoint is not None:
            newest = checkpoint if newest is None else max(newest, checkpoint)
    return moved


def _since(attempt: AttemptRecord, newest: float | None) -> float:
    """Return the time after which a checkpoint is this attempt's: one of an earlier run is not."""
    # file systems cut times to 1 s, FAT to 2 s: where earlier ones are known, newer is enough
    return (attempt.started_at or 0.0) - 2.0 if newest is None else newest


def advice(attempts: Sequence[AttemptRecord], rungs: Sequence[str], succeeded: bool) -> str | None:
    """Return what the ladder has taught, for the end of a run; None where it was not climbed.

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
        return "all rungs of the NCCL ladder failed (%s): %s" % (added, NCCL_BUILD)
    if not cures or (rung > 1 and rungs[rung - 1].startswith("NCCL_DEBUG")):
        said = "it got through on the top rung, which only turns NCCL_DEBUG on: the fault may come"
        return "%s again; %s" % (said, NCCL_BUILD)
    said = "rung %d (%s) got through: write it into the job's `env:`, or better, %s"
    return said % (rung, cures, NCCL_BUILD)


# -- checkpoints -----------------------------------------------------------------------------------


def newest(pattern: str, cwd: str) -> float | None:
    """Return the time of the newest file or folder that a glob finds below cwd, in seconds.

    A matching folder counts with what lies directly in it: files are written anew in place. On a
    huge tree it gives up after MOST entries and returns the newest so far.
    """
    first = os.path.join(cwd, pattern)
    root, parts = ("/", first.strip("/").split("/")) if first[:1] == "/" else ("", first.split("/"))
    budget = [MOST]
    best = None
    for path in _matches(root, [p for p in parts if p not in ("", ".")], budget):
        for found in (path, *(entry.path for entry in _entries(path, budget))):
            try:
                time = os.stat(found).st_mtime
            except OSError:
                continue
            best = time if best is None else max(best, time)
    return best


def _entries(folder: str, budget: list[int]) -> Iterator[os.DirEntry[str]]:
    if budget[0] <= 0 or not os.path.isdir(folder or "."):
        return
    try:
        with os.scandir(folder or ".") as entries:
            for entry in entries:
                budget[0] -= 1
                if budget[0] < 0:
                    return
                yield entry
    except OSError:
        return


def _matches(folder: str, parts: list[str], budget: list[int]) -> Iterator[str]:
    """Yield what lies below a folder and fits; as glob does it, but within the budget."""
    if not parts:
        yield folder
    elif parts[0] == "**":
        yield from _below(folder, parts[1:], budget)
    elif any(letter in parts[0] for letter in "*?["):
        for path in _named(folder, parts[0], budget):
            yield from _matches(path, parts[1:], budget)
    elif os.path.lexists(os.path.join(folder, parts[0])):
        yield from _matches(os.path.join(folder, parts[0]), parts[1:], budget)


def _below(folder: str, rest: list[str], budget: list[int]) -> Iterator[str]:
    yield from _matches(folder, rest or ["*"], budget)
    for entry in _entries(folder, budget):
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            yield from _below(entry.path, rest, budget)


def _named(folder: str, part: str, budget: list[int]) -> Iterator[str]:
    import fnmatch  # noqa: PLC0415 - brings re along: only where checkpoints are watched

    for entry in _entries(folder, budget):
        hidden = entry.name.startswith(".") and not part.startswith(".")
        if not hidden and fnmatch.fnmatchcase(entry.name, part):
            yield entry.path
