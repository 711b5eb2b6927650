from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.runtime.records import RunRecord
from safelaunch.runtime.start import run_dir, starter

if TYPE_CHECKING:
    from pathlib import Path


def request(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return a start whose interpreter does not exist, which is seen once all else is done."""
    log = str(folder / "new" / "deep" / "train.log")
    run = {"id": "job-20260101-000000-0000", "node": 0, "cwd": str(folder), "log": log}
    return {"run": {**run, "backend": "setsid", **changes}, "files": [], "python": "/no/python"}


def start(folder: Path, **changes: Any) -> None:
    starter.start(request(folder, **changes), b"", os.environ, str(folder / "home"))


def test_a_start_that_fails_after_its_log_was_reserved_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(starter.StartFailed, match="/no/python"):
        start(tmp_path)
    assert os.listdir(tmp_path / "home" / "runs") == []
    assert not (tmp_path / "new").exists()


def test_a_folder_of_the_log_that_others_use_stays(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with pytest.raises(starter.StartFailed):
        start(tmp_path)
    assert os.listdir(tmp_path / "new") == []


def test_a_log_that_exists_is_kept_and_leaves_no_run(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("precious")
    with pytest.raises(FileExistsError, match="never overwritten"):
        start(tmp_path, log=str(log))
    assert log.read_text() == "precious"
    assert os.listdir(tmp_path / "home" / "runs") == []


def test_a_run_id_that_is_there_is_not_started_again(tmp_path: Path) -> None:
    node_dir = run_dir.node_dir("job-20260101-000000-0000", 0, str(tmp_path / "home"))
    os.makedirs(node_dir)
    with open(os.path.join(node_dir, "status.json"), "w") as file:
        file.write('{"id": "job-20260101-000000-0000", "state": "succeeded"}')
    answer = starter.start(request(tmp_path), b"", os.environ, str(tmp_path / "home"))
    assert (answer.started, answer.status.state) == (False, "succeeded")
    assert not (tmp_path / "new").exists()


def test_a_start_that_is_undone_takes_its_log_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path / "home"))
    created: list[str] = []
    log = str(tmp_path / "new" / "train.log")
    node_dir = run_dir.node_dir("job-20260101-000000-0000", 0)
    assert run_dir.lock(node_dir, created)
    run_dir.reserve_log(log, created)
    run_dir.fill(node_dir, RunRecord(created=created[1:]), [], str(tmp_path / "home"))
    with open(log, "w") as file:
        file.write("the first line of a job that another node calls off\n")
    starter.undo("job-20260101-000000-0000", 0)
    assert os.listdir(tmp_path / "home" / "runs") == []
    assert not (tmp_path / "new").exists()
