"""The examples of docs/extending.md: each diff applies, its commands print what is shown."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

SECTIONS = re.split(
    r"^## ", (REPOSITORY / "docs" / "extending.md").read_text(encoding="utf-8"), flags=re.MULTILINE
)[1:]
EXAMPLES = {text.splitlines()[0]: text for text in SECTIONS if "```diff" in text}
COPIED = ("safelaunch", "profiles", "docs", "tests", "pyproject.toml")
SIGNATURES = (REPOSITORY / "scripts" / "signatures").read_text(encoding="utf-8")
PROGRAMS = {
    "safelaunch": ("-m", "safelaunch"),
    "scripts/signatures": (
        "-c",
        re.findall(r"<<'PY'\n(.*)^PY$", SIGNATURES, re.DOTALL | re.MULTILINE)[0],
    ),
    "scripts/test": ("-m", "pytest", "-q", "-p", "no:cacheprovider"),
}
FILES = {
    "pyproject.toml": "",
    "train.py": "",
    "ds.json": '{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2}',
    "train.log": "Traceback (most recent call last):\nException: Run with UUID 1 is already active",
    "requirements.txt": "torch==2.4.0\nTorch == 2.5.1  # for trl\n",
}


def blocks(example: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", EXAMPLES[example], re.DOTALL)


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the repository with all examples in it."""
    copy = tmp_path_factory.mktemp("extended")
    for name in COPIED:
        if (REPOSITORY / name).is_dir():
            # with the bytecode: compiling takes longer than all examples
            ignored = shutil.ignore_patterns(".*_cache")
            shutil.copytree(REPOSITORY / name, copy / name, ignore=ignored)
        else:
            shutil.copy(REPOSITORY / name, copy / name)
    for example in EXAMPLES:
        for diff in blocks(example, "diff"):
            applied = subprocess.run(
                ("git", "apply", "-"),
                cwd=copy, input=diff, text=True, capture_output=True, check=False,
            )  # fmt: skip
            assert applied.returncode == 0, f"{example}: {applied.stderr}"
    return copy


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_does_what_the_document_shows(
    example: str, extended: Path, project: Path
) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "CI"))}
    environ |= {"PYTHONPATH": str(extended), "SAFELAUNCH_HOME": f"{project}/.safelaunch"}
    # pytest's own: where other suites have their files it clears theirs away
    environ["PYTEST_DEBUG_TEMPROOT"] = str(project)
    steps = [step for block in blocks(example, "console") for step in block.split("$ ")[1:]]
    assert steps
    for line, *parts in map(str.splitlines, steps):
        name, *words = shlex.split(line)
        done = subprocess.run(
            (sys.executable, *PROGRAMS[name], *words),
            cwd=project if name == "safelaunch" else extended,
            env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        printed = " ".join(f"{done.stdout} {done.stderr}".split())
        assert [part for part in parts if " ".join(part.split()) not in printed] == [], printed
        assert name == "safelaunch" or done.returncode == 0, printed
