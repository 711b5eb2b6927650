"""A job over SSH whose host is the login node of a cluster: Slurm chooses its machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.config.resolve import Flags
from safelaunch.errors import ConfigError
from safelaunch.model import Slurm

if TYPE_CHECKING:
    from pathlib import Path

JOB = "launcher: torchrun\nscript: train.py\ngpus: 2\nslurm: {cpus_per_gpu: 4}\n"
HOSTS = """
hosts:
  cluster: {workdir: /data/p, slurm: {partition: gpu}}
  gpu1: {}
groups:
  all: [cluster, gpu1]
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    (tmp_path / "hosts.yaml").write_text(HOSTS)
    return project


def flags(*hosts: str, engine: str | None = None) -> Flags:
    return Flags(remote=True, hosts_file="hosts.yaml", hosts=hosts, engine=engine)


def test_a_host_with_a_slurm_block_is_a_login_node(project: Project) -> None:
    plan = project.plan(JOB + "nodes: 3\n", flags("cluster"))
    assert [node.host for node in plan.nodes] == ["<node-0>", "<node-1>", "<node-2>"]
    assert {str(node.cwd) for node in plan.nodes} == {"/data/p"}
    assert isinstance(plan.engine, Slurm)
    assert (plan.engine.partition, plan.engine.nodelist) == ("gpu", ())


def test_the_hosts_of_a_job_name_its_login_node(project: Project) -> None:
    plan = project.plan(JOB + "hosts: [cluster]\n", flags())
    assert (plan.engine is not None, len(plan.nodes)) == (True, 1)


def test_a_block_of_the_job_alone_makes_no_login_node(project: Project) -> None:
    plan = project.plan(JOB, flags("gpu1"))
    assert (plan.engine, plan.nodes[0].host) == (None, "gpu1")


def test_on_slurm_makes_any_host_a_login_node(project: Project) -> None:
    plan = project.plan(JOB, flags("gpu1", engine="slurm"))
    assert (plan.engine is not None, plan.nodes[0].host) == (True, "<node-0>")


@pytest.mark.parametrize("hosts", [("cluster", "gpu1"), ("gpu1", "cluster"), ("all",)])
def test_several_hosts_with_a_login_node_are_refused(
    project: Project, hosts: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as e:
        project.plan(JOB, flags(*hosts))
    assert "cluster is the login node of a Slurm" in e.value.message
    assert (str(e.value.where), "nodes: 2" in str(e.value.hint)) == ("--host", True)


def test_kubernetes_is_no_engine_behind_a_login_node(project: Project) -> None:
    refusal = project.refused(JOB, flags("cluster", engine="kubernetes"))
    assert (refusal.where, "run --on kubernetes --dry-run" in refusal.hint) == (
        "--on kubernetes",
        True,
    )
