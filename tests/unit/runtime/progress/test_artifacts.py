"""Which files count as written by a run, whatever the clock of their file system says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.progress import artifacts, checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FUTURE = 4e9  # the clock of a file server that is wrong


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_text(path.read_text())
    os.utime(other, (FUTURE, FUTURE))
    other.replace(path)


def rewrite(path: Path) -> None:
    path.write_text("x")


def touch(path: Path) -> None:
    path.touch()


def read(path: Path) -> None:
    path.read_text()


@pytest.mark.parametrize(
    ("act", "is_new"), [(rewrite, True), (replace, True), (touch, True), (read, False)]
)
def test_a_file_counts_where_its_state_has_changed(
    tmp_path: Path, act: Callable[[Path], None], *, is_new: bool
) -> None:
    path = tmp_path / "out" / "model.pt"
    path.parent.mkdir()
    path.write_text("x")
    os.utime(path, (FUTURE, FUTURE))
    before = artifacts.EarlierFiles(["out/*.pt"], str(tmp_path))
    act(path)
    assert (artifacts.missing("out/*.pt", str(tmp_path), before) == "") is is_new


def test_a_file_that_came_with_an_old_time_counts(tmp_path: Path) -> None:
    before = artifacts.EarlierFiles(["*.pt"], str(tmp_path))
    (tmp_path / "model.pt").touch()
    os.utime(tmp_path / "model.pt", (100, 100))
    assert artifacts.missing("*.pt", str(tmp_path), before) == ""


def test_a_folder_counts_where_a_file_in_it_was_written_in_place(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "model.pt").write_text("x")
    before = artifacts.EarlierFiles(["step-*"], str(tmp_path))
    assert "was there before" in artifacts.missing("step-*", str(tmp_path), before)
    (tmp_path / "step-1" / "model.pt").write_text("other")
    assert artifacts.missing("step-*", str(tmp_path), before) == ""


def test_in_a_huge_tree_the_time_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        (tmp_path / f"{number}.pt").touch()
        os.utime(tmp_path / f"{number}.pt", (100, 100))
    monkeypatch.setattr(checkpoints, "SCAN_LIMIT", 3)
    before = artifacts.EarlierFiles(["*.pt"], str(tmp_path))
    assert "was there before" in artifacts.missing("*.pt", str(tmp_path), before)
