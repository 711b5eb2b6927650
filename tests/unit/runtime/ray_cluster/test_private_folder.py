"""Where Ray's files are: short, private, and removed where a process that was killed left them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.ray_cluster import private_folder
from safelaunch.runtime.ray_cluster.private_folder import RayFolder

if TYPE_CHECKING:
    from pathlib import Path

RUN = {"SAFELAUNCH_RUN_ID": "job-20260101-000000-abcd", "SAFELAUNCH_ATTEMPT": "1"}


def test_each_attempt_has_a_folder_of_its_own_the_same_on_all_nodes() -> None:
    first = private_folder.path_of(RUN)
    again = private_folder.path_of({**RUN, "SAFELAUNCH_ATTEMPT": "2"})
    assert first == private_folder.path_of(dict(RUN)) != again
    assert first.startswith("/tmp/slray-")


def test_a_folder_too_long_for_sockets_is_refused_with_its_length() -> None:
    environ = {**RUN, "RAY_TMPDIR": "/scratch/users/somebody/tmp"}
    with pytest.raises(ValueError, match=r"RAY_TMPDIR is too long: \S+ has 42 bytes, .* allow 37"):
        private_folder.path_of(environ)


def test_a_folder_in_use_stays_and_one_that_was_left_behind_goes(tmp_path: Path) -> None:
    first = RayFolder(str(tmp_path / "slray-1"))
    left = tmp_path / "slray-2"
    left.mkdir(mode=0o700)
    (left / private_folder.LOCK).touch()
    (tmp_path / "slray-3").mkdir()  # without a lock: perhaps it is only just being made
    second = RayFolder(str(tmp_path / "slray-4"))
    assert {path.name for path in tmp_path.iterdir()} == {"slray-1", "slray-3", "slray-4"}
    first.remove()
    second.remove()
    assert {path.name for path in tmp_path.iterdir()} == {"slray-3"}


def test_two_nodes_on_one_machine_share_a_folder(tmp_path: Path) -> None:
    nodes = [RayFolder(str(tmp_path / "slray-1")) for _ in range(2)]
    nodes[0].remove()
    nodes[1].remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "slray-1").mkdir(mode=0o755)
    with pytest.raises(ValueError, match="not for this user alone"):
        RayFolder(str(tmp_path / "slray-1"))
