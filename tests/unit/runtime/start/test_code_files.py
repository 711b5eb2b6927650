"""Which files a run is made of, and which of them have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.workspace import wait_for

from safelaunch.runtime import PLACE
from safelaunch.runtime.code.launch_record import code_record
from safelaunch.runtime.records import RunRecord
from safelaunch.runtime.start import code_files

ARGV = ["python", "train.py", "conf/base.yaml", "--deepspeed", "ds.json", "--out", "results.json",
        "model=conf/big.yaml"]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunRecord:
    project = tmp_path / "project"
    for name in ("train.py", "src/data.py", "conf/base.yaml", "conf/big.yaml", "conf/other.yaml",
                 "ds.json", "results.json", ".venv/x.py", "env2/pyvenv.cfg", "env2/y.py",
                 "data/rows.csv"):  # fmt: skip
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "job.yaml").write_text("launcher: python")
    job_file = str(tmp_path / "job.yaml")
    return RunRecord(cwd=str(project), roots=[str(project)], job_file=job_file)


def test_script_settings_and_python_files_are_recorded(run: RunRecord) -> None:
    files, more = code_files.recorded(run, ARGV)
    names = {"train.py", "src/data.py", "conf/base.yaml", "conf/big.yaml", "ds.json"}
    assert (set(files), more) == ({run.job_file, *names}, 0)


def test_a_file_that_was_edited_after_the_start_counts_as_changed(run: RunRecord) -> None:
    script = Path(run.cwd, "train.py")
    since = script.stat().st_ctime
    wait_for(lambda: time.time() > since + 0.1, "another time of the file system's clock")
    script.write_text("edited")
    files, _ = code_files.recorded(run, ARGV, since + 0.05)
    assert code_files.changed(files, run.cwd) == ["train.py"]
    root, listed = code_files.project_files(run, files, None)
    record, _ = code_record(root, listed, os.path.join(run.cwd, "home"), None)
    assert record.not_stored == {"train.py": "changed during the start"}


def test_the_runtime_in_a_run_directory_below_the_project_is_none_of_its_code(
    run: RunRecord,
) -> None:
    runtime = Path(run.cwd, "home", "runs", "a", "node-0", PLACE)
    runtime.mkdir(parents=True)
    (runtime / "processes.py").touch()
    files, _ = code_files.recorded(run, ARGV)
    assert [name for name in files if "processes" in name] == []
    assert code_files.module_folder("processes", run.roots) is None


@pytest.mark.parametrize(
    ("name", "folder"),
    [("data", "src"), ("train", "."), ("x", None), ("pkg", "src")],
)
def test_the_folder_of_an_own_module_is_found(
    run: RunRecord, name: str, folder: str | None
) -> None:
    package = Path(run.cwd, "src", "pkg", "__init__.py")
    package.parent.mkdir()
    package.touch()
    path = None if folder is None else os.path.normpath(os.path.join(run.cwd, folder))
    assert code_files.module_folder(name, run.roots) == path


def test_what_is_beyond_the_limits_is_counted(
    run: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_files, "MAX_FILES", 2)
    files, more = code_files.recorded(run, ARGV)
    assert (len(files), more) == (2, 4)


def test_files_with_another_content_and_those_that_are_gone_have_changed(run: RunRecord) -> None:
    files, _ = code_files.recorded(run, ARGV)
    for name, text in (("train.py", "new"), ("src/data.py", "src/data.py")):
        with open(f"{run.cwd}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    assert run.job_file
    with open(run.job_file, "w", encoding="utf-8") as file:
        file.write("launcher: torchrun")
    assert code_files.changed({**files, "gone.py": "0"}, run.cwd) == [
        run.job_file,
        "train.py",
        "gone.py",
    ]
