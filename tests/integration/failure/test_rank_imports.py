"""Which files of the project a rank has imported, as it writes them down itself."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from support.python_versions import interpreter
from support.rank_process import Rank

from safelaunch.runtime.start import code_files

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import os, json, lib.deep.inner, venv_like, helper
try:
    import gone
except ImportError:
    pass
assert [type(f).__name__ for f in __import__('sys').meta_path].count('_ImportRecorder') == 1
if os.fork() == 0:
    import unused
    os._exit(0)
os.wait()
"""
FILES = ("lib/deep/__init__.py", "lib/deep/inner.py", "helper.py", "unused.py", "extra/late.py",
         "site-packages/venv_like.py", "conf.yaml")  # fmt: skip


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    rank = Rank(tmp_path)
    paths = (tmp_path / "site-packages", tmp_path / "extra")
    rank.env["PYTHONPATH"] += "".join(f":{path}" for path in paths)
    rank.env["LOCAL_RANK"] = "0"
    return rank


def imported(rank: Rank) -> list[str] | None:
    return code_files.imported(str(rank.node), ["train.py", *FILES], str(rank.root))


@pytest.mark.parametrize("version", ["3.6", "3.8", "3.13"])
def test_the_files_of_the_project_that_a_killed_rank_imported_are_recorded(
    rank: Rank, version: str
) -> None:
    program = PROGRAM + "import late\nos.kill(os.getpid(), 9)\n"
    code, output = rank.run(program, python=interpreter(version))
    assert (code, output) == (-signal.SIGKILL, "")
    assert imported(rank) == ["train.py", *FILES[:3], "extra/late.py"]


def test_a_program_without_imports_is_its_own_file_and_other_ranks_write_nothing(
    rank: Rank,
) -> None:
    rank.env["LOCAL_RANK"] = "1"
    assert rank.run("pass") == (0, "")
    assert imported(rank) is None
    rank.env["LOCAL_RANK"] = "0"
    rank.env["RANK"] = "0"
    assert rank.run("pass") == (0, "")
    assert imported(rank) == ["train.py"]
