"""The progress of a run in words, from the `progress` of its status."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from safelaunch.runtime.units import brief_duration, duration

if TYPE_CHECKING:
    from safelaunch.runtime.records import ProgressReport

WIDTH = 34  # what `ps` has for it: 80 columns less a run id, a state and a time
_LATE = 5  # steps without news after which the time left is no longer told
_LATE_AT_LEAST = 60.0  # seconds
_SHOWN = ("grad_norm", "learning_rate", "task_reward", "reward", "score", "accuracy", "eval_loss")
_NAMES = {"grad_norm": "gradient norm", "learning_rate": "learning rate", "eval_loss": "eval loss"}


def short(
    progress: ProgressReport | None,
    state: str,
    now: float | None = None,
    *,
    late: bool = False,
    width: int = WIDTH,
) -> str:
    """Return `120/800, 12 min left, loss 0.412` in at most `width` characters; else nothing.

    `now` is the time of day (default: now). Of a run that has ended, or is `late` because it seems
    to hang, there is no time left to tell.
    """
    if not progress:
        return ""
    words = [_step(progress)]
    left = None if late else _left(progress, state, now)
    if left is not None:
        words.append(
            f"bar {brief_duration(left)}" if _is_part(progress) else f"{brief_duration(left)} left"
        )
    loss = progress.loss
    metrics = progress.metrics
    if loss is not None:
        words.append(f"loss {_number(loss)}")
    elif metrics.get("task_reward") is not None:
        words.append(f"reward {_number(metrics['task_reward'])}")
    words = [word for word in words if word]
    while len(words) > 1 and len(", ".join(words)) > width:
        words.pop(1 if len(words) > 2 else -1)  # noqa: PLR2004 - the step and the loss matter most
    return ", ".join(words)[: max(0, width)]


def lines(
    progress: ProgressReport | None, state: str, now: float | None = None, *, late: bool = False
) -> list[str]:
    """Return what `show` tells: how far, how long yet, the last numbers, what looks wrong."""
    if not progress:
        return []
    moment = time.time() if now is None else now
    far = _how_far(progress, state, moment, late=late)
    found = [line for line in (far, _numbers(progress)) if line]
    saved = progress.last_checkpoint_time
    if saved is not None:
        found.append(f"last checkpoint {duration(max(0.0, moment - saved))} ago")
    return found + _alarms(progress)


def _how_far(progress: ProgressReport, state: str, now: float, *, late: bool) -> str:
    step = _step(progress)
    if not step:
        return ""
    words = [f"step {step}"]
    if progress.epochs:
        words.append(f"epoch {progress.epoch} of {progress.epochs}")
    left = None if late else _left(progress, state, now)
    if left is not None:
        part = " of this progress bar (there may be more)" if _is_part(progress) else ""
        words.append(f"about {duration(left)} left{part}")
    pace = progress.step_time
    last = progress.last_step_time
    if state == "running" and last is not None:
        words.append(f"last one {duration(max(0.0, now - last))} ago")
    if pace is not None and pace > 0:
        words.append(f"{duration(pace)} per step")
    return ", ".join(words)


def _numbers(progress: ProgressReport) -> str:
    metrics = progress.metrics
    words = []
    if progress.loss is not None:
        words.append(f"loss {_number(progress.loss)}")
    words += [
        f"{_NAMES.get(name, name.replace('_', ' '))} {_number(metrics[name])}"
        for name in _SHOWN
        if metrics.get(name) is not None
    ]
    return ", ".join(words[:5])


def _alarms(progress: ProgressReport) -> list[str]:
    """Return what AReaL's manual calls a sign of trouble, and losses that are no numbers."""
    metrics = progress.metrics
    found = []
    bad = [
        n for n in ("loss", "actor_loss", "grad_norm") if metrics.get(n) in ("nan", "inf", "-inf")
    ]
    if bad:
        named = ", ".join(_NAMES.get(n, n.replace("_", " ")) for n in bad)
        found.append(
            f"{named} is not finite (NaN or infinite): weights trained from here on are useless"
        )
    weight, clipped = metrics.get("importance_weight"), metrics.get("clip_ratio")
    if isinstance(weight, (int, float)) and not 0.9 <= weight <= 1.1:  # noqa: PLR2004
        found.append(f"importance weight {_number(weight)} is far from 1")
    if isinstance(clipped, (int, float)) and clipped > 0.1:  # noqa: PLR2004
        found.append(f"clip ratio {_number(clipped)} is above 0.1")
    return found


def _step(progress: ProgressReport) -> str:
    step, total = progress.step, progress.total
    if step is None:
        return ""
    said = f"{step}/{total}" if total else str(step)
    if progress.scope == "epoch":
        return f"epoch {progress.epoch}: {said}" if progress.epoch is not None else said
    return said


def _is_part(progress: ProgressReport) -> bool:
    return progress.scope == "bar"


def _left(progress: ProgressReport, state: str, now: float | None) -> float | None:
    """Return the seconds left, unless the run is over or its steps are late."""
    eta, last = progress.eta, progress.last_step_time
    if state != "running" or eta is None:
        return None
    if last is None:
        return eta
    silent = max(0.0, (time.time() if now is None else now) - last)
    pace = progress.step_time
    patience = eta if pace is None else _LATE * pace
    if silent > max(_LATE_AT_LEAST, patience):
        return None
    return max(0.0, eta - silent)


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value)
