"""The manifest of a plan: valid for each version of Kubernetes, and what is asked for in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob
from support.project import TORCHRUN, Project

from safelaunch.config.resolve import Flags
from safelaunch.engines.kubernetes.manifest import object_name
from safelaunch.errors import ConfigError
from safelaunch.plan.serialize import plan_json

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import Plan

ON = Flags(engine="kubernetes")
CPU = Flags(engine="kubernetes", profile="cpu")
VERSIONS = tuple(f"1.{minor}" for minor in range(29, 38))
BASE = "image: a, workdir: /w"
EVERYTHING = (
    "namespace: ml, cpu: 8, memory: 1.5GiB, shm: 1GiB, resources: {rdma/hca: 2}, queue: q,"
    " volumes: {/a: one, /b: {claim: one, sub_path: b}, /c: {claim: c.d, read_only: true}},"
    " secret_name: s, pull_secret_name: p, service_account: sa, node_selector: {a/b: '', c: 'on'},"
    " tolerations: [a, 'b=c', 'd=:NoExecute', 'e:NoSchedule'], labels: {l: '1'},"
    " annotations: {n: 'yes', x/y: \"a\\nb\"}"
)
SHAPES = {
    "smallest": TORCHRUN + f"kubernetes: {{{BASE}}}\n",
    "everything": TORCHRUN
    + "nodes: 3\nmax_duration: 1.5s\ngpus: 2\nenv_from: [TOKEN]\n"
    + f"kubernetes: {{{BASE}, {EVERYTHING}}}\n",
    "retries": TORCHRUN + f"kubernetes: {{{BASE}, retries: 3, priority_class: high}}\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def documents(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the objects of a plan by kind."""
    return {document["kind"]: document for document in plan_json(plan)["engine"]["documents"]}


def job(project: Project, text: str, keys: str = "", flags: Flags = ON) -> dict[str, Any]:
    """Return the Job of a job file with a block of these keys."""
    plan = project.plan(f"{text}kubernetes: {{{BASE}, {keys}}}\n", flags)
    shown: dict[str, Any] = documents(plan)["Job"]
    return shown


def container(shown: dict[str, Any]) -> dict[str, Any]:
    (only,) = shown["spec"]["template"]["spec"]["containers"]
    return dict(only)


# -- schemas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_each_version_of_kubernetes_accepts_the_objects(shape: str, project: Project) -> None:
    plan = project.plan(SHAPES[shape], ON)
    for document in documents(plan).values():
        used = [kubernetes_validate.validate(document, v, strict=True) for v in VERSIONS]
        assert used == [*VERSIONS]


def test_the_schemas_refuse_what_is_no_field(project: Project) -> None:
    document = job(project, TORCHRUN)
    document["spec"]["template"]["spec"]["subDomain"] = "a"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[0], strict=True)


@pytest.mark.parametrize("shape", ["smallest", "everything"])
def test_the_model_of_a_train_job_reads_all_of_it(shape: str, project: Project) -> None:
    text = SHAPES[shape].replace(BASE, f"{BASE}, kind: trainjob, runtime: own-torch")
    document = documents(project.plan(text, ON))["TrainJob"]
    assert without_nulls(TrainerV1alpha1TrainJob.from_dict(document).to_dict()) == document


def without_nulls(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: without_nulls(value) for key, value in data.items() if value is not None}
    return [without_nulls(item) for item in data] if isinstance(data, list) else data


# -- what is asked for -----------------------------------------------------------------------------

LIMITS = {
    "gpus: 4\n|": {"nvidia.com/gpu": "4"},
    "gpus: auto\n|gpus_per_node: 8": {"nvidia.com/gpu": "8"},
    "|gpus_per_node: 2": {"nvidia.com/gpu": "2"},
    "gpus: 2\n|gpu_resource: habana.ai/gaudi": {"habana.ai/gaudi": "2"},
    "gpus: 2\nprofile: cpu\n|cpu: 4": {"cpu": "4"},
    "gpus: 2\nprofile: amd.yaml\n|": {"amd.com/gpu": "2"},
    "gpus: 2\nprofile: npu.yaml\n|memory: 1GiB": {"huawei.com/Ascend910": "2", "memory": "1Gi"},
    "|memory: 1.5GiB, resources: {rdma/hca: 1}": {"memory": "1536Mi", "rdma/hca": "1"},
}


@pytest.mark.parametrize("case", LIMITS)
def test_resources_are_asked_for_each_pod(case: str, project: Project) -> None:
    project.write("accelerator: rocm\n", "amd.yaml")
    project.write("accelerator: npu\n", "npu.yaml")
    keys, block = case.split("|")
    text = "launcher: torchrun\nscript: train.py\n" + keys
    if "auto" not in keys:
        text += "processes: 2\n"
    assert container(job(project, text, block))["resources"] == {"limits": LIMITS[case]}


def test_several_nodes_are_pods_that_reach_the_first_by_name_and_fail_together(
    project: Project,
) -> None:
    plan = project.plan(f"name: A_b\nnodes: 3\n{TORCHRUN}kubernetes: {{{BASE}}}\n", ON)
    shown = documents(plan)
    assert [*shown] == ["ConfigMap", "Service", "Job"]
    assert {document["metadata"]["name"] for document in shown.values()} == {"a-b"}
    selected = {"batch.kubernetes.io/job-name": "a-b"}
    assert shown["Service"]["spec"] == {
        "clusterIP": "None", "publishNotReadyAddresses": True, "selector": selected,
    }  # fmt: skip
    spec = shown["Job"]["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (3, 3, 0)
    assert spec["template"]["spec"]["subdomain"] == "a-b"
    assert "a-b-0.a-b" in shown["ConfigMap"]["data"]["launch.sh"]


def test_one_node_needs_no_service_and_may_be_started_again(project: Project) -> None:
    plan = project.plan(f"{TORCHRUN}kubernetes: {{{BASE}, retries: 2}}\n", ON)
    shown = documents(plan)
    assert [*shown] == ["ConfigMap", "Job"]
    assert shown["Job"]["spec"]["backoffLimit"] == 2
    actions = [r["action"] for r in shown["Job"]["spec"]["podFailurePolicy"]["rules"]]
    assert actions == ["FailJob", "Ignore"]


@pytest.mark.parametrize(
    ("seconds", "deadline"), [("24h", 86400), ("1.2s", 2)], ids=["whole", "part"]
)
def test_the_job_ends_at_max_duration(project: Project, seconds: str, deadline: int) -> None:
    spec = job(project, f"{TORCHRUN}max_duration: {seconds}\n")["spec"]
    assert spec["activeDeadlineSeconds"] == deadline


@pytest.mark.parametrize(
    ("keys", "block", "limit"),
    [
        ("", "", {}),
        ("", "shm: 2GiB", {"sizeLimit": "2Gi"}),
        ("needs: {shm: 3GiB}\n", "", {"sizeLimit": "3Gi"}),
    ],
    ids=["all of the memory", "block", "needs"],
)  # fmt: skip
def test_shared_memory_is_a_volume_of_its_own(
    keys: str, block: str, limit: dict[str, str], project: Project
) -> None:
    shown = job(project, TORCHRUN + keys, block)
    volumes = {v["name"]: v for v in shown["spec"]["template"]["spec"]["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", **limit}
    assert {"name": "shm", "mountPath": "/dev/shm"} in container(shown)["volumeMounts"]


def test_a_secret_is_named_and_its_value_is_nowhere(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "the-value-of-it")
    text = f"env_from: [TOKEN]\n{TORCHRUN}kubernetes: {{{BASE}, secret_name: s}}\n"
    shown = plan_json(project.plan(text, ON))
    (variable,) = container(documents(project.plan(text, ON))["Job"])["env"]
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "s", "key": "TOKEN"}}
    assert "the-value-of-it" not in repr(shown)


@pytest.mark.parametrize(
    ("written", "name"),
    [("Train_A", "train-a"), ("7b", "job-7b"), ("a" * 41, "a" * 41), ("x--", "x"), ("9_", "job-9")],
)  # fmt: skip
def test_the_names_of_the_objects_are_labels_with_a_letter_first(
    written: str, name: str, project: Project
) -> None:
    plan = project.plan(f"name: {written}\n{TORCHRUN}kubernetes: {{{BASE}}}\n", ON)
    assert object_name(plan) == name


def test_a_file_with_an_unusual_name_names_valid_objects(project: Project) -> None:
    text = f"{TORCHRUN}kubernetes: {{{BASE}}}\n"
    names = [f"Größe {'x' * 70} 1.yaml", "訓練.yaml", "___.yaml", "-a b.yaml"]
    for name in names:
        document = documents(project.plan(text, ON, name=name))["Job"]
        label = document["metadata"]["name"]
        assert len(label) < 56, label
        assert label[0].isalpha(), label
        assert label.replace("-", "").isascii(), label
        assert label.replace("-", "").isalnum(), label
        assert label == label.lower().strip("-")


def test_a_script_that_no_config_map_holds_is_refused(project: Project) -> None:
    # a quote takes five bytes within quotes
    words = ", ".join(['"' + "'" * 50_000 + '"'] * 6)
    plan = project.plan(f"{TORCHRUN}args: [{words}]\nkubernetes: {{{BASE}}}\n", ON)
    with pytest.raises(ConfigError, match="at most 1 MiB"):
        plan_json(plan)


# -- what is said ----------------------------------------------------------------------------------

WARNED = {
    "gpus: 2\n|cpu: 1, memory: 1GiB": (),
    "|cpu: 1, memory: 1GiB": ("engine-no-gpus",),
    "gpus: 2\n|cpu: 1": ("engine-no-cores",),
    "gpus: 2\nenv: {CUDA_VISIBLE_DEVICES: '2,3'}\n|cpu: 1, memory: 1GiB": ("engine-gpus",),
    "gpus: 2\nnodes: 2\nlauncher_args: {master_addr: n1}\n|cpu: 1, memory: 1GiB": (
        "engine-address",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_a_request_that_goes_wrong_in_pods_is_warned_about(case: str, project: Project) -> None:
    keys, block = case.split("|")
    plan = project.plan(f"{TORCHRUN}{keys}kubernetes: {{{BASE}, {block}}}\n", ON)
    assert tuple(warning.id for warning in plan.warnings) == WARNED[case]
    assert all(warning.where.startswith("job.yaml:") for warning in plan.warnings)


def test_what_needs_safelaunch_in_the_pods_is_named(project: Project) -> None:
    text = TORCHRUN + "recovery: {max_restarts: 2}\nhang: {action: stop}\nlog: a.log\n"
    text += f"success: {{min_steps: 3}}\nstart: direct\nkubernetes: {{{BASE}}}\n"
    notes = project.plan(text, CPU).notes
    direct, effect = notes
    assert direct == "started by the launcher, not directly: safelaunch is not in the containers"
    assert effect.endswith("safelaunch does not run: `success`, `recovery`, `hang`, `log`")


def test_a_block_of_another_engine_has_no_effect_and_a_note_says_so(project: Project) -> None:
    text = f"{TORCHRUN}slurm: {{partition: a}}\nkubernetes: {{{BASE}}}\n"
    assert [note.split(")")[0] for note in project.plan(text, CPU).notes] == [
        "`slurm:` (job.yaml:4:8"
    ]
    local = project.plan(text)
    assert local.engine is None
    assert len(local.notes) == 2
