"""What `clean` removes of the copies and contents that starts have left on this machine."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from support.recorded_launch import Launch

from safelaunch.runs.store import Run
from safelaunch.runtime import processes
from safelaunch.runtime.code import manifest
from safelaunch.runtime.code.store import ContentStore
from safelaunch.runtime.records import RecoveryPolicy, RunRecord, Status
from safelaunch.start.code.clean_code import clean_contents, clean_trees
from safelaunch.start.code.rerun_code import code_of_launch

DAY = 86400.0


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    return Launch(tmp_path, monkeypatch)


def named(run: Run, number: int) -> Run:
    """Give a run the id of a recorded one."""
    folder = Path(run.folder).parent / f"a-20260101-00000{number}-0000"
    Path(run.folder).rename(folder)
    return Run(folder.name, str(folder))


def rerun(launch: Launch, run: Run) -> tuple[Path, Run]:
    """Record a rerun of a run whose project has changed since; return its copy and itself."""
    code = code_of_launch(launch.plan, run, launch.home)
    tree = str(code.plan.nodes[0].cwd)
    again = named(launch.record(code.plan, tree, **code.files), 2)
    for reservation in Path(launch.home, "sync").glob("*.start"):
        reservation.unlink()  # as where the process of `rerun` has ended
    return Path(tree), again


@pytest.fixture
def copy(launch: Launch) -> tuple[Path, Run]:
    run = named(launch.record(launch.plan, str(launch.folder)), 1)
    (launch.folder / "src" / "lib.py").write_text("edited")
    return rerun(launch, run)


def end(run: Run, state: str = "failed", recovery: RecoveryPolicy | None = None) -> None:
    Status(state=state, started_at=1.0, ended_at=2.0).write(run.node_dir)
    record = RunRecord.read(run.node_dir) or RunRecord()
    record.recovery = recovery
    record.write(run.node_dir)


def clean(launch: Launch, **options: bool) -> list[tuple[str, str]]:
    """Return the copies, with why each was kept."""
    words: dict[str, Any] = {"remove_all": False, "force": False, "is_dry": False, **options}
    return [(Path(row["tree"]).name, row["kept"]) for row in clean_trees(launch.home, **words)]


def test_the_copy_of_an_ended_run_is_removed(launch: Launch, copy: tuple[Path, Run]) -> None:
    tree, run = copy
    (tree / "src" / "__pycache__").mkdir()
    (tree / "src" / "__pycache__" / "lib.pyc").write_text("made again")
    end(run)
    assert clean(launch, is_dry=True) == [(tree.name, "")]
    assert tree.exists()
    assert clean(launch) == [(tree.name, "")]
    assert os.listdir(tree.parent) == []
    # data that were linked in are where they were
    assert (launch.folder / "data" / "rows.csv").read_text() == "data/rows.csv"
    assert clean(launch) == []


@pytest.mark.parametrize("options", [{}, {"remove_all": True, "force": True}])
def test_the_copy_of_a_living_run_stays(
    launch: Launch, copy: tuple[Path, Run], options: dict[str, bool]
) -> None:
    tree, run = copy
    Status(state="running", supervisor=processes.identity(os.getpid())).write(run.node_dir)
    assert clean(launch, **options) == [(tree.name, "living")]
    assert (tree / "src" / "lib.py").exists()


def test_a_copy_stays_while_a_rerun_starts_in_it(launch: Launch, copy: tuple[Path, Run]) -> None:
    tree, run = copy
    end(run)
    first = Path(run.folder).with_name("a-20260101-000001-0000")
    code_of_launch(launch.plan, Run(first.name, str(first)), launch.home)
    assert clean(launch, remove_all=True, force=True) == [(tree.name, "living")]
    (reservation,) = Path(launch.home, "sync").glob("*.start")
    reservation.write_text(json.dumps({**processes.machine(), "pid": 1 << 30, "start": 1}))
    assert clean(launch) == [(tree.name, "")]
    assert not list(Path(launch.home, "sync").glob("*.start"))


def test_what_a_killed_rerun_left_is_removed_after_a_while(launch: Launch) -> None:
    part = Path(launch.home, "trees", "project-0123456789ab.4711")
    part.mkdir(parents=True)
    (part / "half.py").write_text("x")
    assert clean(launch, force=True) == [(part.name, "living")]
    past = time.time() - DAY
    os.utime(part, (past, past))
    assert clean(launch) == [(part.name, "")]
    assert not part.exists()


def test_a_copy_that_a_resume_may_need_stays(launch: Launch, copy: tuple[Path, Run]) -> None:
    tree, run = copy
    end(run, recovery=RecoveryPolicy())
    assert clean(launch) == [(tree.name, "resume")]
    end(run, state="succeeded", recovery=RecoveryPolicy())
    assert clean(launch, is_dry=True) == [(tree.name, "")]
    end(run, recovery=RecoveryPolicy())
    assert clean(launch, remove_all=True) == [(tree.name, "")]


@pytest.mark.parametrize("name", ["new/result.pt", "src/lib.py"])
def test_a_copy_with_files_that_are_nowhere_else_stays(
    launch: Launch, copy: tuple[Path, Run], name: str
) -> None:
    tree, run = copy
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).write_text("made by the run")
    end(run)
    words: dict[str, Any] = {"remove_all": True, "force": False, "is_dry": False}
    (row,) = clean_trees(launch.home, **words)
    assert (row["kept"], row["files"], row["more_files"]) == ("files", [name], 0)
    assert clean(launch, force=True) == [(tree.name, "")]


def test_nothing_else_in_the_folder_is_touched(launch: Launch, tmp_path: Path) -> None:
    trees = Path(launch.home, "trees")
    (trees / "mine").mkdir(parents=True)
    (trees / "notes-0123456789ab").write_text("a file")
    outside = tmp_path / "outside"
    outside.mkdir()
    (trees / "link-0123456789ab").symlink_to(outside)
    assert clean(launch, remove_all=True, force=True) == []
    assert sorted(os.listdir(trees)) == ["link-0123456789ab", "mine", "notes-0123456789ab"]


# -- contents


def age(home: str) -> None:
    """Make all packs older than a day."""
    past = time.time() - 2 * DAY
    for path in Path(home, "code").iterdir():
        os.utime(path, (past, past))


def test_contents_stay_as_long_as_a_run_has_them(launch: Launch, copy: tuple[Path, Run]) -> None:
    _, run = copy
    end(run)
    age(launch.home)
    assert clean_contents(launch.home, is_dry=False) == (0, 0)
    shutil.rmtree(Path(run.folder).with_name("a-20260101-000001-0000"))
    assert clean_contents(launch.home, is_dry=False) == (0, 0)  # the rerun has the same
    shutil.rmtree(run.folder)
    dry = clean_contents(launch.home, is_dry=True)
    assert dry[0] == 1
    assert clean_contents(launch.home, is_dry=False) == dry
    assert os.listdir(Path(launch.home, "code")) == ["index"]


def test_contents_of_the_last_day_stay(tmp_path: Path) -> None:
    home = str(tmp_path)
    store = ContentStore(home)
    content = store.put(b"of a start that is not recorded yet")
    store.close()
    assert clean_contents(home, is_dry=False) == (0, 0)
    age(home)
    assert ContentStore(home).has(content)  # another start relies on it
    assert clean_contents(home, is_dry=False) == (0, 0)
    assert ContentStore(home).get(content) is not None


def test_what_was_swept_is_stored_again(tmp_path: Path) -> None:
    home, data = str(tmp_path), b"contents"
    for _ in range(2):
        store = ContentStore(home)
        assert not store.has(manifest.digest(data))
        store.put(data)
        store.close()
        assert ContentStore(home).get(manifest.digest(data)) == data
        age(home)
        assert clean_contents(home, is_dry=False)[0] == 1
    assert ContentStore(home).get(manifest.digest(data)) is None
