"""The check of numbers: which files and classes it knows of, and how it names what to change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.facts.check_cases import make_context, project_at, result_of

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

SCRIPT = """
from trl import {0}, TrlParser
training, = TrlParser(({0},)).parse_args_and_config()
"""
JOB = "launcher: torchrun\nscript: train.py\nprocesses: 3\nargs: {per_device_train_batch_size: 1}\n"
GROUPS = JOB.replace("1}", "1, num_generations: 4, gradient_accumulation_steps: 1}")
DEEPSPEED = """
launcher: accelerate
script: train.py
processes: 4
launcher_args: {use_deepspeed: true, deepspeed_config_file: ds.json}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def status(project: Project, name: str, job: str) -> str:
    project.write(SCRIPT.format(name), "train.py")
    return result_of(make_context(project, job), "numbers").status


@pytest.mark.parametrize("name", ["SFTConfig", "DPOConfig"])
def test_a_script_of_another_method_is_not_judged_as_grpo(name: str, project: Project) -> None:
    assert status(project, name, GROUPS) == "ok"


@pytest.mark.parametrize("name", ["GRPOConfig", "RLOOConfig"])
def test_a_script_is_judged_by_the_configuration_that_it_reads(name: str, project: Project) -> None:
    assert status(project, name, GROUPS) == "warn"
    assert status(project, name, JOB) == "warn"  # by the defaults


def test_a_script_that_is_not_here_is_judged_by_its_options(project: Project) -> None:
    job = GROUPS.replace("script: train.py", "module: nobody.knows")
    assert result_of(make_context(project, job), "numbers").status == "warn"


def test_a_deepspeed_file_is_named_once(project: Project) -> None:
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    project.write(json.dumps(dict(zip(keys, (30, 4, 2), strict=True))), "ds.json")
    hint = result_of(make_context(project, DEEPSPEED), "numbers").hint
    assert hint.startswith("set `train_batch_size` of ds.json to 32")
    assert hint.count("ds.json") == 1
