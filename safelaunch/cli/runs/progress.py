"""Formats the progress of a run, from the `progress` of its status."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from safelaunch.runtime.units import brief_duration, duration

if TYPE_CHECKING:
    from safelaunch.runtime.records import ProgressReport

WIDTH = 34  # columns in `ps`: 80 less a run id, a state and a time
_LATE_STEPS = 5  # steps without news after which the remaining time is not shown
_MIN_LATE = 60.0  # seconds
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
    """Return `120/800, 12 min left, loss 0.412` in at most `width` characters.

    Empty without progress. `now` is the time of day (default: the current one). The remaining time
    is not shown after the run's end, or if it is `late`: it seems to hang.
    """
    if not progress:
        return ""
    words = [_step(progress)]
    left = None if late else _left(progress, state, now)
    if left is not None:
        text = brief_duration(left)
        words.append(f"bar {text}" if progress.scope == "bar" else f"{text} left")
    reward = progress.metrics.get("task_reward")
    if progress.loss is not None:
        words.append(f"loss {_number(progress.loss)}")
    elif reward is not None:
        words.append(f"reward {_number(reward)}")
    words = [word for word in words if word]
    while len(words) > 1 and len(", ".join(words)) > width:
        words.pop(1 if len(words) > 2 else -1)  # noqa: PLR2004 - the step and the loss matter most
    return ", ".join(words)[: max(0, width)]


def lines(
    progress: ProgressReport | None, state: str, now: float | None = None, *, late: bool = False
) -> list[str]:
    """Return the lines of `show`: steps, remaining time, the latest numbers, and what is wrong."""
    if not progress:
        return []
    now = time.time() if now is None else now
    metrics = progress.metrics
    numbers = [] if progress.loss is None else [f"loss {_number(progress.loss)}"]
    numbers += [
        f"{_name(key)} {_number(metrics[key])}" for key in _SHOWN if metrics.get(key) is not None
    ]
    steps = _steps(progress, state, now, late=late)
    texts = [text for text in (steps, ", ".join(numbers[:5])) if text]
    if progress.lines_without_step:
        texts.append(
            f"no step seen in {progress.lines_without_step:,} lines: hang detection and "
            "`min_steps` need steps; describe the log's step lines under `progress:`"
        )
    saved = progress.last_checkpoint_time
    if saved is not None:
        texts.append(f"last checkpoint {duration(max(0.0, now - saved))} ago")
    return texts + _alarms(progress)


def _steps(progress: ProgressReport, state: str, now: float, *, late: bool) -> str:
    step = _step(progress)
    if not step:
        return ""
    words = [step if step.startswith("epoch") else f"step {step}"]
    if progress.epochs:
        words.append(f"epoch {progress.epoch} of {progress.epochs}")
    left = None if late else _left(progress, state, now)
    if left is not None:
        part = " of this progress bar (there may be more)" if progress.scope == "bar" else ""
        words.append(f"about {duration(left)} left{part}")
    if state == "running" and progress.last_step_time is not None:
        words.append(f"last one {duration(max(0.0, now - progress.last_step_time))} ago")
    if progress.step_time is not None and progress.step_time > 0:
        words.append(f"{duration(progress.step_time)} per step")
    return ", ".join(words)


def _alarms(progress: ProgressReport) -> list[str]:
    """Return what AReaL's manual calls a sign of trouble, and values that are not finite."""
    metrics = progress.metrics
    texts = []
    keys = ("loss", "actor_loss", "grad_norm")
    bad = [_name(key) for key in keys if metrics.get(key) in ("nan", "inf", "-inf")]
    if bad:
        names = ", ".join(bad)
        texts.append(
            f"{names} is not finite (NaN or infinite): weights trained from here on are useless"
        )
    weight, clipped = metrics.get("importance_weight"), metrics.get("clip_ratio")
    if isinstance(weight, (int, float)) and not 0.9 <= weight <= 1.1:  # noqa: PLR2004
        texts.append(f"importance weight {_number(weight)} is far from 1")
    if isinstance(clipped, (int, float)) and clipped > 0.1:  # noqa: PLR2004
        texts.append(f"clip ratio {_number(clipped)} is above 0.1")
    return texts


def _step(progress: ProgressReport) -> str:
    step, total = progress.step, progress.total
    if step is None:
        return ""
    if progress.scope == "log" and progress.epoch is not None:
        return f"epoch {progress.epoch:g}"  # the trainer's lines have no step
    text = f"{step}/{total}" if total else str(step)
    has_epoch = progress.scope == "epoch" and progress.epoch is not None
    return f"epoch {progress.epoch}: {text}" if has_epoch else text


def _left(progress: ProgressReport, state: str, now: float | None) -> float | None:
    """Return the remaining seconds; None if the run has ended, or its steps are late."""
    eta, last = progress.eta, progress.last_step_time
    if state != "running" or eta is None:
        return None
    if last is None:
        return eta
    silent = max(0.0, (time.time() if now is None else now) - last)
    limit = eta if progress.step_time is None else _LATE_STEPS * progress.step_time
    return None if silent > max(_MIN_LATE, limit) else max(0.0, eta - silent)


def _name(key: str) -> str:
    return _NAMES.get(key, key.replace("_", " "))


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value)
