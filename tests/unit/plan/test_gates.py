"""Which facts and counts a gate is judged on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.config import profiles
from safelaunch.model import Origin
from safelaunch.plan import gates

if TYPE_CHECKING:
    from pathlib import Path

GATED = """
description: of this test
accelerator: cuda
env:
  NCCL_P2P_DISABLE:
    value: "1"
    why: of this test
    cost: none
    source: https://example.org
    when: {gpus: ">2"}
"""


@pytest.mark.parametrize(
    ("condition", "holds"),
    [("==2.26.5", True), ("<=2.26.5", True), (">2.26.5", False), ("!=2.26.5", False)],
)
def test_a_local_part_of_a_version_does_not_count(condition: str, *, holds: bool) -> None:
    assert gates.holds("2.26.5+cu128", condition, Origin("x")) is holds


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "gated.yaml").write_text(GATED)
    return Project(tmp_path)


def test_gpus_that_are_not_counted_yet_are_no_undeclared_fact(project: Project) -> None:
    profile = profiles.load("./gated.yaml", Origin("x"), str(project.folder))
    declared = gates.DeclaredFacts(gpus=None, nodes=1, facts={})
    chosen = gates.select(profile, declared, ladder=None, workarounds=True)
    assert ([var.name for var in chosen.env], chosen.undeclared) == (["NCCL_P2P_DISABLE"], {})


@pytest.mark.parametrize(("gpus", "applies"), [("[0, 1, 2, 3]", True), ("[0, 1]", False)])
def test_the_listed_gpus_count_before_the_processes(
    project: Project, gpus: str, *, applies: bool
) -> None:
    job = f"launcher: torchrun\nscript: train.py\nprofile: ./gated.yaml\ngpus: {gpus}\n"
    env = project.env(job + f"processes: {2 if applies else 1}\n")
    assert ("NCCL_P2P_DISABLE" in env) is applies
