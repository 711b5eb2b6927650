"""Which code `rerun` runs: the project, or a copy as it was at the launch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.errors import Refused
from safelaunch.plan.serialize import freeze
from safelaunch.runs.store import Run
from safelaunch.runtime.records import CodeRecord, PlannedNode, PlanRecord, RunRecord
from safelaunch.runtime.start import code_files, provenance
from safelaunch.start.rerun_code import code_of_launch, code_of_today

if TYPE_CHECKING:
    from safelaunch.model import Plan

JOB = """
launcher: python
script: train.py
args: {config: conf/a.yaml, out: $PROJECT/out, data: $PROJECT/data, lib: $PROJECT/src}
pythonpath: [src]
log: logs/{name}.log
"""


class Launch:
    """A project, its plan, and the record of a run of it; nothing is started."""

    def __init__(self, root: Path) -> None:
        self.home = str(root / "home")
        self.project = Project(root / "project")
        self.folder = self.project.folder
        for name in ("src/lib.py", "conf/a.yaml", "data/rows.csv", "out/old.pt", "conf/notes.txt"):
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(name)
        self.plan = self.project.plan(JOB.replace("$PROJECT", str(self.folder)))

    def record(self, plan: Plan, cwd: str, **files: bytes) -> Run:
        """Record a run of a plan as its start does."""
        run = Run(f"a-{cwd.count('/')}", f"{self.home}/runs/a-{cwd.count('/')}")
        node_dir = Path(run.folder, "node-0")
        node_dir.mkdir(parents=True)
        argv = [str(word) for word in plan.nodes[0].argv]
        roots = [cwd, f"{cwd}/src"]
        record = RunRecord(cwd=cwd, roots=roots, job_file=str(self.folder / "job.yaml"))
        record.write(str(node_dir))
        PlanRecord(nodes=[PlannedNode(argv=argv)]).write(str(node_dir))
        for name, data in files.items():
            (node_dir / name).write_bytes(data)
        hashes, _ = code_files.recorded(record, argv)
        provenance.code(str(node_dir), record, hashes)
        return run


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    return Launch(tmp_path)


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
