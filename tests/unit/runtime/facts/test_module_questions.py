"""Which modules the job's interpreter finds: asked of one, once for all of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.runtime.facts import commands, questions

if TYPE_CHECKING:
    from pathlib import Path


def answer(names: list[str], folder: Path | str = "/", python: str = sys.executable) -> list[Any]:
    """Return the answers for some modules; the job's own lie in the folder."""
    finder = questions.Finder(python, str(folder), ["."])
    return [find() for find in [finder.add(name) for name in names]]


def shim(folder: Path, line: str) -> str:
    """Return an interpreter that does something first."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\n{line}\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_modules_are_told_apart(tmp_path: Path) -> None:
    answers = answer(["json", "sys", "nothing_of_this_name"], tmp_path)
    assert [reply["found"] for reply in answers] == [True, True, False]


def test_what_is_not_found_lies_nowhere(tmp_path: Path) -> None:
    assert answer(["nothing_of_this_name"], tmp_path)[0]["where"] is None


def test_a_file_of_the_job_comes_first(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("")
    assert answer(["json"], tmp_path)[0]["where"] == f"{tmp_path}/json.py"


def test_a_path_of_any_characters_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb \u00e4"
    folder.mkdir()
    (folder / "mine.py").write_text("")
    assert answer(["mine"], folder)[0]["where"] == f"{folder}/mine.py"


def test_a_folder_without_init_is_a_namespace(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert answer(["mine"], tmp_path)[0]["where"] == "a namespace"


def test_the_folder_that_it_is_asked_in_is_no_place_for_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("importlib", "warnings", "mine"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    assert answer(["mine"])[0]["found"] is False


def test_what_an_interpreter_prints_beside_is_no_answer(tmp_path: Path) -> None:
    answers = answer(["json"], tmp_path, shim(tmp_path, "echo welcome"))
    assert answers[0]["found"] is True


def test_an_interpreter_that_does_not_answer_says_why(tmp_path: Path) -> None:
    with pytest.raises(commands.Skip, match="no licence"):
        answer(["json"], tmp_path, shim(tmp_path, "echo no licence; exit 1"))


def test_an_interpreter_that_ends_without_a_word_says_its_exit_code(tmp_path: Path) -> None:
    with pytest.raises(commands.Skip, match="exit code 7"):
        answer(["json"], tmp_path, shim(tmp_path, "exit 7"))
