"""Which code `rerun` runs: the project, or a copy as it was at the launch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.recorded_launch import Launch

from safelaunch.errors import Refused
from safelaunch.plan.serialize import freeze
from safelaunch.runtime.records import CodeRecord
from safelaunch.start.code.rerun_code import code_of_launch, code_of_today


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    return Launch(tmp_path, monkeypatch)


def test_a_project_that_has_not_changed_is_run_itself(launch: Launch) -> None:
    run = launch.record(launch.plan, str(launch.folder))
    (launch.folder / "data" / "rows.csv").write_text("more")
    code = code_of_launch(launch.plan, run, launch.home)
    assert (code.plan, code.files) == (launch.plan, {})
    assert code.note == f"runs the code that {run.id} was launched with, unchanged"


def test_a_changed_project_is_run_in_a_copy_with_links_to_data_and_outputs(
    launch: Launch,
) -> None:
    run = launch.record(launch.plan, str(launch.folder))
    (launch.folder / "src" / "lib.py").write_text("edited")
    (launch.folder / "src" / "new.py").write_text("new")
    (launch.folder / "train.py").unlink()
    code = code_of_launch(launch.plan, run, launch.home)
    [tree] = Path(launch.home, "trees").iterdir()
    assert (tree / "src" / "lib.py").read_text() == "src/lib.py"
    assert (tree / "train.py").is_file()
    assert not (tree / "src" / "new.py").exists()
    assert (tree / "out").readlink() == launch.folder / "out"
    assert (tree / "conf" / "notes.txt").readlink() == launch.folder / "conf" / "notes.txt"
    # code is in the copy, everything else where it was
    text = json.dumps(freeze(code.plan))
    for moved in ('"cwd": "TREE"', "TREE/src"):
        assert moved.replace("TREE", str(tree)) in text
    for path in ("data", "out"):
        assert str(launch.folder / path) in text
    record = CodeRecord.from_json(json.loads(code.files[CodeRecord.FILE]))
    assert (record.root, record.project) == (str(tree), str(launch.folder))
    # a rerun of that run has the same code again, or the project as it is now
    again = launch.record(code.plan, str(tree), **code.files)
    assert code_of_launch(code.plan, again, launch.home).plan == code.plan
    log = str(launch.folder / "logs" / "{name}.log")
    assert code.plan.log == log
    assert code_of_today(code.plan, again).plan == replace(launch.plan, log=log)
    assert len(list(Path(launch.home, "trees").iterdir())) == 1
    # a job has edited the copy
    (tree / "train.py").write_text("edited")
    assert code_of_launch(launch.plan, run, launch.home).plan != code.plan
    assert len(list(Path(launch.home, "trees").iterdir())) == 2


def test_code_that_cannot_be_had_is_refused_and_leaves_nothing(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safelaunch.runtime.code.launch_record.MAX_SIZE", 9)
    run = launch.record(launch.plan, str(launch.folder))
    (launch.folder / "src" / "lib.py").write_text("edited")
    with pytest.raises(Refused, match=r"1 of 4 files cannot be given back: src/lib.py") as caught:
        code_of_launch(launch.plan, run, launch.home)
    assert "--current" in (caught.value.hint or "")
    assert list(Path(launch.home, "trees").iterdir()) == []
    assert code_of_today(launch.plan, run).plan == launch.plan


def test_a_run_of_an_earlier_version_is_run_as_the_project_is_now(launch: Launch) -> None:
    run = launch.record(launch.plan, str(launch.folder))
    Path(run.node_dir, CodeRecord.FILE).unlink()
    code = code_of_launch(launch.plan, run, launch.home)
    assert code.plan == launch.plan
    assert code.note.startswith("runs the project as it is now: the code that a-")
