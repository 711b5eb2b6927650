"""A direct start gives each rank what the real launcher gives it, or leaves the start to it."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import pytest
from support.direct_start import matrix, observed_ranks, starts
from support.direct_start.matrix import HOSTILE
from support.project import Project

from safelaunch.launchers import direct
from safelaunch.launchers.accelerate import direct as accelerate_direct

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from support.direct_start.matrix import Comparison
    from support.direct_start.rank_starts import Job

pytestmark = pytest.mark.train
SUBSETS = 3  # random combinations of flags; `scripts/bench direct` has more


def installed() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("torch", "accelerate")}


def compared(jobs: Iterable[Job], root: Path, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    project, runs = Project(root / "project"), root / "runs"
    runs.mkdir()
    monkeypatch.chdir(project.folder)
    cases = matrix.cases(jobs, project, str(runs))
    return matrix.compare(cases, installed(), matrix.ask_here, os.getcwd(), sys.executable)


@pytest.mark.parametrize("what", starts.SUITE)
def test_ranks_find_the_same_in_a_start(what: str, tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    observed_ranks.write_program(project.folder)
    place = tmp_path / "place"
    assert observed_ranks.differences(starts.SUITE[what], project, place, installed()) == []


def test_flags_of_torchrun_mean_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = compared(matrix.torchrun_jobs(SUBSETS), tmp_path, monkeypatch)
    assert comparison.wrong == []
    assert comparison.flags >= direct.RENDEZVOUS_FLAGS | direct.IGNORED_FLAGS | {"no_python"}
    assert {job.args for job in comparison.same} >= {HOSTILE}


def test_flags_of_accelerate_mean_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = compared(matrix.accelerate_jobs(SUBSETS), tmp_path, monkeypatch)
    assert comparison.wrong == []
    assert comparison.flags >= accelerate_direct.FLAGS | {"debug", "quiet", "no_python"}
    assert {job.args for job in comparison.same} >= {HOSTILE}
