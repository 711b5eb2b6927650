"""Paths that match a glob: as the standard library finds them, but within a time."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.facts import commands
from safelaunch.runtime.facts import glob as facts_glob

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a/x.json", "a/b/x.json", "a/.h/x.json", "1.csv", "2.csv", "c[1]", ".hidden"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.json").touch()
    (tmp_path / "tree" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "tree" / "dangling").symlink_to("gone")
    return tmp_path / "tree"


@pytest.mark.parametrize("pattern", [
    "*", "*.csv", "?.csv", "[12].csv", "[!1].csv", "a/*", "a/**", "**", "**/x.json", "**/*.json",
    "*/x.json", "**/b/*", "**/**/x.json", "c[[]1]", ".*", "**/.h/*", "linked/*", "dang*", "no/*",
    "**/none", "a/*/x.json", "[", "a*/*.json",
])  # fmt: skip
def test_it_finds_what_the_standard_library_finds(tree: Path, pattern: str) -> None:
    expected = {path.rstrip("/") for path in glob.glob(f"{tree}/{pattern}", recursive=True)}
    assert facts_glob.paths(f"{tree}/{pattern}") == sorted(expected)


def test_links_that_lead_back_are_followed_once(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).symlink_to(".")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "up").symlink_to("..")
    (tmp_path / "d" / "x.json").touch()
    assert facts_glob.paths(f"{tmp_path}/**/x.json") == [f"{tmp_path}/d/x.json"]


def test_a_pattern_that_takes_too_long_is_given_up(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_glob, "_MAX_SECONDS", -1.0)
    with pytest.raises(commands.Skip, match="took longer"):
        facts_glob.paths(f"{tree}/**/x.json")


def test_the_root_is_itself() -> None:
    assert facts_glob.paths("/") == ["/"]
