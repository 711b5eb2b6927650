"""Where git is asked about a folder, and where a look shows that it knows none."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.code import git

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with a commit and a folder in it."""
    top = tmp_path / "checkout"
    (top / "exp").mkdir(parents=True)
    settings = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], [*settings, "commit", "-q", "--allow-empty", "-m", "1"]):
        subprocess.run(["git", "-C", top, *words], check=True)
    return top


def test_a_folder_in_a_checkout_is_asked_about(checkout: Path) -> None:
    assert git.top(str(checkout / "exp")) == str(checkout)
    assert git.state(str(checkout / "exp")) is not None


def test_a_link_into_a_checkout_is_asked_about(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(checkout / "exp")
    assert git.top(str(tmp_path / "link")) == str(checkout)


def test_a_second_work_tree_has_a_file_in_place_of_the_folder(
    checkout: Path, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    subprocess.run(["git", "-C", checkout, "worktree", "add", "-q", second], check=True)
    assert git.top(str(second)) == str(second)


def test_a_repository_that_a_variable_names_is_asked_about(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(checkout / ".git"))
    assert git.state(str(tmp_path)) is not None


def test_a_repository_without_a_work_tree_is_asked_about(checkout: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run(["git", "clone", "-q", "--bare", checkout, bare], check=True)
    assert git.state(str(bare)) is not None


def test_where_nothing_above_is_a_repository_no_git_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    assert git.state(str(tmp_path)) is None
    assert git.top(str(tmp_path)) is None
    assert not (tmp_path / "started").exists()
