"""`needs:` and `inputs:` of a job file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import PYTHON, Project

from safelaunch.config.resolve import Flags
from safelaunch.model import Needs

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_job_needs_nothing_unless_it_says_so(project: Project) -> None:
    job = project.resolve(PYTHON).job
    assert (job.needs, job.inputs) == (Needs(), ())


def test_needs_are_sizes_in_bytes(project: Project) -> None:
    text = PYTHON + "needs: {gpu_memory: 24GiB, ram: 1.5TiB, disk: 512MiB, shm: null}\n"
    assert project.resolve(text).job.needs == Needs(24 * GIB, 1536 * GIB, GIB // 2, None)


def test_needs_are_laid_over_those_below_key_by_key(project: Project) -> None:
    project.write(PYTHON + "needs: {ram: 64GiB, disk: 1GiB}\n", "base.yaml")
    text = "extends: base.yaml\nneeds: {disk: null, shm: 8GiB}\n"
    assert project.resolve(text).job.needs == Needs(ram=64 * GIB, shm=8 * GIB)
    flags = Flags(sets=("needs={ram: 32GiB}",))
    assert project.resolve(text, flags).job.needs.ram == 32 * GIB


@pytest.mark.parametrize("written", ["data/*.csv", "[data/*.csv]"])
def test_one_input_may_stand_alone(written: str, project: Project) -> None:
    (item,) = project.resolve(PYTHON + f"inputs: {written}\n").job.inputs
    assert item.path == "data/*.csv"
    assert (item.origin.line, item.origin.column) == (3, 9 + written.startswith("["))


def test_inputs_keep_their_order(project: Project) -> None:
    text = PYTHON + "inputs: [b.json, /data/a.csv, models/*]\n"
    assert [item.path for item in project.resolve(text).job.inputs] == [
        "b.json", "/data/a.csv", "models/*",
    ]  # fmt: skip


BAD = {
    "needs: 24GiB": ("3:8", "a mapping such as {gpu_memory: 24GiB", ""),
    "needs: {gpu_memory: 24}": ("3:21", "expected a size", "`24GiB`"),
    "needs: {gpu_memory: 24GB}": ("3:21", "expected a size", "`24GiB`"),
    "needs: {memory: 24GiB}": ("3:9", "unknown key `memory`", "`gpu_memory`"),
    "needs: {ram: 0MiB}": ("3:14", "expected a size of at least 1MiB", ""),
    "inputs: {a: b}": ("3:9", "expected a list of paths or globs", ""),
    "inputs: [a, '']": ("3:13", "expected a glob", ""),
    "inputs: [~/data]": ("3:10", "`~` is never expanded", ""),
    "inputs: ['C:\\data']": ("3:10", "is a Windows path", ""),
    "inputs: [[a]]": ("3:10", "", ""),
}


@pytest.mark.parametrize("text", BAD)
def test_a_mistake_is_told_with_its_place(text: str, project: Project) -> None:
    where, message, hint = BAD[text]
    refusal = project.refused(PYTHON + text + "\n")
    assert refusal.where == f"job.yaml:{where}"
    assert message in refusal.message
    assert hint in refusal.hint
