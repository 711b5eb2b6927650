"""What a job asks of Kubernetes: from its keys, its block and that of the hosts file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import TORCHRUN, Project, script, shown

from safelaunch.config.resolve import Flags
from safelaunch.model import Kubernetes

if TYPE_CHECKING:
    from pathlib import Path

ON = Flags(engine="kubernetes", profile="cpu")
WITH_HOSTS = Flags(engine="kubernetes", hosts_file="h")
BLOCK = "kubernetes: {image: a, workdir: /w"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def requested(project: Project, text: str, flags: Flags) -> Kubernetes:
    block = project.plan(text, flags).engine
    assert isinstance(block, Kubernetes)
    return block


def test_the_block_of_a_job_is_laid_over_that_of_the_cluster_key_by_key(project: Project) -> None:
    project.write(
        "hosts:\n"
        "  localhost: {profile: h100, env: {A: local}}\n"
        "  k8s: {profile: cpu, env: {A: pods}, python: /opt/bin/python,\n"
        "    kubernetes: {image: a, workdir: /w, queue: q, cpu: 3, labels: {a: b}}}\n",
        "h",
    )
    text = TORCHRUN + "kubernetes: {image: b, queue: null}\n"
    block = requested(project, text, WITH_HOSTS)
    assert (block.image, block.queue, block.cpu, block.labels) == ("b", None, 3, {"a": "b"})
    assert (str(block.origins["image"]), str(block.origins["cpu"])) == ("job.yaml:4:21", "h:4:56")
    plan = project.plan(text, WITH_HOSTS)
    assert (plan.profile, plan.nodes[0].env["A"].value) == ("cpu", "pods")
    assert shown(plan)[0] == "/opt/bin/python"


def test_the_project_lies_where_the_containers_have_it(project: Project) -> None:
    text = f"{TORCHRUN}workdir: ..\npythonpath: ../lib\nvenv: ../.venv\n{BLOCK}}}\n"
    plan = project.plan(text, ON, name="jobs/a.yaml")
    node = plan.nodes[0]
    assert (node.cwd, node.argv[0]) == ("/w", "/w/.venv/bin/python")
    assert "export PYTHONPATH=/w/lib" in script(plan)


def test_a_folder_of_the_image_is_not_looked_for_on_this_machine(project: Project) -> None:
    text = "launcher: torchrun\nscript: own.py\nprocesses: 1\nworkdir: /opt/app\n"
    assert project.node(f"{text}{BLOCK}}}\n", ON).cwd == "/opt/app"


def test_a_script_of_the_project_must_be_there(project: Project) -> None:
    text = f"launcher: torchrun\nscript: none.py\nprocesses: 1\n{BLOCK}}}\n"
    refusal = project.refused(text, ON)
    assert (refusal.where, refusal.message) == ("job.yaml:2:9", "script `none.py` does not exist")
    assert str(project.folder) in refusal.hint


def test_project_root_says_where_the_project_is(project: Project) -> None:
    text = f"{TORCHRUN}kubernetes: {{image: a}}\n"
    assert project.node(text, ON._replace(project_root="/from/flag")).cwd == "/from/flag"


def test_ranks_of_a_cpu_job_get_no_gpus(project: Project) -> None:
    block = requested(project, f"{TORCHRUN}{BLOCK}, gpus_per_node: 8}}\n", ON)
    assert block.gpus_per_node is None


# text behind `launcher: torchrun, script: train.py`: where, message, hint
REFUSED = {
    "gpus: auto\nkubernetes: {image: a, workdir: /w}": (
        "3:7", "`gpus: auto`, where Kubernetes chooses", "{gpus_per_node: N}",
    ),
    "gpus: [0, 2]\nkubernetes: {image: a, workdir: /w}": ("3:7", "`gpus: [0, 2]`", "gpus: 2"),
    "gpus: 9\nkubernetes: {image: a, workdir: /w, gpus_per_node: 8}": (
        "3:7", "9 GPUs on nodes that have 8", "job.yaml:4:52",
    ),
    "processes: 9\nprofile: h100\nkubernetes: {image: a, workdir: /w, gpus_per_node: 8}": (
        "3:12", "9 processes on 8 GPUs", "job.yaml:5:52",
    ),
    "processes: 2\nkubernetes: {workdir: /w}": ("4:13", "no `image`", "REGISTRY/NAME:TAG"),
    "processes: 2": ("1:1", "no `image`", "kubernetes: {image:"),
    "processes: 2\nkubernetes: {image: a}": ("4:13", "no `workdir`", "/workspace/NAME"),
    "processes: 2\nkubernetes: {image: a, workdir: w}": ("4:33", "no absolute path", ""),
    "processes: 2\nkubernetes: {imge: a}": ("4:14", "unknown key `imge`", "`image`"),
    "processes: 2\nkubernetes: {nodeSelector: a}": ("4:14", "unknown key", "`node_selector`"),
    "processes: 2\nkubernetes: {kind: jobs}": ("4:20", "one of job, trainjob", "`job`"),
    "processes: 2\nkubernetes: a": ("4:13", "expected a mapping", ""),
    "processes: 2\nkubernetes: {image: 'a b'}": ("4:21", "is no image", ""),
    "processes: 2\nkubernetes: {namespace: A_b}": ("4:25", "is no name for Kubernetes", ""),
    "processes: 2\nkubernetes: {memory: 64G}": ("4:22", "expected a size", "`64GiB`"),
    "processes: 2\nkubernetes: {cpu: 0}": ("4:19", "at least 1", ""),
    "processes: 2\nkubernetes: {labels: {a: b c}}": ("4:26", "no value of a label", ""),
    "processes: 2\nkubernetes: {labels: {a b: c}}": ("4:23", "is no key such as", ""),
    "processes: 2\nkubernetes: {resources: {cpu: 3}}": ("4:26", "no resource of a device", ""),
    "processes: 2\nkubernetes: {resources: {a/b: 1.5}}": ("4:31", "no whole number", ""),
    "processes: 2\nkubernetes: {tolerations: ['a=b:Never']}": ("4:28", "no taint", ""),
    "processes: 2\nkubernetes: {volumes: {a: b}}": ("4:24", "no absolute path", ""),
    "processes: 2\nkubernetes: {volumes: {/a: B}}": ("4:28", "is no name for Kubernetes", ""),
    "processes: 2\nkubernetes: {volumes: {/a: {sub_path: b}}}": ("4:28", "no `claim`", "my-claim"),
    "processes: 2\nkubernetes: {volumes: {/a: {claim: b, sub_path: c/../..}}}": (
        "4:49", "a path below the volume", "",
    ),
    "processes: 2\nkubernetes: {image: a, volumes: {/dev/shm/: b}}": (
        "4:33", "a volume at /dev/shm", "`shm: 16GiB`",
    ),
    "processes: 2\nkubernetes: {image: a, volumes: {/a: b, /a/: c}}": ("4:33", "twice", ""),
    "processes: 2\nkubernetes: {image: a, memory: 1GiB, shm: 2GiB}": (
        "4:43", "more `shm`", "job.yaml:4:32",
    ),
    "processes: 2\nkubernetes: {image: a, queue: q, labels: {kueue.x-k8s.io/queue-name: r}}": (
        "4:42", "`queue`, and the label", "job.yaml:4:31",
    ),
    "processes: 2\nkubernetes: {image: a, gpu_resource: a/b, resources: {a/b: 1}}": (
        "4:54", "among `resources`", "`gpus:`",
    ),
    "processes: 2\nnodes: 2\nkubernetes: {image: a, retries: 1}": (
        "5:33", "would not meet the others", "kind: trainjob",
    ),
    "processes: 2\nkubernetes: {image: a, kind: trainjob, retries: 1}": (
        "4:49", "`retries` of a TrainJob", "leave it out",
    ),
    "processes: 2\nkubernetes: {image: a, kind: trainjob, priority_class: b}": (
        "4:56", "`priority_class` of a TrainJob", "leave it out",
    ),
    "processes: 2\nenv_from: [A, B]\nkubernetes: {image: a}": (
        "4:11", "takes them from a Secret", '--from-file=A=<(printf %s "$A")',
    ),
    "processes: 2\nhosts: [a, b]\nkubernetes: {image: a}": ("4:8", "`hosts`", "nodes: 2"),
    "processes: 2\nnodes: '1:4'\nkubernetes: {image: a}": ("4:8", "a whole number", ""),
    "processes: 2\nnodes: 2\nnode_rank: 0\nkubernetes: {image: a, workdir: /w}": (
        "5:12", "numbers the nodes", "node_rank=null",
    ),
    "processes: 2\nassets: {m: train.py}\nkubernetes: {image: a}": (
        "4:9", "nothing copies", "`volumes`",
    ),
    "processes: 2\nworkdir: ../..\nkubernetes: {image: a, workdir: /w}": (
        "4:10", "leads out of the project", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_asked_of_kubernetes_is_refused_with_its_place(
    text: str, project: Project
) -> None:
    where, message, hint = REFUSED[text]
    job = f"launcher: torchrun\nscript: train.py\n{text}\n"
    refusal = project.refused(job, Flags(engine="kubernetes"))
    assert refusal.where == f"job.yaml:{where}"
    assert message in refusal.message
    assert hint in refusal.hint


def test_two_clusters_in_a_hosts_file_are_refused(project: Project) -> None:
    project.write("hosts: {a: {kubernetes: {cpu: 1}}, b: {kubernetes: {cpu: 2}}}\n", "h")
    refusal = project.refused(f"{TORCHRUN}{BLOCK}}}\n", WITH_HOSTS)
    assert (refusal.where, "`a` and at `b`" in refusal.message) == ("h:1:52", True)
