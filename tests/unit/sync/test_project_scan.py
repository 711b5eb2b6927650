"""A project is read in a thread, and what goes wrong there is raised where its result is used."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from safelaunch.errors import ConfigError
from safelaunch.sync.ignore import Rules
from safelaunch.sync.manifest import manifest_hash
from safelaunch.sync.project_scan import ProjectScan
from safelaunch.sync.project_tree import scan

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def test_a_scan_returns_the_files_and_their_digest(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    scan = ProjectScan(Rules(str(tmp_path)), None)
    assert scan.is_done(math.inf)
    result = scan.result()
    assert list(result.tree.items) == ["train.py"]
    assert result.digest == manifest_hash(result.tree.items.values())


def test_many_new_bytes_are_not_read_before_they_are_sent(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(2 << 20))
    result = ProjectScan(Rules(str(tmp_path)), None).result()
    assert (result.digest, result.tree.items["weights.bin"].hash) == ("", "")


def test_a_file_that_cannot_be_read_leaves_the_digest_open(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    rules = Rules(str(tmp_path))
    real_decide = rules.decide

    def decide(path: str, *, is_folder: bool) -> object:
        if path == "train.py":  # it goes between the walk and the reading
            (tmp_path / "gone.py").unlink()
        return real_decide(path, is_folder=is_folder)

    (tmp_path / "gone.py").write_text("print(2)\n")
    rules.decide = decide  # type: ignore[assignment, method-assign]
    result = ProjectScan(rules, None).result()
    assert (result.digest, "train.py" in result.tree.items) == ("", True)


def test_a_project_that_cannot_be_read_is_an_error_of_the_result(tmp_path: Path) -> None:
    scan = ProjectScan(Rules(str(tmp_path / "missing")), None)
    assert scan.is_done(math.inf)
    with pytest.raises(ConfigError, match="cannot be read"):
        scan.result()


def test_scans_at_once_have_their_own_place_in_the_rules(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "ignored.log"):
        (tmp_path / "part").mkdir(exist_ok=True)
        (tmp_path / "part" / name).write_text("")
    (tmp_path / "part" / ".gitignore").write_text("*.log\n")
    inner: list[list[str]] = []

    class Crossed(Rules):
        """Rules with which another scan begins and ends in the middle of the first one."""

        def enter(self, folder: str, names: Iterable[str]) -> None:
            super().enter(folder, names)
            if folder and not inner:
                inner.append([])
                inner[0] += scan(rules).items

    rules = Crossed(str(tmp_path))
    expected = ["part", "part/.gitignore", "part/a.py", "part/b.py"]
    assert (list(scan(rules).items), inner) == (expected, [expected])
