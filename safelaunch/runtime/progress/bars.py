"""Reads progress bars: tqdm's, Keras's and those of Rich, as Lightning draws them."""

from __future__ import annotations

import re

from safelaunch.runtime.progress.formats import (
    BAR,
    CHECKING,
    COUNT,
    EPOCH,
    EPOCH_NUMBER,
    OTHER,
    clock,
    epoch_fields,
)
from safelaunch.runtime.progress.metrics import metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.progress.formats import LogRecord

# tqdm: `desc:  3%|▎  | 30/1000 [00:10<05:23,  3.00it/s, loss=0.41]`, also without the drawn bar
# (Colab), and vLLM's `100% Completed | 16/16 [...]`
_TQDM = re.compile(
    rb"(\d{1,3})%(?:\|[^|\r\n]{0,1200}\|| Completed \|)? {0,9}(\d{1,12})/(\d{1,12}) "
    rb"\[([\d:]{4,12})<([\d:?]{1,12}), {0,9}[\d.?]{1,12} ?([^\],\r\n]{1,30})"
    rb"(?:, ([^\]\r\n]{0,2000}))?\]"
)
_UNBOUND = re.compile(  # `desc: 30it [00:10,  3.00it/s, loss=0.41]`
    rb"(?<![\d.])(\d{1,12})[A-Za-z ]{1,12} \[([\d:]{4,12}), {0,9}[\d.?]{1,12} ?([^\],\r\n]{1,30})"
    rb"(?:, ([^\]\r\n]{0,2000}))?\]"
)
# `12/102 [==>....] - ETA: 7:30 - loss: 0.6`, `12/102 ━━━━ 3s 24ms/step - loss: 0.6`, and with
# verbose=2 `102/102 - 5s - 50ms/step - loss: 0.6`
_KERAS = re.compile(
    rb"^\s{0,9}(\d{1,12})/(\d{1,12}) (?:\[[=>.]{5,60}\]|(?:\xe2\x94\x81){5,60}|- \d{1,9}m?s)"
)
# Rich: `Epoch 0/1  ━━━━━╸━━━ 50/125 0:00:01 • 0:00:02 52.1it/s v_num: 0 train_loss: 0.06`; a
# download has `━━━ 10.5/20.0 MB`
_RICH = re.compile(
    rb"(?<![\x81\xb8\xba])(?:\xe2(?:\x94\x81|\x95\xb8|\x95\xba)){4,400}\s{1,200}(?:\d{1,3}%\s{1,3})?"
    rb"(\d{1,12})/(\d{1,12})(?![.\d])\s{0,3}([^\s\d]\S{0,12})?"
)
_LIGHTNING = re.compile(rb"[\d:]{4,9} \xe2\x80\xa2 ([\d:-]{4,9})\s{1,3}[\d.]{1,12}it/s")
_YOLO = re.compile(rb"^(\d{1,5})/(\d{1,5})\s{1,9}[\d.]{1,9}G\s")  # epoch, memory, losses ...
_UNITS = frozenset(
    b"it step steps iter iters batch batches update updates epoch epochs ep episode".split()
)
_TRAINING = re.compile(
    rb"(?i)train|epoch|\bsteps?\b|\biter|\bfit|optimi[sz]|ppo|grpo|episode|tun(?:e|ing)\b"
)
# verl and diffusers count the whole run under these names
_WHOLE = (b"Training Progress", b"Steps")
_NUMBERS = re.compile(rb"\d[\d.,]*")


def bar(line: bytes) -> LogRecord | None:
    """Read the last progress bar of a line; None where it has none."""
    if b"[" in line and b":" in line:  # a time within brackets
        last = None
        end = 0
        for match in _TQDM.finditer(line) if b"%" in line else ():
            last, start, end = match, end, match.end()
        if last is not None:
            _, step, total, elapsed, left, unit, postfix = last.groups()
            out = _classify(line[start : last.start()], unit, postfix)
            out.update(step=int(step), total=int(total), eta=clock(left), elapsed=clock(elapsed))
            return out
        match2 = _UNBOUND.search(line)
        if match2 is not None:
            step, elapsed, unit, postfix = match2.groups()
            out = _classify(line[: match2.start()], unit, postfix)
            out.update(kind=COUNT, step=int(step), elapsed=clock(elapsed))
            return out
    if b"/" not in line:
        return None
    return _keras(line) or (_rich(line) if b"\xe2" in line else None)


def _classify(before: bytes, unit: bytes, postfix: bytes | None) -> LogRecord:
    """Classify a bar by its description, its unit and its metrics."""
    name = before.rsplit(b"\r", 1)[-1].strip()
    name = name[:-1].strip()[-80:] if name[-1:] == b":" else b""
    # torchtune has its loss in the description
    values = {**metrics(name, loose=False), **metrics(postfix or b"", loose=True)}
    values.pop("epoch", None)
    out: LogRecord = {"kind": BAR, "name": name, "scope": "bar", "metrics": values, "eta": None}
    out["sure"] = _is_training(name, unit, values)
    epoch = EPOCH_NUMBER.search(name) or _YOLO.match(name)
    if epoch is not None:
        out.update(scope="epoch", name=name[: epoch.start()], **epoch_fields(*epoch.groups()))
        out["sure"] = True if epoch.re is _YOLO else out["sure"]
    elif name.lower().endswith((b"epoch", b"epochs")):
        out.update(kind=EPOCH, scope="run")  # counts epochs: the outer one of two bars
    elif name.endswith(_WHOLE):
        out["scope"] = "run"
    out["name"] = _NUMBERS.sub(b"#", out["name"])  # a loss or a step in it: still the same bar
    return out


def _is_training(name: bytes, unit: bytes, values: dict[str, float]) -> bool | None:
    counted = [word for word in unit.strip().split(b"/") if word.strip() not in (b"s", b"")]
    if not all(word.strip() in _UNITS for word in counted) or CHECKING.search(name):
        return False
    if "loss" in values or "reward" in values:
        return True
    if OTHER.search(name):
        return False
    return True if _TRAINING.search(name) else None


def _keras(line: bytes) -> LogRecord | None:
    match = _KERAS.search(line)
    if match is None:
        return None
    step, total = match.groups()
    values = metrics(line, loose=True)
    return {
        "kind": BAR,
        "name": b"keras",
        "scope": "epoch",
        "sure": "loss" in values,
        "step": int(step),
        "total": int(total),
        "metrics": values,
        "eta": None,
    }


def _rich(line: bytes) -> LogRecord | None:
    match = _RICH.search(line)
    if match is None:
        return None
    step, total, unit = match.groups()
    lightning = _LIGHTNING.search(line, match.end(2))
    counted = b"it" if unit is None or lightning is not None else unit
    rest = line[match.end() :]
    out = _classify(line[: match.start()].strip() + b":", counted, rest)
    out.update(step=int(step), total=int(total))
    if lightning is not None:
        out["eta"] = clock(lightning.group(1))
        if out.get("epochs") is not None:  # its last epoch of three is `Epoch 2/2`
            out.update(epochs=out["epochs"] + 1, zero_based=True)
    return out
