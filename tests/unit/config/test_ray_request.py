"""What a job asks of a Ray, which chooses its machines: from its keys, its block and its host's."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from support.project import Project

from safelaunch.checks import cluster
from safelaunch.config.resolve import Flags
from safelaunch.engines.ray.job import bundle, driver_line, submission
from safelaunch.engines.submission import Submission
from safelaunch.model import Ray

if TYPE_CHECKING:
    from pathlib import Path

RAY = Flags(engine="ray")
BARE = "launcher: torchrun\nscript: train.py\n"
HOSTS = """
hosts:
  localhost: {ray: {address: "http://a:1", cpus: 8, gpus_per_node: 4, resources: {x: 1}}}
  head: {workdir: /data/p, ray: {address: "http://b:2"}}
  both: {workdir: /data/p, ray: {}, slurm: {}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "hosts.yaml").write_text(HOSTS)
    return Project(tmp_path)


def requested(project: Project, text: str, flags: Flags = RAY) -> Ray:
    block = project.plan(text, flags).engine
    assert isinstance(block, Ray)
    return block


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpus: 2\nray: {cpus: 6, resources: {h100: 1}}\n", {"CPU": 6, "GPU": 2, "h100": 1}),
        ("gpus: 2\n", {"GPU": 2}),
        ("processes: 2\nprofile: cpu\n", {"CPU": 1}),
        ("gpus: auto\nray: {gpus_per_node: 8}\n", {"GPU": 8}),
        ("processes: 2\nprofile: cpu\nray: {gpus_per_node: 8, cpus: 2}\n", {"CPU": 2}),
    ],
)
def test_a_bundle_has_what_each_node_asks_for(
    project: Project, text: str, expected: dict[str, int]
) -> None:
    assert bundle(requested(project, BARE + text)) == expected


def test_the_block_of_a_job_is_laid_over_that_of_the_host(project: Project) -> None:
    flags = Flags(engine="ray", hosts_file="hosts.yaml")
    block = requested(project, f"{BARE}processes: 1\nray: {{cpus: 2}}\n", flags)
    assert (block.address, block.cpus, block.gpus_per_node) == ("http://a:1", 2, 4)
    assert str(block.origins["cpus"]) == "job.yaml:4:13"


def test_a_host_with_a_ray_takes_jobs_over_ssh(project: Project) -> None:
    def remote(host: str, engine: str | None = None) -> Flags:
        return Flags(remote=True, hosts_file="hosts.yaml", hosts=(host,), engine=engine)

    assert (
        requested(project, f"{BARE}processes: 1\nnodes: 2\n", remote("head")).address
        == "http://b:2"
    )
    requested(project, f"{BARE}processes: 1\n", remote("both", "ray"))
    refusal = project.refused(BARE, remote("both"))
    assert ("a Slurm and a Ray" in refusal.message, refusal.hint) == (
        True,
        "--on slurm or --on ray",
    )


def test_a_hostile_name_stays_one_word_of_the_line(project: Project) -> None:
    text = f"{BARE}processes: 1\nray: {{placement: PACK, placement_timeout: 90s}}\n"
    plan = project.plan(text, RAY)
    assert isinstance(plan.engine, Ray)
    place = Submission("r-1", "/it's $(a) `b`", "/opt/python 3")
    words = shlex.split(driver_line(plan, plan.engine, place))
    assert words[-5:] == [
        '--bundle={"CPU":1}', "--strategy=PACK", "--limit=90", "--python=/opt/python 3",
        "/it's $(a) `b`",
    ]  # fmt: skip
    body: dict[str, Any] = json.loads(json.dumps(submission(plan, plan.engine, place)))
    assert (body["submission_id"], body["entrypoint_num_cpus"]) == ("r-1", 0)
    assert "runtime_env" not in body


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gpus: [0, 2]", "where Ray chooses the GPUs"),
        ("gpus: auto", "where Ray chooses the machines"),
        ("nodes: 2\nhosts: [a, b]", "`hosts`, where Ray chooses the nodes"),
        ("ray: {resources: {CPU: 4}}", "`CPU` among `resources`"),
        ("ray: {resources: {x: 0.5}}", "is no whole number"),
        ("ray: {address: 10.0.0.5:8265}", "no address of a jobs interface"),
        ("ray: {address: 'ray://10.0.0.5:10001'}", "no address of a jobs interface"),
        ("ray: {address: 'http://me:pw@a:1'}", "looks like an access token"),
        ("ray: {placement: STRICT_PACK}", "STRICT_PACK"),
        ("ray: {token_from: 'a b'}", "no name of a variable"),
        ("gpus: 2\nprocesses: 4\nray: {gpus_per_node: 2}", "4 processes on 2 GPUs"),
        ("launcher: srun", "srun"),
    ],
)
def test_what_ray_cannot_give_is_refused(project: Project, line: str, words: str) -> None:
    text = BARE.replace("launcher: torchrun\n", "") if line.startswith("launcher") else BARE
    refusal = project.refused(f"{text}{line}\n", RAY)
    assert words in f"{refusal.message} {refusal.hint}"


def test_a_job_for_ray_warns_of_what_it_does_not_ask_for(project: Project) -> None:
    shown = {w.id: w.message for w in project.plan(BARE + "processes: 2\n", RAY).warnings}
    assert set(shown) == {"engine-no-gpus", "engine-no-cores"}
    text = BARE + "gpus: 2\nray: {cpus: 4}\n"
    assert project.plan(text, RAY).warnings == ()
    assert "`ray:`" in " ".join(project.plan(text).notes)


MACHINES = {"10.0.0.1": {"CPU": 8.0, "GPU": 4.0}, "10.0.0.2": {"CPU": 8.0}}


@pytest.mark.parametrize(
    ("placement", "machines", "problem", "expected"),
    [
        ("STRICT_SPREAD", MACHINES, "", [("ok", "answers at"), ("fail", "1 of 2 machines have")]),
        ("PACK", MACHINES, "", [("ok", "answers at"), ("ok", "1 of 2 machines have GPU 2")]),
        ("PACK", {}, "", [("ok", "answers at")]),
        ("PACK", {}, "no jobs interface", [("fail", "no jobs interface")]),
    ],
)
def test_a_check_says_whether_a_ray_has_such_machines(
    project: Project,
    placement: str,
    machines: dict[str, dict[str, float]],
    problem: str,
    expected: list[tuple[str, str]],
) -> None:
    plan = project.plan(f"{BARE}gpus: 2\nnodes: 2\nray: {{placement: {placement}}}\n", RAY)
    assert isinstance(plan.engine, Ray)
    answer = {"machines": machines, "problem": problem}
    results = list(cluster.capacity_results("head", plan, plan.engine, answer))
    assert [
        (result.status, words in result.evidence)
        for result, (_, words) in zip(results, expected, strict=True)
    ] == [(status, True) for status, _ in expected]
