"""Parts of a job file: how many there are, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.config.resolve import Flags
from safelaunch.errors import ConfigError
from safelaunch.plan.serialize import freeze, thaw

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "launcher: python\nscript: train.py\nprofile: cpu\n"
SERVICES = "services: {a: {launcher: command, command: [a]}}\n"
THOUSAND = "[" + ", ".join(map(str, range(1000))) + "]"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_recorded_plan_has_its_parts(project: Project) -> None:
    plan = project.plan(HEAD + "args: {lr: '{matrix.lr}'}\nmatrix: {lr: [1e-5, 2e-5]}\n")
    assert plan.fan_out is not None
    assert plan.fan_out.matrix == {"lr": ("1e-5", "2e-5")}
    assert thaw(freeze(plan)) == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shards: 2\nmatrix: {a: [1]}\n", "`shards` and `matrix` in one job"),
        ("at_once: 2\n", "`at_once` without"),
        (f"matrix: {{a: {THOUSAND}, b: {THOUSAND}}}\n", "1,000,000"),
        ("matrix: {a: [x y]}\n", "is no plain word"),
        ("shards: 2\nargs: {i: '{shard.inputs}'}\n", "no `{shard.inputs}` here"),
        ("shards: 2\nargs: {i: '{shard.input}'}\n", "no `{shard.input}` here"),
        ("shards: 2\n" + SERVICES, "`shards` and `services` in one job"),
        ("matrix: {a: [1], b: [1]}\nargs: {x: '{matrix.a}'}\n", "no word uses `b` of `matrix`"),
        ("shards: {over: d.csv, parts: 2}\n", "no word uses `{shard.input}`"),
        ("shards: {parts: 2, merge: {output: x}}\n", "no word uses `{shard.output}`"),
        ("shards: 2\nsetup: ['{shard.index}']\n", "in `setup` is not replaced"),
        ("shards: {over: data.txt}\n", "without `parts`"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    project: Project, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        project.plan(HEAD + text)
    assert message in caught.value.message
    assert caught.value.where


@pytest.mark.parametrize(
    ("merge", "by"),
    [("a.csv", "csv"), ("{output: a.json}", "json"), ("a.txt", "lines"),
     ("{output: a.csv, by: lines}", "lines")],
)  # fmt: skip
def test_outputs_are_joined_as_the_name_of_the_file_ends(
    project: Project, merge: str, by: str
) -> None:
    text = f"args: {{o: '{{shard.output}}'}}\nshards: {{parts: 2, merge: {merge}}}\n"
    fan_out = project.plan(HEAD + text).fan_out
    assert fan_out is not None
    assert fan_out.merge is not None
    assert fan_out.merge.by == by


@pytest.mark.parametrize("flags", [Flags(engine="slurm"), Flags(remote=True, hosts=("gpu1",))])
def test_parts_elsewhere_are_refused(project: Project, flags: Flags) -> None:
    with pytest.raises(ConfigError, match=r"`shards` (and --on slurm|of a job on a host)"):
        project.plan(HEAD + "shards: 2\n", flags)
