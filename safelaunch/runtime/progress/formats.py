"""What training programs print about their progress, one line at a time. All bytes, no state.

A line is read into a dict: `kind` (how reliable it is: USER, NAMED ...), `step`, and if
present `total`, `epoch`, `epochs`, `eta` (seconds), `scope`. `scope` is what `total` counts:
"run", "epoch", or "bar" (a progress bar that may be the run or only a part of it). Nothing of this
is imported before a line looks like progress: the patterns take time to compile.
"""

from __future__ import annotations

import re

from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE
from safelaunch.runtime.progress.metrics import metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    LogRecord: TypeAlias = dict[str, Any]


# Kinds of lines: where several kinds report different steps, the lowest number wins.
USER, NAMED, BAR, LINE, COUNT, EPOCH = range(6)


def clock(text: bytes) -> float | None:
    """Return the seconds of `05:23`, `1:01:46`, `29350.6`, `90s`; None for `?` and the like."""
    parts = text.strip().rstrip(b"s").split(b":")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        return None
    if len(numbers) > 3:  # noqa: PLR2004 - days are not written so by any of these
        return None
    seconds = 0.0
    for number in numbers:
        seconds = seconds * 60 + number
    return seconds if 0 <= seconds < 1e9 else None  # noqa: PLR2004 - 30 years: no such job


# -- progress bars ---------------------------------------------------------------------------------

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
_UNITS = frozenset(
    b"it step steps iter iters batch batches update updates epoch epochs ep episode".split()
)
# activities before, between and after training: their bars are not progress of the training
_CHECKING = re.compile(rb"(?i)eval|valid|\bval\b|\btest|predict|sanity|infer")
_OTHER = re.compile(
    rb"(?i)load|\bmap\b|filter|fetch|generat|token|convert|sav(?:e|ing)|writ|extract|process|comput"
    rb"|captur|rollout|shard|dataset|cach|pars|num_proc|resolv|checkpoint|quant|collect|encod|build"
    rb"|prepar|warm|reading|render|compil|pack|truncat|apply|format|prompt|calib|import|copy|index"
    rb"|search|scan|split|merg|^len\b"
)
_TRAINING = re.compile(
    rb"(?i)train|epoch|\bsteps?\b|\biter|\bfit|optimi[sz]|ppo|grpo|episode|tun(?:e|ing)\b"
)
# verl and diffusers count the whole run under these names
_WHOLE = (b"Training Progress", b"Steps")
_EPOCH = re.compile(
    rb"(?i)\bepochs?\W{0,3}(\d{1,7})\b(?![.\d])(?:\s{0,2}(?:/|of)\s{0,2}(\d{1,7}))?"
)
_KERAS = re.compile(rb"^\s{0,9}(\d{1,12})/(\d{1,12}) (?:\[[=>.]{5,60}\]|(?:\xe2\x94\x81){5,60})")


def bar(line: bytes) -> LogRecord | None:
    """Read the last progress bar of a line; `sure` is whether it is a bar of training.

    `sure` is True, False, or None: its name does not say, only other lines can.
    """
    last = None
    end = 0
    for match in _TQDM.finditer(line):
        last, start, end = match, end, match.end()
    if last is not None:
        _, step, total, elapsed, left, unit, postfix = last.groups()
        out = _classify_bar(line[start : last.start()], unit, postfix)
        out.update(step=int(step), total=int(total), eta=clock(left), elapsed=clock(elapsed))
        return out
    match2 = _UNBOUND.search(line)
    if match2 is not None:
        step, elapsed, unit, postfix = match2.groups()
        out = _classify_bar(line[: match2.start()], unit, postfix)
        out.update(kind=COUNT, step=int(step), elapsed=clock(elapsed))
        return out
    return _keras(line)


def _classify_bar(before: bytes, unit: bytes, postfix: bytes | None) -> LogRecord:
    """Classify a bar by its description, its unit and its metrics."""
    name = before.rsplit(b"\r", 1)[-1].strip()
    name = name[:-1].strip()[-80:] if name[-1:] == b":" else b""
    values = metrics(postfix or b"", loose=True)
    out: LogRecord = {"kind": BAR, "name": name, "scope": "bar", "metrics": values, "eta": None}
    out["sure"] = _is_training(name, unit, values)
    epoch = _EPOCH.search(name)
    if epoch is not None:
        out.update(scope="epoch", name=name[: epoch.start()], **_epochs(*epoch.groups()))
    elif name.lower().endswith((b"epoch", b"epochs")):
        out.update(kind=EPOCH, scope="run")  # counts epochs: the outer one of two bars
    elif name.endswith(_WHOLE):
        out["scope"] = "run"
    return out


def _is_training(name: bytes, unit: bytes, values: dict[str, float]) -> bool | None:
    counted = [word for word in unit.strip().split(b"/") if word.strip() not in (b"s", b"")]
    if not all(word.strip() in _UNITS for word in counted) or _CHECKING.search(name):
        return False
    if "loss" in values or "reward" in values:
        return True
    if _OTHER.search(name):
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


def _epochs(epoch: bytes, epochs: bytes | None) -> LogRecord:
    return {"epoch": int(epoch), "epochs": int(epochs) if epochs else None}


# -- lines -----------------------------------------------------------------------------------------

# AReaL 0.1 to 0.3: `Epoch 1/1 step 6/19 (global step 6) finishes. ... Estimated remaining time: 9s`
_AREAL = re.compile(
    rb"Epoch \d{1,7}/(\d{1,7}) step \d{1,9}/(\d{1,9}) \(global step (\d{1,9})\) finishes"
    rb"(?:.{0,300}?Estimated remaining time: ([\d.]{1,15})s)?"
)
# AReaL from 0.3 lite on: `Epoch 1/10 Step 1/934 Train step 1/9340 done.`
_AREAL_LITE = re.compile(rb"Step \d{1,9}/\d{1,9} Train step (\d{1,9})/(\d{1,9}) done")
_MEGATRON = re.compile(
    rb"\biteration\s{1,9}(\d{1,9})/\s{0,9}(\d{1,9}) \|"
    rb"(?:.{0,200}?elapsed time per iteration \(ms\): ([\d.]{1,12}))?"
)
_COUNTS = (
    re.compile(rb"(?:^|\s)step:(\d{1,9}) - "),  # verl
    re.compile(rb"\bstep=(\d{1,9}), skipped="),  # DeepSpeed
    re.compile(rb"\bglobal_step=(\d{1,9}), RunningAvg"),
)
_FAIRSEQ = re.compile(rb"\bepoch (\d{3}): {1,9}(\d{1,9}) / (\d{1,9}) [a-z_]{1,20}=")
_MNIST = re.compile(rb"\bEpoch: {0,3}(\d{1,7}) \[(\d{1,9})/(\d{1,9}) ?\(")  # PyTorch's examples
_STEP = re.compile(
    rb"(?i)(?<![\w./])(global[_ ]|train(?:ing)?[_ ])?(?:steps?|iter(?:ation)?s?|updates?|batch)"
    rb"\s{0,2}[:=#]?\s{0,2}\[?\s{0,6}(\d{1,9})\]?(?![.\w])(?:\s{0,6}(?:/|of)\s{0,6}(\d{1,9})(?![.\w]))?"
)
_BRACKET = re.compile(rb"^\W{0,9}\[\s{0,6}(\d{1,9})\s{0,2}/\s{0,6}(\d{1,9})\]")
# the merged log's `[3] `, torchrun's `[rank3]: ` and `[default3]:`, Ray's `(actor pid=1, ip=...) `
_ORIGIN = re.compile(
    rb"(?:\[(?:rank|default)?(\d{1,6})\]:? |\([^()\r\n]{0,80}\bpid=\d{1,9}[^()\r\n]{0,80}\) ?)"
)
_ESCAPE = re.compile(ESCAPE_SEQUENCE.encode() + rb"|\x08")
# a line of Hugging Face's Trainer: its bar counts the whole run
TRAINER = re.compile(rb"\{['\"]loss['\"]: .{0,400}['\"](?:learning_rate|epoch)['\"]: ")
HEADER = re.compile(rb"^Epoch (\d{1,7})/(\d{1,7})\s*$")  # Keras, and many a loop of one's own


def step_line(line: bytes) -> LogRecord | None:
    """Read a line with a step that is no bar; None for any other line."""
    framework = _framework_line(line)
    if framework is not None:
        values = metrics(line, loose=True)
        values.pop("epoch", None)
        return dict(framework, metrics=values)
    loss = line.lower().find(b"loss")
    if _CHECKING.search(line, 0, loss if loss >= 0 else 200):
        return None  # `validation step 3: loss 0.5`; but `step 3: loss 0.5, valid loss 0.6` counts
    values = metrics(line, loose=True)
    values.pop("epoch", None)
    if not values or ("loss" not in values and len(values) < 2):  # noqa: PLR2004 - `step 2: acc 1`
        return None  # `Step 2/5: build the image` is no training
    return _loop_line(line, values)


def _framework_line(line: bytes) -> LogRecord | None:
    """Read the lines that only one framework prints."""
    match = _AREAL.search(line)
    if match is not None:
        epochs, steps, step, left = match.groups()
        eta = clock(left) if left else None
        return _run(NAMED, b"areal", step, int(epochs) * int(steps), eta)
    match = _AREAL_LITE.search(line)
    if match is not None:
        return _run(NAMED, b"areal", match.group(1), int(match.group(2)), None)
    match = _MEGATRON.search(line)
    if match is not None:
        step, steps, pace = match.groups()
        left_ms = (int(steps) - int(step)) * float(pace) if pace else None
        return _run(NAMED, b"megatron", step, int(steps), left_ms / 1000 if left_ms else None)
    for pattern in _COUNTS:
        match = pattern.search(line)
        if match is not None:
            return _run(COUNT, b"count", match.group(1), None, None)
    return None


def _run(kind: int, name: bytes, step: bytes, total: int | None, eta: float | None) -> LogRecord:
    row = {"kind": kind, "name": name, "scope": "run", "total": total, "eta": eta}
    return dict(row, step=int(step))


def _loop_line(line: bytes, values: dict[str, float]) -> LogRecord | None:
    """Read a line with a loss of a training loop that is no known framework's."""
    match = _FAIRSEQ.search(line) or _MNIST.search(line)
    if match is not None:
        epoch, step, total = match.groups()
        out = _run(LINE, b"line", step, int(total), None)
        return dict(out, scope="epoch", metrics=values, **_epochs(epoch, None))
    in_epoch = _EPOCH.search(line)
    match = _STEP.search(line)
    if match is not None:
        whole, step, total = match.groups()
        out = _run(LINE if total else COUNT, b"line", step, int(total) if total else None, None)
        if total and in_epoch is not None and not whole:
            out.update(scope="epoch", guessed=True, **_epochs(*in_epoch.groups()))
        return dict(out, metrics=values)
    match = _BRACKET.search(line)
    if match is not None:
        out = _run(LINE, b"bracket", match.group(1), int(match.group(2)), None)
        return dict(out, scope="bar", metrics=values)
    if in_epoch is None:
        return None
    epoch, epochs = in_epoch.groups()
    return dict(_run(EPOCH, b"epoch", epoch, int(epochs) if epochs else None, None), metrics=values)


def origin(line: bytes) -> tuple[int, bytes]:
    """Return the rank in the prefix of a line (-1: none, the launcher), and the bare line."""
    if b"\x1b" in line or b"\x08" in line:
        line = _ESCAPE.sub(b"", line)
    rank = -1
    for _ in range(3):  # one of each kind
        match = _ORIGIN.match(line)
        if match is None:
            break
        if match.group(1):
            rank = int(match.group(1))
        line = line[match.end() :]
    return rank, line
