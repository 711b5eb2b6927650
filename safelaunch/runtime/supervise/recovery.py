"""Decides whether a failed attempt is followed by another one, after how long, on which rung.

Everything is given: no clock, no processes; only `newest` looks at files. The defaults of the
classes are those of classes.py. A rung is how many steps of the profile's NCCL ladder an attempt
has more than the start; each is tried once, after an illegal memory access.
"""

from __future__ import annotations

import os

from safelaunch.runtime.units import job_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

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


def decide(  # noqa: PLR0917 - all the grounds of one decision
    policy: dict[str, Any] | None,
    attempts: list[dict[str, Any]],
    failure: dict[str, Any],
    now: float,
    started_at: float,
    rungs: int,
) -> dict[str, Any]:
    """Return {"action": "restart" | "stop", "delay": seconds, "rung": k, "why": a sentence}.

    `attempts` are those of status.json, the failed one last: class, rung, steps (the highest step
    number reached), checkpoint (the newest one's time or None), progressed (a line said so).
    `failure` is failure.json, {} where nothing was found; `unmet` in it lists what `success` asks
    for and is not there. `now` and `started_at` are of one clock.
    `rungs` is how many steps of the ladder there are above the start.
    """
    rung = int(attempts[-1].get("rung") or 0) if attempts else 0
    if policy is None:
        return _stop(rung, "no restart: the job has no `recovery:`")
    if failure.get("unmet") and failure.get("exit_code") == 0:
        return _stop(rung, UNMET)
    name = failure.get("class")
    asked = (policy.get("classes") or {}).get(name)
    on_ladder = bool(policy.get("ladder")) and name == LADDER_CLASS
    climbs = on_ladder and asked != "stop" and rung < rungs  # a reason to retry of its own
    if on_ladder and asked is None and not climbs:
        why = "no restart: `%s` also at the top of the NCCL ladder; %s" % (name, NCCL_BUILD)
    else:
        why = "" if climbs else _never(asked, failure, attempts) or _stalled(policy, attempts)
    made = max(0, len(attempts) - 1)
    delay = _delay(policy, made)
    why = why or _exhausted(policy, made, max(0.0, now - started_at) + delay)
    if why:
        return _stop(rung, why)
    said = "restart %d of %d: " % (made + 1, policy["max_restarts"])
    if climbs:
        rung += 1
        said += "`%s`: up to rung %d of %d of the NCCL ladder" % (name, rung, rungs)
    else:
        said += "`%s` may pass" % name if name else _unknown(attempts)
    return {"action": "restart", "delay": delay, "rung": rung, "why": said}


def _stop(rung: int, why: str) -> dict[str, Any]:
    return {"action": "stop", "delay": 0.0, "rung": rung, "why": why}


def _never(asked: object, failure: dict[str, Any], attempts: list[dict[str, Any]]) -> str:
    """Say why a failure is not retried; nothing if it is."""
    name = failure.get("class")
    if asked == "stop":
        return "no restart: `recovery.classes` says so for `%s`" % name
    if asked == "restart":
        return ""
    if name:
        from safelaunch.runtime.signatures import classes  # noqa: PLC0415 - its table is large, and needed only here

        said = "no restart: `%s` would fail again; `recovery.classes` can allow it"
        return "" if classes.restarts(name, str(failure.get("restart") or "")) else said % name
    # no known cause: a job that once worked may have met with bad luck, one that never did is
    # most likely wrong by itself
    if any(_moved(attempts)):
        return ""
    return "no restart: no known cause, and no progress before it"


def _unknown(attempts: list[dict[str, Any]]) -> str:
    """Say why a failure of no known class is retried: one of the attempts came further."""
    who = "it" if _moved(attempts)[-1] else "an earlier attempt"
    return "no known cause, and %s had made progress" % who


def _delay(policy: dict[str, Any], made: int) -> float:
    """Return the pause before the next attempt. No jitter: there is one node, and no herd."""
    delay = float(policy["backoff"]) * 2.0 ** min(made, DOUBLINGS)
    return min(delay, float(policy["backoff_max"]))


def _exhausted(policy: dict[str, Any], made: int, spent: float) -> str:
    """Say which limit forbids another attempt that begins after `spent` seconds."""
    if made >= int(policy["max_restarts"]):
        return "no restart: `max_restarts: %d` are used up" % policy["max_restarts"]
    budget = policy.get("budget")
    if budget is not None and spent >= float(budget):
        return "no restart: the `budget` of %s is used up" % job_duration(float(budget))
    return ""


def _stalled(policy: dict[str, Any], attempts: list[dict[str, Any]]) -> str:
    """Say that the last attempts came no further; those on a lower rung have shown nothing."""
    wanted = int(policy.get("no_progress") or 0)
    rung = attempts[-1].get("rung") if attempts else None
    same = [
        moved
        for attempt, moved in zip(attempts, _moved(attempts))  # noqa: B905 - `strict` is 3.10
        if (attempt.get("rung") or 0) == (rung or 0)
    ]
    last = same[-wanted:] if wanted else []
    if len(last) < max(1, wanted) or any(last):
        return ""
    said = "no restart: no progress in %d attempts in a row (`no_progress`)"
    return said % wanted if wanted > 1 else "no restart: no progress (`no_progress: 1`)"


def _moved(attempts: list[dict[str, Any]]) -> list[bool]:
    """Return for each attempt whether it came further than all before it."""
    found, best, newest = [], 0, None  # type: list[bool], int, float | None
    for attempt in attempts:
        steps = int(attempt.get("steps") or 0)
        checkpoint = attempt.get("checkpoint")
        fresh = checkpoint is not None and checkpoint > _since(attempt, newest)
        found.append(bool(attempt.get("progressed") or fresh or steps > best))
        best = max(best, steps)
        if checkpoint is not None:
            newest = checkpoint if newest is None else max(newest, checkpoint)
    return found


def _since(attempt: dict[str, Any], newest: float | None) -> float:
    """Return the time after which a checkpoint is this attempt's: one of an earlier run is not."""
    started = attempt.get("started_at") or 0.0
    # file systems cut times to 1 s, FAT to 2 s: where earlier ones are known, newer is enough
    return float(started) - 2.0 if newest is None else newest


def advice(attempts: list[dict[str, Any]], rungs: list[str], succeeded: bool) -> str | None:
    """Return what the ladder has taught, for the end of a run; None where it was not climbed.

    `rungs` are the variables that each step adds, such as "NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1".
    """
    rung = min(int(attempts[-1].get("rung") or 0), len(rungs)) if attempts else 0
    if not rung:
        return None
    added = " ".join(rungs[:rung])
    cures = " ".join(word for word in added.split() if not word.startswith("NCCL_DEBUG"))
    if not succeeded:
        if rung < len(rungs) or attempts[-1].get("class") != LADDER_CLASS:
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
