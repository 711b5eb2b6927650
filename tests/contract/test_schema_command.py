from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.cli_process import safelaunch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["job", "profile", "hosts"])
def test_a_schema_is_printed(name: str, tmp_path: Path) -> None:
    result = safelaunch(tmp_path, "schema", name)
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out)["title"] == f"safelaunch {name} file"


@pytest.mark.parametrize(
    ("word", "hint"), [("jobs", "did you mean `job`?"), ("yaml", "job, profile or hosts")]
)
def test_another_word_is_refused_with_those_that_there_are(
    word: str, hint: str, tmp_path: Path
) -> None:
    result = safelaunch(tmp_path, "schema", word)
    assert (result.code, result.out) == (2, "")
    assert hint in result.err
    assert f"`{word}`" in result.err


def test_no_word_is_refused(tmp_path: Path) -> None:
    assert safelaunch(tmp_path, "schema").code == 2
