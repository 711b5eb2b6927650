"""What installed distributions require, read from the text of their metadata."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.runtime.facts.site_packages import distributions

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is all of the interpreter's path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


def install(site: Path, name: str, *requires: str, files: dict[str, str] | None = None) -> None:
    """Write the metadata of a distribution, as pip leaves it."""
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    text = "\n".join([*lines, "", "Requires-Dist: of-the-description", ""])
    for file, body in {"METADATA": text, **(files or {})}.items():
        (folder / file).write_text(body, encoding="utf-8")


def ask(*modules: str) -> Any:
    return distributions.requirements("/", *modules)


def test_requirements_are_followed_from_one_distribution_to_the_next(site: Path) -> None:
    install(site, "trl", "accelerate>=1", 'Rich_Text; extra == "x"')
    install(site, "accelerate", "numpy>=1")
    install(site, "numpy")
    install(site, "rich.text")
    install(site, "stranger", "numpy<1")
    assert ask("trl") == {
        "roots": {"trl": "trl"},
        "requires": {
            "trl": ["accelerate>=1", 'Rich_Text; extra == "x"'],
            "accelerate": ["numpy>=1"],
            "rich-text": [],
            "numpy": [],
        },
        "modules": [],
    }


def test_a_circle_of_requirements_ends(site: Path) -> None:
    install(site, "a", "b")
    install(site, "b", "a")
    assert list(ask("a")["requires"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("files", "module"),
    [
        ({"top_level.txt": "fitz\n"}, "fitz"),
        ({"RECORD": "fitz/__init__.py,sha256=x,1\nPyMuPDF-1.0.dist-info/RECORD,,\n"}, "fitz"),
        ({"RECORD": "fitz.py,,\n"}, "fitz"),
        ({"RECORD": "fitz.cpython-311-x86_64-linux-gnu.so,,\n"}, "fitz"),
    ],
)
def test_a_module_of_another_name_leads_to_its_distribution(
    site: Path, files: dict[str, str], module: str
) -> None:
    install(site, "PyMuPDF", "numpy", files=files)
    assert ask(module)["roots"] == {"fitz": "pymupdf"}


def test_a_module_that_no_distribution_has_is_left_out(site: Path) -> None:
    install(site, "trl")
    assert ask("nothing", "trl")["roots"] == {"trl": "trl"}


def test_a_module_that_is_there_without_a_distribution_is_said(site: Path) -> None:
    install(site, "trl", "opencv-python>=4", "numpy", "gone")
    (site / "cv2").mkdir()
    (site / "cv2" / "__init__.py").touch()
    (site / "numpy.py").touch()
    assert ask("trl")["modules"] == ["numpy", "opencv-python"]


def test_a_folded_line_and_windows_line_ends_are_read(site: Path) -> None:
    text = "Name: trl\r\nRequires-Dist: a>=1;\r\n  python_version > '3'\r\n\r\nRequires-Dist: b\r\n"
    install(site, "trl")
    (site / "trl-1.0.dist-info" / "METADATA").write_bytes(text.encode())
    assert ask("trl")["requires"]["trl"] == ["a>=1; python_version > '3'"]


def test_an_egg_says_what_it_requires_too(site: Path) -> None:
    folder = site / "old-2.0.egg-info"
    folder.mkdir()
    (folder / "PKG-INFO").write_text("Name: old\nRequires-Dist: a\n\n")
    (site / "older-2.0-py3.9.egg-info").write_text("Name: older\nRequires-Dist: b\n")
    assert ask("old", "older")["requires"] == {"old": ["a"], "older": ["b"]}


@pytest.mark.parametrize("body", ["", "\x00\xff", "Requires-Dist", "\n\nRequires-Dist: x\n"])
def test_metadata_that_says_nothing_is_no_error(site: Path, body: str) -> None:
    install(site, "trl", files={"METADATA": body})
    assert ask("trl")["requires"] == {"trl": []}
