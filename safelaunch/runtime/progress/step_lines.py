"""Reads lines with a step: those of frameworks, and those of a training loop of one's own."""

from __future__ import annotations

import re
from functools import lru_cache

from safelaunch.runtime.progress.formats import (
    CHECKING,
    COUNT,
    EPOCH,
    EPOCH_NUMBER,
    LINE,
    NAMED,
    OTHER,
    clock,
    epoch_fields,
)
from safelaunch.runtime.progress.metrics import metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from safelaunch.runtime.progress.formats import LogRecord

    Values = tuple[bytes, Optional[int], Optional[float]]  # step, total, seconds left

_NUMBER = rb"(\d{1,9}(?:,\d{3}){0,3})"
# a line with a step has one of these (in lower case)
_WORDS = (b"step", b"iter", b"epoch", b"it ", b"it:", b"it=", b"batch", b"update", b"episode", b"[")

# AReaL 0.1 to 0.3: `Epoch 1/1 step 6/19 (global step 6) finishes. ... Estimated remaining time: 9s`
_AREAL = re.compile(
    rb"epoch \d{1,7}/(\d{1,7}) step \d{1,9}/(\d{1,9}) \(global step (\d{1,9})\) finishes"
    rb"(?:.{0,300}?estimated remaining time: ([\d.]{1,15})s)?"
)
_MEGATRON = re.compile(
    rb"\biteration\s{1,9}(\d{1,9})/\s{0,9}(\d{1,9}) \|"
    rb"(?:.{0,200}?elapsed time per iteration \(ms\): ([\d.]{1,12}))?"
)
_SWIFT = re.compile(
    rb"'global_step/max_steps': '(\d{1,9})/(\d{1,9})'"
    rb"(?:.{0,400}?'remaining_time': '([\dhdms ]{2,24})')?"
)
# fairseq `epoch 001:  7 / 78 loss=0.9`, PyTorch's examples `Epoch: 1 [640/60000 (1%)]` and
# `Epoch: [0][ 10/5005]`, timm `Train: 0 [  50/1251 (4%)]`, mmcv `Epoch [1][50/1000]`, mmengine
# `Epoch(train)  [1][ 50/1000]`, Swin `Train: [0/300][10/1251]`, NeMo `Training epoch 0, iteration
# 5/99 | lr: 1e-05`
_PARTS = (
    re.compile(rb"\bepoch (\d{3}): {1,9}(\d{1,9}) / (\d{1,9}) [a-z_]{1,20}="),
    re.compile(rb"\b(?:epoch|train): {0,3}(\d{1,7}) \[\s{0,9}(\d{1,9})/(\d{1,9}) ?\("),
    re.compile(
        rb"\b(?:epoch|train)(?:\(train\))?:?\s{0,3}\[(\d{1,7})(?:/\d{1,7})?\]\s{0,3}"
        rb"\[\s{0,9}(\d{1,9})\s{0,3}/\s{0,9}(\d{1,9})\]"
    ),
    re.compile(rb"\btraining epoch (\d{1,7}), iteration (\d{1,9})/(\d{1,9}) \|"),
)
# `step 5/100`, `Step: 5`, `Step [5/100]`, `"step": 5`, `global_step=5`, `Iter(train) [ 5/100]`, and
# a row of a table, `training_step │ 5`
_STEP = re.compile(
    rb"(?<![\w./])((?:train(?:er|ing)?/)?(?:global|train(?:ing)?|current|optimi[sz]er)[_ ]|train/)?"
    rb"(steps?|(?:(?:num|total)_)?timesteps?|iter(?:ation)?s?|it|num_updates|updates?|batch|episodes?)(?:\(train\))?['\"]?"
    rb"(?:\s{0,2}[:=#]?\s{0,2}|\s{0,60}(?:\xe2\x94\x82|\|)\s{0,9})['\"\[(]?\s{0,6}"
    + _NUMBER
    + rb"['\"\])]?(?!\.?\w)(?:\s{0,6}(?:/|(?:out )?of)\s{0,6}"
    + _NUMBER
    + rb"(?!\.?\w))?"
)
_STEPS_BEHIND = re.compile(  # `5/100 steps`, `5 of 100 iterations`
    rb"(?<![\w./])"
    + _NUMBER
    + rb"\s{0,2}(?:/|of)\s{0,2}"
    + _NUMBER
    + rb" (steps|iter(?:ation)?s|batches|updates)\b"
)
_TOTAL = re.compile(
    rb"\b(?:total|max|num)_(?:train(?:ing)?_)?(?:steps|iter(?:ation)?s)['\"]?\s{0,2}[:=]\s{0,2}(\d{1,9})\b"
)
_BRACKET = re.compile(rb"^\W{0,9}\[\s{0,6}(\d{1,9})\s{0,2}/\s{0,6}(\d{1,9})\]")
_ETA = re.compile(
    rb"\b(?:eta|remaining[_ ]time)['\"]?\s{0,2}[:=]?\s{0,2}['\"]?"
    rb"((?:\d{1,4} days?, )?\d[\d:]{3,12})"
)
_LOSS = re.compile(
    rb"loss(?!_scale)\w{0,20}['\"]?(?: (?:train|is))?\s{0,3}[:=]?\s{0,3}['\"(]?"
    rb"(?:[-+]?\.?\d|nan|inf)"
)
_LOSS_NAME = re.compile(rb"\b[\w/]{0,40}loss")
_TEMPLATE_SIZE = 200  # bytes before and behind a step whose words are compared
# `0.31 s`, `time: 0.31s`, `lr 1e-05`, `2026-01-02 10:11:12,345`, `12.3 tok/s`
_FIELD = re.compile(
    rb"(?:\b[a-z_][\w./@%-]{0,60}['\")]?(?: in \w{1,3})?\s{0,3}[:=]?\s{0,3}['\"(\[]?)?"
    rb"[-+]?\d[\d.,:]{0,30}(?:e[-+]?\d{1,3})?\s?(?:(?:[a-z]{1,9}/[a-z]{1,9}|[a-z]{1,3}|%)(?![\w%]))?"
)
_WORD = re.compile(rb"[a-z]+")
# a line of Hugging Face's Trainer: its bar counts the whole run
TRAINER = re.compile(rb"\{['\"]loss['\"]: .{0,400}['\"](?:learning_rate|epoch)['\"]: ")
HEADER = re.compile(rb"^Epoch (\d{1,7})/(\d{1,7})\s*$")  # Keras, and many a loop of one's own


def step_line(line: bytes) -> LogRecord | None:
    """Read a line with a step that is no bar; None for any other line.

    Where nothing in it is training's alone, `sure` is None and `template` its constant words.
    """
    low = line.lower()
    if not any(word in low for word in _WORDS):
        return None
    framework = _framework_line(low)
    if framework is not None:
        return dict(framework, metrics=_values(line), sure=True)
    counter = _loop_line(low)
    if counter is None:
        return None
    out, start, end = counter
    values = _values(line)
    # `step 2: acc 1` alone is not, nor is `Step 2/5: build the image`
    if "loss" in values or len(values) > 1 or _LOSS.search(low) is not None:
        # `validation step 3: loss 0.5`; but `step 3: loss 0.5, valid loss 0.6` counts
        loss = _LOSS_NAME.search(low)
        is_other = CHECKING.search(low, 0, loss.start() if loss else 200) is not None
        return None if is_other else dict(out, metrics=values, sure=True)
    before, behind = low[max(0, start - _TEMPLATE_SIZE) : start], low[end : end + _TEMPLATE_SIZE]
    template = b" ".join(_WORD.findall(_FIELD.sub(b" ", before + b" | " + behind)))
    # ninja: `[5/100] Building ...`
    is_other = bool(template) and (out["name"] == b"bracket" or _is_other(template))
    return None if is_other else dict(out, metrics=values, sure=None, template=template)


def loss_line(line: bytes) -> LogRecord | None:
    """Read a line with a loss, of an evaluation too, and its step or epoch; None for any other.

    It shows that the program is at work; of a training only `step_line` reads how far it is.
    """
    values = metrics(line, loose=True)
    epoch = values.pop("epoch", None)
    if not any("loss" in name for name in values):
        return None
    counter = None if epoch is not None else _loop_line(line.lower())
    if epoch is None and counter is None:
        return None
    return dict(counter[0] if counter else {"kind": EPOCH}, metrics=values)


@lru_cache(maxsize=64)  # the same words in each line of a loop
def _is_other(words: bytes) -> bool:
    return CHECKING.search(words) is not None or OTHER.search(words) is not None


def _values(line: bytes) -> dict[str, float]:
    values = metrics(line, loose=True)
    values.pop("epoch", None)
    return values


def _framework_line(low: bytes) -> LogRecord | None:
    """Read the lines that only one framework prints."""
    for hint, pattern, name, read in _FRAMEWORKS:
        match = pattern.search(low) if hint in low else None
        if match is not None:
            step, total, eta = read(*match.groups())
            return _run(NAMED if total else COUNT, name, step, total, eta)
    return None


def _areal(epochs: bytes, steps: bytes, step: bytes, left: bytes | None) -> Values:
    return step, int(epochs) * int(steps), clock(left) if left else None


def _megatron(step: bytes, steps: bytes, pace: bytes | None) -> Values:
    left = (int(steps) - int(step)) * float(pace) / 1000 if pace else None
    return step, int(steps), left


def _counted(step: bytes, steps: bytes | None = None, left: bytes | None = None) -> Values:
    return step, int(steps) if steps else None, clock(left) if left else None


# AReaL from 0.3 lite on: `Epoch 1/10 Step 1/934 Train step 1/9340 done.`
_AREAL_LITE = re.compile(rb"step \d{1,9}/\d{1,9} train step (\d{1,9})/(\d{1,9}) done")
_FRAMEWORKS = (  # with a text that each match has: to search it is fast
    (b"(global step", _AREAL, b"areal", _areal),
    (b"train step ", _AREAL_LITE, b"areal", _counted),
    (b"iteration ", _MEGATRON, b"megatron", _megatron),
    (b"max_steps", _SWIFT, b"swift", _counted),
    (b"step:", re.compile(rb"(?:^|\s)step:(\d{1,9}) - "), b"count", _counted),  # verl
    (b"skipped=", re.compile(rb"\bstep=(\d{1,9}), skipped="), b"count", _counted),  # DeepSpeed
    (b"runningavg", re.compile(rb"\bglobal_step=(\d{1,9}), runningavg"), b"count", _counted),
)


def _run(kind: int, name: bytes, step: bytes, total: int | None, eta: float | None) -> LogRecord:
    row = {"kind": kind, "name": name, "scope": "run", "total": total, "eta": eta}
    return dict(row, step=_int(step))


def _int(text: bytes) -> int:
    return int(text.replace(b",", b""))


def _loop_line(low: bytes) -> tuple[LogRecord, int, int] | None:
    """Read a step of a training loop; return also where it stands in the line."""
    for pattern in _PARTS if b"/" in low else ():
        match = pattern.search(low)
        if match is not None:
            epoch, step, total = match.groups()
            out = _run(LINE, b"line", step, int(total), None)
            return dict(out, scope="epoch", **epoch_fields(epoch, None)), *match.span()
    in_epoch = EPOCH_NUMBER.search(low) if b"epoch" in low else None
    match = _best_step(low)
    if match is not None:
        whole, name, step, total = match.groups()
    else:
        match = _STEPS_BEHIND.search(low)
        if match is not None:
            whole, (step, total, name) = None, match.groups()
    if match is not None:
        stated = _TOTAL.search(low) if not total and b"_" in low else None
        size = _int(total) if total else int(stated.group(1)) if stated else None
        out = _run(LINE if size else COUNT, name.rstrip(b"s"), step, size, None)
        if size and in_epoch is not None and not whole and not stated:
            out.update(scope="epoch", guessed=True, **epoch_fields(*in_epoch.groups()))
        has_eta = out["scope"] == "run" and (b"eta" in low or b"remaining" in low)
        left = _ETA.search(low) if has_eta else None
        out["eta"] = clock(left.group(1)) if left else None
        return out, *match.span()
    match = _BRACKET.search(low)
    if match is not None:
        out = _run(LINE, b"bracket", match.group(1), int(match.group(2)), None)
        return dict(out, scope="bar"), *match.span()
    if in_epoch is None:
        return None
    epoch, epochs = in_epoch.groups()
    out = _run(EPOCH, b"epoch", epoch, int(epochs) if epochs else None, None)
    return out, *in_epoch.span()


def _best_step(low: bytes) -> re.Match[bytes] | None:
    """Return the step over all epochs if the line has one, else its first."""
    first = None
    for match in _STEP.finditer(low):
        if match.group(1):
            return match
        first = first or match
    return first
