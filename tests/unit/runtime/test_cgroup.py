"""A control group for each run: where one can be made, what is in it, and its removal."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from support.workspace import wait_for

from safelaunch.runtime import cgroup

if TYPE_CHECKING:
    from pathlib import Path

RUN = "job-20260101-000000-abcd"
SESSION = "user.slice/user-1000.slice/session-2.scope"
DOCKER = "docker/4f1c"
# what /proc/self/cgroup says; {folder: cgroup.subtree_control, None where v1 has no such file} of
# the groups that hold this process; and in which of them a group may be made
PLACES: dict[str, tuple[str, dict[str, str | None], list[str]]] = {
    "a session of systemd": (f"0::/{SESSION}\n", {SESSION: ""}, [SESSION]),
    "a container with its own namespace": ("0::/\n", {"": ""}, [""]),
    "a group that passes controllers on": ("0::/\n", {"": "cpu memory pids\n"}, []),
    "a container that sees the path of its host": (
        f"6:freezer:/{DOCKER}\n",
        {"freezer": None},
        ["freezer"],
    ),
    "v1 and v2 beside each other": (
        f"9:name=systemd:/\n8:pids:/\n6:freezer:/{DOCKER}\n4:memory:/\n1:cpu,cpuacct:/\n0::/\n",
        {"pids": None, f"freezer/{DOCKER}": None, "memory": None, "cpu": None, "unified": ""},
        ["unified", f"freezer/{DOCKER}", "pids"],
    ),
    "v1 without a hierarchy that is free of side effects": (
        "4:memory:/\n3:cpuset:/\n1:cpu,cpuacct:/\n",
        {"memory": None, "cpuset": None, "cpu": None},
        [],
    ),
    "groups of another namespace": ("0::/../other\n", {}, []),
    "a kernel without groups": ("", {}, []),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_group_is_made_where_it_changes_nothing(
    tmp_path: Path, place: tuple[str, dict[str, str | None], list[str]]
) -> None:
    text, folders, expected = place
    own, root = tmp_path / "cgroup", tmp_path / "fs"
    own.write_text(text)
    for name, controls in folders.items():
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
        if controls is not None:
            (folder / "cgroup.subtree_control").write_text(controls)
    groups = list(cgroup.candidates(str(root), str(own)))
    assert groups == [str(root / name).rstrip("/") for name in expected]


def test_where_no_process_can_be_moved_no_group_is_left(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/\n")
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    before = sorted(tmp_path.iterdir())
    assert cgroup.create(RUN, 0, str(tmp_path), str(tmp_path / "own")) == ""
    assert sorted(tmp_path.iterdir()) == before


def test_processes_of_groups_below_belong_to_the_run(tmp_path: Path) -> None:
    group = tmp_path / f"safelaunch-{RUN}-0"
    (group / "of the job").mkdir(parents=True)
    (group / "cgroup.procs").write_text("7\n9\n")
    (group / "of the job" / "cgroup.procs").write_text("8\n")
    assert cgroup.pids(str(group), RUN) == [7, 9, 8]


def test_a_removed_group_had_no_process(tmp_path: Path) -> None:
    group = str(tmp_path / f"safelaunch-{RUN}-0")
    assert cgroup.pids(group, RUN) is None  # nor is there a file system of groups
    (tmp_path / "cgroup.procs").write_text("1\n")
    assert cgroup.pids(group, RUN) == []


@pytest.mark.parametrize("name", ["", "safelaunch-other-0", f"{RUN}-0"])
def test_a_group_of_another_name_is_not_the_runs(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / name / "cgroup.procs").write_text("1\n")
    assert cgroup.pids(str(tmp_path / name), RUN) is None


@pytest.mark.parametrize("name", [f"safelaunch-{RUN}-0", "project"])
def test_a_folder_that_is_no_group_is_never_removed(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "empty").mkdir(parents=True)
    cgroup.remove(str(tmp_path / name))
    assert (tmp_path / name / "empty").exists()


def test_a_process_without_any_mark_is_in_the_group_until_its_end() -> None:
    group = cgroup.create(RUN, os.getpid())
    if not group:
        pytest.skip("no cgroup of its own here")
    try:
        assert cgroup.pids(group, RUN) == []
        enter = f"echo 0 > {group}/cgroup.procs && exec env -i setsid sleep 12345"
        with subprocess.Popen(["bash", "-c", enter]) as process:
            wait_for(lambda: cgroup.pids(group, RUN) == [process.pid], "process in the group")
            cgroup.remove(group)
            assert cgroup.pids(group, RUN) == [process.pid]
            process.kill()
    finally:
        cgroup.remove(group)
    assert not os.path.exists(group)
