from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.facts.check_cases import project_at, result_of, results_of
from support.facts.machine_cases import local_context

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

JOB = "launcher: torchrun\nscript: train.py\nprocesses: 2\nargs: [{}]\n"
SCRIPT = """
import hydra
@hydra.main(config_path="conf", config_name="train", version_base=None)
def main(cfg): ...
main()
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = project_at(tmp_path)
    project.write(SCRIPT, "train.py")
    project.write("defaults: [{model: small}]\ntrainer: {gpus: 1}\n", "conf/train.yaml")
    project.write("layers: 1\n", "conf/model/small.yaml")
    return project


def test_key_that_the_configuration_lacks_is_a_warning_at_its_file(project: Project) -> None:
    result = result_of(local_context(project, JOB.format("trainer.gpu=8")), "flags")
    assert result.status == "warn"
    assert result.evidence == (
        "`trainer.gpu=8`: the configuration has no key `trainer.gpu` (conf/train.yaml:1)"
    )
    assert result.hint.startswith("did you mean `trainer.gpus`?")


def test_overrides_that_cannot_be_judged_are_skipped_with_the_reason(project: Project) -> None:
    job = JOB.format("'model=${oc.env:MODEL}', nothing.like=1")
    (result,) = results_of(local_context(project, job), "flags")
    assert result.status == "skip"
    assert "the option of `model=${oc.env:MODEL}` is computed" in result.evidence


def test_overrides_that_cannot_be_judged_are_silent_before_a_start(project: Project) -> None:
    job = JOB.format("'model=${oc.env:MODEL}', nothing.like=1")
    assert results_of(local_context(project, job, is_quick=True), "flags") == []


def test_option_of_a_group_is_no_path_of_the_working_folder(project: Project) -> None:
    job = JOB.format("model=small.yaml, file=conf/none.yaml")
    (result,) = results_of(local_context(project, job), "configs")
    assert result.evidence == "`args` names conf/none.yaml, which does not exist"
