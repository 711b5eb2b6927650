"""What a step that has ended has left for the steps after it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.preconditions import step_outputs
from safelaunch.runtime.preconditions.step_outputs import OutputMissing
from safelaunch.runtime.records import ProgressReport, RecoveryPolicy, RunRecord, Status

if TYPE_CHECKING:
    from pathlib import Path


def _ended_step(folder: Path, glob: str = "out/*") -> str:
    node_dir = folder / "node-0"
    node_dir.mkdir()
    RunRecord(cwd=str(folder), recovery=RecoveryPolicy(checkpoint=glob)).write(str(node_dir))
    Status(progress=ProgressReport(metrics={"loss": 0.25})).write(str(node_dir))
    return str(node_dir)


def _checkpoint(folder: Path, step: int, **files: object) -> Path:
    path = folder / "out" / f"step-{step}"
    path.mkdir(parents=True)
    for name, data in files.items():
        (path / f"{name}.json").write_text(json.dumps(data))
    for file in (*path.iterdir(), path):
        os.utime(file, (step, step))
    return path


def test_the_newest_whole_checkpoint_and_the_best_by_a_metric(tmp_path: Path) -> None:
    node_dir = _ended_step(tmp_path)
    best = _checkpoint(tmp_path, 1, metrics={"loss": 0.1, "accuracy": 0.5})
    worst = _checkpoint(tmp_path, 2, metrics={"loss": 0.9, "accuracy": 0.8})
    newest = _checkpoint(tmp_path, 3, metrics={"loss": float("nan")})
    _checkpoint(tmp_path, 4)  # it is empty
    assert step_outputs.value(node_dir, "checkpoint") == str(newest)
    assert step_outputs.value(node_dir, "checkpoint.lowest.loss") == str(best)
    assert step_outputs.value(node_dir, "checkpoint.highest.accuracy") == str(worst)
    with pytest.raises(OutputMissing, match=r"says its `f1` \(accuracy, loss"):
        step_outputs.value(node_dir, "checkpoint.lowest.f1")


def test_the_last_line_of_the_trainers_history_is_that_of_its_checkpoint(tmp_path: Path) -> None:
    node_dir = _ended_step(tmp_path)
    lines = [{"eval_loss": 0.9, "step": 1}, {"eval_loss": 0.2, "step": 2}, {"loss": 1.0}]
    _checkpoint(tmp_path, 1, trainer_state={"log_history": lines[:1]})
    second = _checkpoint(tmp_path, 2, trainer_state={"log_history": lines, "best_metric": 0.0})
    assert step_outputs.value(node_dir, "checkpoint.lowest.eval_loss") == str(second)


def test_a_metric_may_be_in_the_name_of_a_checkpoint(tmp_path: Path) -> None:
    node_dir = _ended_step(tmp_path, "out/*.ckpt")
    (tmp_path / "out").mkdir()
    for name in ("epoch=1-val_loss=0.31", "epoch=2-val_loss=0.12", "epoch=3-val_loss=0.45"):
        (tmp_path / "out" / f"{name}.ckpt").write_bytes(b"weights")
    best = step_outputs.value(node_dir, "checkpoint.lowest.val_loss")
    assert os.path.basename(best) == "epoch=2-val_loss=0.12.ckpt"


def test_a_step_that_has_saved_nothing_has_no_checkpoint(tmp_path: Path) -> None:
    node_dir = _ended_step(tmp_path)
    with pytest.raises(OutputMissing, match=r"no whole checkpoint matches `out/\*`"):
        step_outputs.value(node_dir, "checkpoint")


def test_its_folder_its_log_and_its_last_metrics(tmp_path: Path) -> None:
    node_dir = _ended_step(tmp_path)
    assert step_outputs.value(node_dir, "run_dir") == node_dir
    assert step_outputs.value(node_dir, "log").startswith(f"{node_dir}/logs/attempt-1/")
    assert step_outputs.value(node_dir, "metrics.loss") == "0.25"
    with pytest.raises(OutputMissing, match=r"no metric `f1` \(it has: loss\)"):
        step_outputs.value(node_dir, "metrics.f1")
