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


def test_a_flag_changes_how_many_parts_there_are(project: Project) -> None:
    text = HEAD + "args: {in: '{shard.input}'}\nshards: {over: a.txt, by: csv, parts: 100}\n"
    fan_out = project.plan(text, Flags(sets=("shards.parts=5",))).fan_out
    assert fan_out is not None
    assert (fan_out.count, fan_out.over, fan_out.by) == (5, "a.txt", "csv")


def test_a_flag_changes_one_row_of_a_matrix(project: Project) -> None:
    text = HEAD + "args: ['{matrix.lr}', '{matrix.s}']\nmatrix: {lr: [1, 2], s: [3]}\n"
    fan_out = project.plan(text, Flags(sets=("matrix.lr=[1e-5]",))).fan_out
    assert fan_out is not None
    assert fan_out.matrix == {"lr": ("1e-5",), "s": ("3",)}


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


HOSTS = """\
hosts:
  gpu1: {workdir: /data/p}
  gpu2: {}
  slurm: {slurm: {}}
  ray: {ray: {}}
  boxed: {container: {image: a}}
"""


def _on(*hosts: str, engine: str | None = None) -> Flags:
    return Flags(remote=True, hosts_file="hosts.yaml", hosts=hosts, engine=engine)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (Flags(engine="slurm"), "`shards` and --on slurm"),
        (Flags(engine="ray", hosts_file="hosts.yaml"), "`shards` and --on ray"),
        (_on("slurm"), "`shards` and --on slurm"),
        (_on("ray"), "`shards` and --on ray"),
        (_on("boxed"), "`shards` and a container"),
        (_on("gpu1", "gpu2"), "`shards` of a job on several nodes"),
    ],
)
def test_parts_are_refused_elsewhere_than_on_one_machine(
    project: Project, flags: Flags, message: str
) -> None:
    project.write(HOSTS, "hosts.yaml")
    text = HEAD.replace("python", "torchrun") + "processes: 1\nshards: 2\n"
    refusal = project.refused(text, flags)
    assert (refusal.message, refusal.where) == (message, "job.yaml:5:9")
    assert "`safelaunch remote` with one `--host`" in refusal.hint


def test_parts_run_outside_of_the_container_of_a_host_where_the_job_says_so(
    project: Project,
) -> None:
    project.write(HOSTS, "hosts.yaml")
    plan = project.plan(HEAD + "shards: 2\ncontainer: off\n", _on("boxed"))
    assert plan.fan_out is not None
    assert plan.nodes[0].container is None


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ("{over: 'C:\\a.txt', parts: 2}", "`C:\\a.txt` in `shards.over` is a Windows path"),
        ("{over: 'data\\a.txt', parts: 2}", "`data\\a.txt` in `shards.over` has a backslash"),
        ("{over: PROJECT/a.txt, parts: 2}", "PROJECT/a.txt` in `shards.over` is a path of this"),
        ("{over: ../a.txt, parts: 2}", "`../a.txt` in `shards.over` leads out of the project"),
        ("{parts: 2, merge: PROJECT/b.txt}", "PROJECT/b.txt` in `shards.merge` is a path of"),
        ("{parts: 2, merge: {output: PROJECT/b.txt}}", "PROJECT/b.txt` in `shards.merge` is"),
    ],
)
def test_a_file_of_parts_that_a_host_cannot_have_is_refused(
    project: Project, shards: str, message: str
) -> None:
    project.write(HOSTS, "hosts.yaml")
    text = HEAD + "args: {in: '{shard.input}', out: '{shard.output}'}\n"
    root = str(project.folder)
    refusal = project.refused(f"{text}shards: {shards.replace('PROJECT', root)}\n", _on("gpu1"))
    assert message.replace("PROJECT", root) in refusal.message


def test_a_job_on_a_host_may_divide_a_file_that_only_the_host_has(project: Project) -> None:
    project.write(HOSTS, "hosts.yaml")
    text = HEAD + "args: {in: '{shard.input}'}\nshards: {over: /data/a.txt, parts: 2}\n"
    plan = project.plan(text, _on("gpu1"))
    assert plan.fan_out is not None
    assert (plan.fan_out.over, str(plan.nodes[0].cwd)) == ("/data/a.txt", "/data/p")
