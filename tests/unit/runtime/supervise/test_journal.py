"""What a supervisor writes down, on a disk that is full and where files have gone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.runtime import json_files
from safelaunch.runtime.records import RunRecord
from safelaunch.runtime.supervise.journal import FOLDERS, Journal

if TYPE_CHECKING:
    from pathlib import Path

RUN: dict[str, object] = {"id": "job-20260101-000000-abcd", "name": "job"}
OTHERS = [{"rank": rank, "what": "left early " * 40, "class": None} for rank in range(64)]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    new = Journal(str(tmp_path / "node-0"), RunRecord.from_json(RUN))
    (tmp_path / "node-0").mkdir()
    new.open()
    new.start_attempt(1)
    return new


def written_on_a_full_disk(path: Path, data: dict[str, Any]) -> dict[str, Any]:
    json_files.write_reserved(str(path), data)
    written = json.loads(path.read_bytes())
    assert isinstance(written, dict)
    return written


def test_a_failure_of_many_ranks_fits_whole_into_what_is_reserved_for_it(journal: Journal) -> None:
    failure: dict[str, object] = {
        "class": "nccl-timeout",
        "what": "w",
        "frame": None,
        "others": OTHERS,
    }
    path = journal.failure_file
    json_files.write_reserved(path, failure)
    assert json_files.read_json(path) == failure


def test_the_first_status_is_there_before_the_folders_are(tmp_path: Path) -> None:
    node = tmp_path / "node-0"
    node.mkdir()
    (node / FOLDERS[0]).touch()  # where a folder is to be made
    with pytest.raises(FileExistsError):
        Journal(str(node), RunRecord.from_json(RUN)).open()
    assert json.loads((node / "status.json").read_bytes())["state"] == "pending"


def test_what_does_not_fit_is_cut_short_and_no_key_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "failure.json"
    json_files.reserve(str(path), 8192)
    error = {"type": "RuntimeError", "message": "m" * 9000, "causes": [{"message": "c" * 9000}]}
    failure = {"class": "cuda-oom", "rank": 3, "exception": error, "others": OTHERS}
    written = written_on_a_full_disk(path, failure)
    assert (written["class"], written["rank"], written["exception"]["type"]) == (
        "cuda-oom",
        3,
        "RuntimeError",
    )
    assert set(written) == set(failure)
    assert written["exception"]["message"].startswith("mmm")
    assert path.stat().st_size == 8192


def test_a_directory_that_comes_back_has_what_the_start_had_written(
    journal: Journal, tmp_path: Path
) -> None:
    node = tmp_path / "node-0"
    (node / "again.0.sh").write_text("echo again")
    (node / "again.0.sh").chmod(0o755)
    (node / "supervisor.log").write_text("not this")
    (node / "run.json").write_text(json.dumps(RUN))
    journal.remember({"runtime/safelaunch/runtime/site/sitecustomize.py": b"pass"})
    node.rename(tmp_path / "away")
    assert journal.restore({})
    assert (node / "again.0.sh").read_text() == "echo again"
    assert (node / "again.0.sh").stat().st_mode & 0o777 == 0o755
    assert (node / "runtime/safelaunch/runtime/site/sitecustomize.py").read_bytes() == b"pass"
    assert not (node / "supervisor.log").exists()
    assert json_files.read_json(str(node / "run.json")) == RUN
    assert {folder.name for folder in node.iterdir()} >= {*FOLDERS, "failure.json.reserve"}


def test_bytes_that_the_copy_of_a_log_lacks_are_counted_for_its_path(tmp_path: Path) -> None:
    node = tmp_path / "node-0"
    node.mkdir()
    journal = Journal(str(node), RunRecord.from_json({**RUN, "log": "/dev/full"}))
    journal.open()
    journal.start_attempt(1)
    journal.log(b"12345\n")
    journal.log(b"678\n")
    (entry,) = journal.status.dropped
    assert (entry.file, entry.bytes, entry.why) == ("/dev/full", 10, "No space left on device")
    assert (node / "logs" / "attempt-1" / "combined.log").read_bytes() == b"12345\n678\n"
