"""Reads the metrics of a log line (loss, gradient norm, rewards) and detects nan and inf."""

from __future__ import annotations

import re
from math import isfinite

NUMBER = (
    rb"[-+]?(?:\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|\.\d{1,20}|[nN]a[nN]|[iI]nf(?:inity)?)"
)
_NAME = rb"(?<![\w./-])([A-Za-z_][\w./-]{0,60}(?: (?:loss|norm|rate))?)"
# 'loss': 0.5 | 'loss': '0.5' | loss: 0.5 | a table's  name │ 0.5
_PLAIN = re.compile(
    _NAME
    + rb"['\"]?(?:\s{0,3}:\s{0,3}|\s{0,60}\xe2\x94\x82\s{0,9})['\"]?("
    + NUMBER
    + rb")(?![\w.])"
)
# in a line with a step also: loss=0.5, loss 0.5
_LOOSE = re.compile(
    _NAME
    + rb"['\"]?(?:\s{0,3}[:=]\s{0,3}|\s{0,60}\xe2\x94\x82\s{0,9}|\s)['\"]?("
    + NUMBER
    + rb")(?![\w.])"
)

# last part of a name -> the metric; other names are ignored
METRICS = {
    b"loss": "loss",
    b"lm loss": "loss",
    b"train_loss": "loss",
    b"training_loss": "loss",
    b"total_loss": "loss",
    b"pg_loss": "loss",
    b"policy_loss": "loss",
    b"actor_loss": "actor_loss",
    b"vf_loss": "vf_loss",
    b"eval_loss": "eval_loss",
    b"val_loss": "eval_loss",
    b"grad_norm": "grad_norm",
    b"grad norm": "grad_norm",
    b"gnorm": "grad_norm",
    b"learning_rate": "learning_rate",
    b"learning rate": "learning_rate",
    b"lr": "learning_rate",
    b"epoch": "epoch",
    b"reward": "reward",
    b"rewards": "reward",
    b"task_reward": "task_reward",
    b"score": "score",
    b"kl": "kl",
    b"entropy": "entropy",
    b"acc": "accuracy",
    b"accuracy": "accuracy",
    b"mean_token_accuracy": "accuracy",
    b"importance_weight": "importance_weight",
    b"actor_clip_ratio": "clip_ratio",
    b"clip_ratio": "clip_ratio",
    b"no_eos_ratio": "no_eos_ratio",
    b"avg_seq_len": "avg_seq_len",
}
LOSSES = ("loss", "actor_loss", "vf_loss")


def metrics(line: bytes, loose: bool) -> dict[str, float]:
    """Return the metrics of a line; `loose` also accepts `loss=0.5` and `loss 0.5`.

    Source code in tracebacks contains `loss = 0.5 * x`: such a form counts only beside a step.
    """
    values: dict[str, float] = {}
    if b"train_runtime" in line:
        return values  # the summary of a whole Hugging Face run: its loss is a mean over all of it
    for name, value in (_LOOSE if loose else _PLAIN).findall(line):
        parts = name.lower().split(b"/")
        if parts[-1] in (b"avg", b"mean") and len(parts) > 1:
            parts.pop()
        metric = METRICS.get(parts[-1])
        if metric == "clip_ratio" and b"response_length" in parts:
            continue  # verl: the share of truncated answers, another metric
        if metric and metric not in values:
            values[metric] = float(value)
    return values


NOT_FINITE = 3  # nan gradient norms in a row: one or two are fp16 searching its loss scale


class Metrics:
    """The last values of the metrics, of the lowest rank that prints them."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self._rank = 1 << 30
        self._bad_norms = 0
        self._is_nan = False

    def update(self, values: dict[str, float], rank: int) -> str:
        """Store new values; return the metric that has just become nan or inf, once per spell."""
        if values and rank <= self._rank:
            self._rank = rank
            self.values.update(values)
        losses = [name for name in LOSSES if name in values]
        bad = [name for name in losses if not isfinite(values[name])]
        norm = values.get("grad_norm", 0.0)
        if "grad_norm" in values:
            self._bad_norms = 0 if isfinite(norm) else self._bad_norms + 1
        # a loss of exactly 0 with a nan norm: the model is broken already
        if self._bad_norms >= NOT_FINITE or (self._bad_norms and values.get("loss") == 0.0):
            bad.append("grad_norm")
        if bad:
            is_new, self._is_nan = not self._is_nan, True
            return bad[0] if is_new else ""
        if losses and not self._bad_norms:
            self._is_nan = False
        return ""
