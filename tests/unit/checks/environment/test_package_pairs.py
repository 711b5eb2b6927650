"""Checks of packages that are known not to go together: each record on its own samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement
from support.facts.check_cases import make_context, project_at, results_of
from support.facts.gpu_machines import Replies, box
from support.facts.interpreters import PATH, python

from safelaunch.checks.environment import versions

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

TORCHRUN = "launcher: torchrun\nscript: train.py\nprocesses: 4\nprofile: cpu\n"
ID = "package-pairs"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def run_checks(project: Project, installed: dict[str, str], job: str = TORCHRUN) -> list[Any]:
    return results_of(
        make_context(project, job, facts=box(python=python(installed)), answers=Replies()), ID
    )


SAMPLES = [
    pytest.param(pair, sample, fires, id=f"{pair['id']}-{'fires' if fires else 'silent'}-{at}")
    for pair in versions.pairs()
    for fires in (True, False)
    for at, sample in enumerate(pair["fires" if fires else "silent"])
]


@pytest.mark.parametrize(("pair", "sample", "fires"), SAMPLES)
def test_a_pair_fires_on_its_samples_alone(
    pair: dict[str, Any], sample: dict[str, Any], fires: bool
) -> None:
    arguments = sample["packages"], str(sample.get("python", "3.12.1")), sample.get("words", "")
    assert versions.matches(pair, *arguments, has_ranks=sample.get("ranks", 1) > 1) is fires


@pytest.mark.parametrize("pair", versions.pairs(), ids=lambda pair: pair["id"])
def test_a_pair_says_all_that_is_needed(pair: dict[str, Any]) -> None:
    expected = {"id", "packages", "what", "fix", "checked", "source", "fires", "silent"}
    assert expected <= pair.keys() <= expected | {"python", "words", "ranks"}
    assert pair["source"].startswith("https://")
    assert pair["fires"]
    assert pair["silent"]


def test_the_ids_of_pairs_differ() -> None:
    ids = [pair["id"] for pair in versions.pairs()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("pair", versions.pairs(), ids=lambda pair: pair["id"])
def test_the_cure_of_a_pair_cures_it(pair: dict[str, Any]) -> None:
    """With any version that the cure allows the pair is silent: here those of all samples."""
    cures = {each.name: each.specifier for each in map(Requirement, pair["fix"])}
    sample = pair["fires"][0]
    covered = [each["packages"] for each in (*pair["fires"], *pair["silent"])]
    for name, specifier in cures.items():
        cured = [s[name] for s in covered if specifier.contains(s[name], prereleases=True)]
        assert cured, name
        for version in cured:
            installed = {**sample["packages"], name: version}
            arguments = str(sample.get("python", "3.12.1")), sample.get("words", "")
            assert not versions.matches(pair, installed, *arguments, has_ranks=True)


def test_a_bad_pair_is_a_warning_with_its_source(project: Project) -> None:
    job = TORCHRUN + "args: {rlhf_type: simpo}\n"
    (result,) = run_checks(project, {"trl": "0.15.2"}, job)
    assert (result.status, result.evidence.startswith("trl 0.15.2: ")) == ("warn", True)
    assert result.hint == f"`{PATH} -m pip install 'trl>=0.17'`"
    assert "issues/3068" in result.source


def test_packages_that_go_together_pass(project: Project) -> None:
    (result,) = run_checks(project, {"trl": "0.17.0", "torch": "2.8.0"})
    assert result.status == "ok"


@pytest.mark.parametrize("version", ["unknown", "", "2.x-dirty", "1" * 400])
def test_a_version_that_is_none_is_no_pair(project: Project, version: str) -> None:
    installed = {"trl": version, "torch": version, "numpy": version}
    (result,) = run_checks(project, installed)
    assert result.status == "ok"


def test_another_programs_packages_are_not_known(project: Project) -> None:
    job = "launcher: command\ncommand: [bash, orpo.sh]\nprofile: cpu\n"
    assert run_checks(project, {"trl": "0.15.2"}, job) == []
