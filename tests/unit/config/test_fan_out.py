"""Parts of a job file: how many there are, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.config.resolve import Flags
from safelaunch.engines.slurm.directives import directives
from safelaunch.engines.submission import PLACEHOLDERS
from safelaunch.errors import ConfigError
from safelaunch.plan.serialize import freeze, thaw
from safelaunch.runtime.parts import expand
from safelaunch.start.fan_out import spec_of

if TYPE_CHECKING:
    from pathlib import Path

RANKS = "launcher: torchrun\nscript: train.py\n"
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
        (Flags(engine="ray", hosts_file="hosts.yaml"), "`shards` and --on ray"),
        (_on("ray"), "`shards` and --on ray"),
        (_on("boxed"), "`shards` and a container"),
    ],
)
def test_parts_are_refused_in_containers_on_ray_and_on_several_machines(
    project: Project, flags: Flags, message: str
) -> None:
    project.write(HOSTS, "hosts.yaml")
    text = HEAD.replace("python", "torchrun") + "processes: 1\nshards: 2\n"
    refusal = project.refused(text, flags)
    assert (refusal.message, refusal.where) == (message, "job.yaml:5:9")
    assert "`safelaunch remote` with the hosts that share the parts" in refusal.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shards: 1\n", "2 hosts for 1 part"),
        ("shards: 2\non_end: a\n", "of parts on several hosts"),
        ("shards: 2\nshutdown: {command: a}\n", "of parts on several hosts"),
        (
            "shards: {parts: 2, merge: {output: a, command: [b]}}\nargs: ['{shard.output}']\n",
            "`merge: command` of parts on several hosts",
        ),
    ],
)
def test_what_parts_on_several_hosts_do_not_have_is_refused(
    project: Project, text: str, message: str
) -> None:
    project.write(HOSTS, "hosts.yaml")
    assert message in project.refused(HEAD + text, _on("gpu1", "gpu2")).message


def test_each_of_several_hosts_has_its_turn_of_the_parts_and_all_cards(project: Project) -> None:
    project.write(HOSTS, "hosts.yaml")
    text = HEAD + "matrix: {a: [1, 2, 3], b: [x]}\nargs: ['{matrix.a}', '{matrix.b}']\ngpus: 2\n"
    plan = project.plan(text, _on("gpu1", "gpu2"))
    assert plan.fan_out is not None
    specs = [spec_of(plan.fan_out, "/job", host, len(plan.nodes)) for host in (0, 1)]
    assert [(spec.hosts, spec.share, spec.at_once) for spec in specs] == [
        (2, [0, 2], 2),
        (2, [1], 2),
    ]
    assert [node.host for node in plan.nodes] == ["gpu1", "gpu2"]
    assert thaw(freeze(plan)) == plan


@pytest.mark.parametrize(
    ("head", "text", "lanes"),
    [
        (HEAD, "gpus: [0, 1, 2, 3]\npart_gpus: 2\n", ["0,1", "2,3"]),
        (HEAD, "gpus: [0, 1, 2, 3]\npart_gpus: 3\n", ["0,1,2"]),
        (RANKS, "gpus: [4, 5, 6, 7]\nprocesses: 2\n", ["4,5", "6,7"]),
        (RANKS, "gpus: [4, 5, 6, 7]\npart_gpus: 2\n", ["4,5", "6,7"]),
        (RANKS, "gpus: [4, 5]\nprocesses: 1\n", ["4", "5"]),
        (HEAD, "gpus: [4, 5, 6, 7]\npart_gpus: 2\nat_once: 1\n", ["4,5"]),
    ],
)
def test_a_part_has_several_cards(project: Project, head: str, text: str, lanes: list[str]) -> None:
    fan_out = project.plan(head + "shards: 8\n" + text).fan_out
    assert fan_out is not None
    assert expand.lanes(spec_of(fan_out, "/job"), 1) == lanes


@pytest.mark.parametrize(
    ("head", "text", "message"),
    [
        (HEAD, "part_gpus: 2\n", "`part_gpus` without `gpus`"),
        (HEAD, "gpus: [0, 1]\npart_gpus: 3\n", "`part_gpus: 3` of 2 cards"),
        (RANKS, "gpus: [0, 1]\n", "parts of 2 processes each, with one card"),
        (
            RANKS,
            "gpus: [0, 1, 2]\nprocesses: 3\npart_gpus: 2\n",
            "parts of 3 processes each, with 2",
        ),
    ],
)
def test_cards_that_a_part_cannot_have_are_refused(
    project: Project, head: str, text: str, message: str
) -> None:
    assert message in project.refused(head + "shards: 8\n" + text).message


@pytest.mark.parametrize("flags", [Flags(engine="slurm"), _on("slurm")])
def test_parts_on_slurm_are_tasks_of_an_array_with_the_gpus_of_each(
    project: Project, flags: Flags
) -> None:
    project.write(HOSTS, "hosts.yaml")
    plan = project.plan(HEAD + "shards: 20\nat_once: 4\ngpus: 2\n", flags)
    words = [directive.words for directive in directives(plan, PLACEHOLDERS)]
    assert {("--array=0-19%4",), ("--gpus-per-node=2",)} <= set(words)


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
