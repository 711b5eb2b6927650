from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.runtime import processes
from safelaunch.runtime.records import PlannedNode, PlanRecord, RunRecord
from safelaunch.runtime.start import live_runs, run_dir, runtime_copy, starter

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


def test_the_bytecode_of_a_run_that_was_removed_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        runtime_copy.compile_file(str(tmp_path / "node-0" / "site" / "sitecustomize.py"))
    assert os.listdir(tmp_path) == []


# -- starts beside it ------------------------------------------------------------------------------


def other_run(home: Path, run_id: str = "other-1") -> Path:
    """Write the files of a start of this process that is under way."""
    node = home / "runs" / run_id / "node-0"
    node.mkdir(parents=True)
    PlanRecord(nodes=[PlannedNode(argv=["python", "x.py"], cwd="/x")]).write(str(node))
    RunRecord(starter=processes.identity(os.getpid()), log="/x/train.log").write(str(node))
    return node


def test_a_run_that_came_after_the_check_is_the_answer_and_nothing_is_started(
    tmp_path: Path,
) -> None:
    home = str(tmp_path / "home")
    checked = live_runs.look(home).digest
    other_run(tmp_path / "home")
    words = {**request(tmp_path), "checked": checked}
    answer = starter.start(words, b"", os.environ, home)
    assert not answer.started
    assert answer.others is not None
    (other,) = answer.others.live
    assert isinstance(other, dict)
    assert (other["id"], other["log"]) == ("other-1", "/x/train.log")
    assert os.listdir(tmp_path / "home" / "runs") == ["other-1"]
    assert not (tmp_path / "new").exists()
    with pytest.raises(starter.StartFailed, match="/no/python"):  # it goes on
        starter.start({**words, "checked": answer.others.digest}, b"", os.environ, home)


@pytest.mark.parametrize("checked", [None, "all"])
def test_a_run_that_was_checked_or_need_not_be_keeps_no_other_from_starting(
    tmp_path: Path, checked: str | None
) -> None:
    home = str(tmp_path / "home")
    other_run(tmp_path / "home")
    digest = live_runs.look(home).digest if checked else None
    with pytest.raises(starter.StartFailed, match="/no/python"):
        starter.start({**request(tmp_path), "checked": digest}, b"", os.environ, home)


def test_a_run_without_its_plan_was_not_seen(tmp_path: Path) -> None:
    """A look may come between the folder of a start and its files, a start under the lock not."""
    home = str(tmp_path / "home")
    node = other_run(tmp_path / "home")
    (node / "run.json").rename(node / "later")
    half = live_runs.look(home)
    (node / "later").rename(node / "run.json")
    assert half.digest != live_runs.digest(home, "")
    assert live_runs.look(home).digest == live_runs.digest(home, "")


def test_a_start_that_was_killed_half_way_keeps_no_other_from_starting(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    (tmp_path / "home" / "runs" / "killed-1" / "node-0").mkdir(parents=True)
    words = {**request(tmp_path), "checked": live_runs.look(home).digest}
    others = starter.start(words, b"", os.environ, home).others
    assert others is not None
    with pytest.raises(starter.StartFailed, match="/no/python"):
        starter.start({**words, "checked": others.digest}, b"", os.environ, home)


def test_who_holds_the_lock_for_too_long_is_named(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    with (
        live_runs.lock(home, "first-1"),
        pytest.raises(live_runs.StartLocked, match=f"by pid {os.getpid()} on .*first-1"),
        live_runs.lock(home, "second-1", patience=0.05),
    ):
        pass
    with live_runs.lock(home, "third-1", patience=0.0):
        pass


def test_the_end_of_a_process_releases_its_lock(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    program = (
        "import sys; from safelaunch.runtime.start import live_runs\n"
        f"with live_runs.lock({home!r}, 'killed-1'): print('locked', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:  # type: ignore[call-overload]
        process.stdout.readline()
        with (
            pytest.raises(live_runs.StartLocked, match=f"pid {process.pid} .*killed-1"),
            live_runs.lock(home, "next-1", patience=0.0),
        ):
            pass
        process.kill()
        process.wait()
        with live_runs.lock(home, "next-1", patience=0.0):
            pass
