from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.analysis.python.libraries import LibraryPaths, library_file
from safelaunch.analysis.python.site_packages import site_folders

if TYPE_CHECKING:
    from pathlib import Path


def venv(folder: Path, config: str = "home = /nowhere/bin\n", version: str = "python3.12") -> Path:
    site = folder / "lib" / version / "site-packages"
    site.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(config)
    return site


def folders(python: Path, **environ: str) -> list[str]:
    return list(site_folders(str(python), environ))


def test_a_virtual_environment_has_one_folder(tmp_path: Path) -> None:
    site = venv(tmp_path)
    assert folders(tmp_path / "bin" / "python") == [str(site)]


def test_a_link_to_an_interpreter_stays_in_its_virtual_environment(tmp_path: Path) -> None:
    site = venv(tmp_path / "env")
    (tmp_path / "python3.12").write_text("")
    (tmp_path / "env" / "bin").mkdir()
    (tmp_path / "env" / "bin" / "python").symlink_to(tmp_path / "python3.12")
    assert folders(tmp_path / "env" / "bin" / "python") == [str(site)]


def test_system_packages_follow_where_the_environment_includes_them(tmp_path: Path) -> None:
    base = venv(tmp_path / "base")
    (tmp_path / "base" / "pyvenv.cfg").unlink()
    config = f"home = {tmp_path}/base/bin\ninclude-system-site-packages = true\n"
    site = venv(tmp_path / "env", config)
    assert folders(tmp_path / "env" / "bin" / "python") == [str(site), str(base)]


def test_the_users_own_packages_come_before_those_of_an_installation(tmp_path: Path) -> None:
    site = venv(tmp_path / "conda")
    (tmp_path / "conda" / "pyvenv.cfg").unlink()
    own = venv(tmp_path / "home" / ".local")
    python = tmp_path / "conda" / "bin" / "python3.12"
    assert folders(python, HOME=str(tmp_path / "home")) == [str(own), str(site)]
    assert folders(python, HOME=str(tmp_path / "home"), PYTHONNOUSERSITE="1") == [str(site)]


def test_a_shim_has_no_folders(tmp_path: Path) -> None:
    (tmp_path / "shims").mkdir()
    (tmp_path / "shims" / "python3").write_text("#!/bin/sh\n")
    assert folders(tmp_path / "shims" / "python3", HOME=str(tmp_path)) == []


def test_two_versions_in_one_prefix_are_not_told_apart(tmp_path: Path) -> None:
    venv(tmp_path)
    venv(tmp_path, version="python3.11")
    assert folders(tmp_path / "bin" / "python") == []


def test_folders_of_pth_files_are_searched(tmp_path: Path) -> None:
    site = venv(tmp_path / "env")
    source = tmp_path / "src"
    source.mkdir()
    lines = f"import os; os.environ\n# {tmp_path}\n{source}\n/not/there\n"
    (site / "__editable__.pkg-1.0.pth").write_text(lines)
    assert folders(tmp_path / "env" / "bin" / "python") == [str(site), str(source)]


def test_an_editable_installation_with_a_finder_is_searched(tmp_path: Path) -> None:
    site = venv(tmp_path / "env")
    package = tmp_path / "src" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    finder = (
        f"import sys\nMAPPING: dict[str, str] = {{'pkg': {str(package)!r}}}\nNAMESPACES = {{}}\n"
    )
    (site / "__editable___pkg_1_0_finder.py").write_text(finder)
    paths = LibraryPaths(site_folders(str(tmp_path / "env" / "bin" / "python"), {}))
    assert library_file("pkg", paths) == str(package / "__init__.py")


@pytest.mark.parametrize("text", ["\0\n", "a\0b\n", "\xff\n", "", "../../../..\n"])
def test_damaged_pth_files_do_no_harm(tmp_path: Path, text: str) -> None:
    site = venv(tmp_path / "env")
    (site / "x.pth").write_text(text, encoding="latin-1")
    assert folders(tmp_path / "env" / "bin" / "python")[0] == str(site)


def test_what_the_interpreter_answered_comes_first(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "pkg").mkdir(parents=True)
        (tmp_path / name / "pkg" / "__init__.py").write_text("")
    paths = LibraryPaths((str(tmp_path / "a"),), {"pkg": str(tmp_path / "b")})
    assert library_file("pkg", paths) == str(tmp_path / "b" / "pkg" / "__init__.py")
