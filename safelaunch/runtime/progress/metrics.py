"""Reads the metrics of a log line (loss, gradient norm, rewards) and detects nan and inf."""

from __future__ import annotations

import re
from math import isfinite

NUMBER = (
    rb"[-+]?(?:\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|\.\d{1,20}|[nN]a[nN]|[iI]nf(?:inity)?)"
)
_NAME = rb"(?<![\w./-])([A-Za-z_][\w./-]{0,60}(?: (?:[lL]oss|[nN]orm|[rR]ate))?)['\"]?"
_VALUE = rb"['\"]?(" + NUMBER + rb")(?![\w.])"
# 'loss': 0.5 | 'loss': '0.5' | loss: 0.5 | a table's  name │ 0.5
_PLAIN = re.compile(_NAME + rb"(?:\s{0,3}:\s{0,3}|\s{0,60}\xe2\x94\x82\s{0,9})" + _VALUE)
# in a line with a step also: loss=0.5, loss 0.5
_LOOSE = re.compile(_NAME + rb"(?:\s{0,3}[:=]\s{0,3}|\s{0,60}\xe2\x94\x82\s{0,9}|\s)" + _VALUE)
# metric -> last parts of names, a space in them written as `_`
_NAMES = {
    "loss": b"loss,lm_loss,train_loss,training_loss,reduced_train_loss,total_loss,avg_loss,ce_loss"
    b",pg_loss,policy_loss,loss_step,train_loss_step",
    "actor_loss": b"actor_loss",
    "vf_loss": b"vf_loss",
    "eval_loss": b"eval_loss,val_loss,valid_loss,validation_loss,test_loss",
    "grad_norm": b"grad_norm,gnorm",
    "learning_rate": b"learning_rate,lr",
    "epoch": b"epoch",
    "reward": b"reward,rewards",
    "task_reward": b"task_reward",
    "score": b"score",
    "kl": b"kl",
    "entropy": b"entropy",
    "accuracy": b"acc,accuracy,mean_token_accuracy",
    "importance_weight": b"importance_weight",
    "clip_ratio": b"actor_clip_ratio,clip_ratio",
    "no_eos_ratio": b"no_eos_ratio",
    "avg_seq_len": b"avg_seq_len",
}
METRICS = {name: metric for metric, names in _NAMES.items() for name in names.split(b",")}
LOSSES = ("loss", "actor_loss", "vf_loss")
_EVALUATION = (b"eval", b"val", b"valid", b"validation", b"test")  # in `val/loss`


def metrics(line: bytes, loose: bool) -> dict[str, float]:
    """Return the metrics of a line; `loose` also accepts `loss=0.5` and `loss 0.5`.

    Source code in tracebacks contains `loss = 0.5 * x`: such a form counts only beside a step.
    """
    values: dict[str, float] = {}
    if b"train_runtime" in line:
        return values  # the summary of a whole Hugging Face run: its loss is a mean over all of it
    for name, value in (_LOOSE if loose else _PLAIN).findall(line):
        parts = name.lower().replace(b" ", b"_").split(b"/")
        if parts[-1] in (b"avg", b"mean") and len(parts) > 1:
            parts.pop()
        metric = METRICS.get(parts[-1])
        if metric == "clip_ratio" and b"response_length" in parts:
            continue  # verl: the share of truncated answers, another metric
        if metric == "loss" and parts[0] in _EVALUATION:
            metric = "eval_loss"
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
