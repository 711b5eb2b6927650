"""What a step has left for the steps after it: a checkpoint, its folder, its log, its metrics."""

from __future__ import annotations

import json
import math
import os
import re

from safelaunch.runtime.logs import reader
from safelaunch.runtime.progress import checkpoints
from safelaunch.runtime.records import RunRecord, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FORMS = (
    *("checkpoint", "checkpoint.lowest.METRIC", "checkpoint.highest.METRIC"),
    *("run_dir", "log", "metrics.METRIC"),
)
_OUTPUT = re.compile(r"run_dir|log|checkpoint(\.(lowest|highest)\.[\w/-]+)?|metrics\.[\w/-]+")
_MOST = 10_000  # whole checkpoints that are compared
_LARGEST = 1 << 24  # bytes of a file with metrics
# files of a checkpoint that have metrics; the first is of transformers' Trainer
_TRAINER_STATE = "trainer_state.json"
_FILES = (_TRAINER_STATE, "metrics.json", "eval_results.json", "all_results.json", "state.json")
_NUMBER = r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)"


class OutputMissing(Exception):  # noqa: N818 - not an error of the program
    """The step has not left what is asked for; the message says what is there."""


def is_output(text: str) -> bool:
    """Whether a text is one of the forms, as `checkpoint.lowest.eval_loss`."""
    return _OUTPUT.fullmatch(text) is not None


def value(node_dir: str, output: str) -> str:
    """Return what a step that has ended has left. Raises OutputMissing."""
    kind, _, rest = output.partition(".")
    if kind == "run_dir":
        return node_dir
    if kind == "log":
        return reader.log_path(node_dir, None, max(reader.attempts(node_dir), default=1))
    if kind == "metrics":
        return _last_metric(node_dir, rest)
    paths, flaw = _whole_checkpoints(node_dir)
    if not rest:
        return paths[0]
    side, _, metric = rest.partition(".")
    return _best(paths, side, metric, flaw)


def _last_metric(node_dir: str, name: str) -> str:
    progress = (Status.read(node_dir) or Status()).progress
    metrics = dict(progress.metrics) if progress is not None else {}
    if name not in metrics:
        names = ", ".join(sorted(metrics)) or "none"
        raise OutputMissing(f"its log has no metric `{name}` (it has: {names})")
    return str(metrics[name])


def _whole_checkpoints(node_dir: str) -> tuple[list[str], str]:
    """Return the paths of the whole checkpoints, the newest first, and what the newest lacks.

    What a run has made in its own copy of the project is moved into the project's folder at its
    end, unless another node still used the copy then.
    """
    run = RunRecord.read(node_dir) or RunRecord()
    glob = run.recovery.checkpoint if run.recovery is not None else None
    if glob is None:
        raise OutputMissing("it does not say where its checkpoints are (`recovery: checkpoint:`)")
    folders = [run.cwd]
    if run.tree and run.place:
        folders.insert(0, run.cwd.replace(run.tree, run.place, 1))
    flaw = ""
    for cwd in folders:
        paths, lack = checkpoints.whole(glob, cwd, _MOST)
        flaw = flaw or lack
        if paths:
            return [os.path.join(cwd, path) for path in paths], flaw
    raise OutputMissing(f"no whole checkpoint matches `{glob}`" + (f" ({flaw})" if flaw else ""))


def _best(paths: list[str], side: str, metric: str, flaw: str) -> str:
    """Return the checkpoint with the lowest or highest value of a metric."""
    values: dict[str, float] = {}
    names: set[str] = set()
    for path in paths:
        metrics = _metrics(path, metric)
        names |= metrics.keys()
        number = metrics.get(metric)
        if number is not None and math.isfinite(number):
            values[path] = number
    if not values:
        shown = ", ".join(sorted(names)[:12]) or "no metrics at all"
        more = f"; {flaw}" if flaw else ""
        raise OutputMissing(
            f"none of its {len(paths)} checkpoints says its `{metric}` ({shown}{more})"
        )
    # of equal ones the newest, which comes first
    choose = min if side == "lowest" else max
    return choose(values, key=lambda path: values[path])


def _metrics(path: str, metric: str) -> dict[str, float]:
    """Return what a checkpoint says of itself: in files beside its weights, or in its name."""
    metrics: dict[str, float] = {}
    name = os.path.basename(path)
    match = re.search(rf"(?:^|[-_.]){re.escape(metric)}[=_]{_NUMBER}(?![\d.]*\d)", name)
    if match:
        metrics[metric] = float(match[1])
    for file in _FILES if os.path.isdir(path) else ():
        metrics = {**dict(_file_metrics(os.path.join(path, file))), **metrics}
    return metrics


def _file_metrics(path: str) -> Iterator[tuple[str, float]]:
    try:
        if not os.path.isfile(path) or os.stat(path).st_size > _LARGEST:
            return
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return
    records = [data] if isinstance(data, dict) else []
    if records and isinstance(data.get("log_history"), list):
        records += [record for record in data["log_history"] if isinstance(record, dict)]
    for record in records:  # the last line of the history that has it is of this checkpoint
        for key, number in record.items():
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                yield str(key), float(number)
