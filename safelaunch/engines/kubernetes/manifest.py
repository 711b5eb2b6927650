"""The objects of a plan for Kubernetes, as plain data: an Indexed Job, or a TrainJob."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import Kubernetes, NodePlan, Plan, Toleration

MOUNT = "/etc/safelaunch"  # folder of the launch script in a container
SHM = "/dev/shm"  # noqa: S108 - not a file of this machine
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
JOB_LABEL = "batch.kubernetes.io/job-name"  # the Job controller puts it onto pods
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"  # and so does that of JobSet
# of the `trainer` step in the runtimes that Kubeflow Trainer has: pkg/constants/constants.go
_NODE = "node"
_SCRIPT = "launch.sh"
_MAX_SCRIPT = 1_000_000  # bytes; docs of Kubernetes, "ConfigMaps": 1 MiB with the rest of it
# what a shell ends with where a program is missing or no program (POSIX, 2.8.2): starting it again
# changes nothing
_NOT_STARTED = (126, 127)


def object_name(plan: Plan) -> str:
    """Return the name of a plan's objects: that of the job as a DNS label, with a letter first.

    A Service must have it so (RFC 1035). A job's name has at most 41 characters, so that there is
    room for the number of a pod within 63.
    """
    name = re.sub(r"[^a-z0-9]+", "-", plan.name.lower()).strip("-")
    return name if name[:1].isalpha() else f"job-{name}".rstrip("-")


def first_address(plan: Plan, kind: str) -> str:
    """Return the name by which the pods reach the one with number 0.

    Docs of Kubernetes, "Job with Pod-to-Pod Communication"; of JobSet, "Concepts": JOBSET-JOB-0-0.
    """
    name = object_name(plan)
    pod = f"{name}-{_NODE}-0-0" if kind == "trainjob" else f"{name}-0"
    return f"{pod}.{name}"


def documents(plan: Plan, block: Kubernetes, script: str) -> list[dict[str, Any]]:
    """Return the objects, in the order in which they are created. Raises ConfigError."""
    if len(script.encode()) > _MAX_SCRIPT:
        raise ConfigError(
            f"a launch script of {len(script.encode()):,} bytes; a ConfigMap holds at most 1 MiB",
            where=plan.job_file or None,
            hint="put long arguments into a file of the project, and pass its name",
        )
    name, nodes = object_name(plan), plan.topology.nodes
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(name, block),
            "immutable": True,
            "data": {_SCRIPT: script},
        }
    ]
    if block.kind == "trainjob":
        return [*objects, _train_job(plan, block)]
    if nodes > 1:
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": _metadata(name, block),
                "spec": {
                    "clusterIP": "None",
                    "publishNotReadyAddresses": True,
                    "selector": {JOB_LABEL: name},
                },
            }
        )
    return [*objects, _job(plan, block)]


def _metadata(name: str, block: Kubernetes) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": name}
    if block.namespace is not None:
        shown["namespace"] = block.namespace
    if block.labels:
        shown["labels"] = dict(block.labels)
    return shown


def _queued(name: str, block: Kubernetes) -> dict[str, Any]:
    """Return the metadata of a job, with the label by which Kueue admits it."""
    shown = _metadata(name, block)
    if block.queue is not None:
        shown["labels"] = {**shown.get("labels", {}), QUEUE_LABEL: block.queue}
    return shown


def _job(plan: Plan, block: Kubernetes) -> dict[str, Any]:
    name, nodes = object_name(plan), plan.topology.nodes
    container = {
        "name": "main",
        "image": block.image,
        "command": _command(),
        **_filled(env=_secrets(plan.nodes[0], block), resources=_resources(block)),
        "volumeMounts": _mounts(block),
    }
    pod = {
        "restartPolicy": "Never",
        # a service of the cluster would set variables such as MASTER_PORT: tcp://10.0.0.7:80
        "enableServiceLinks": False,
        **_filled(subdomain=name if nodes > 1 else None, priorityClassName=block.priority_class),
        **_pod(block),
        "containers": [container],
        "volumes": _volumes(name, block),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _queued(name, block),
        "spec": {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimit": block.retries,
            **_filled(
                activeDeadlineSeconds=_deadline(plan),
                podFailurePolicy=_failure_policy() if block.retries else None,
            ),
            "template": {**_template(block), "spec": pod},
        },
    }


def _train_job(plan: Plan, block: Kubernetes) -> dict[str, Any]:
    name = object_name(plan)
    pod = {
        **_pod(block),
        "containers": [{"name": _NODE, "volumeMounts": _mounts(block)}],
        "volumes": _volumes(name, block),
    }
    patch = {"name": _NODE, "template": {"spec": {"template": {**_template(block), "spec": pod}}}}
    runtime = {"template": {"spec": {"replicatedJobs": [patch]}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _queued(name, block),
        "spec": {
            "runtimeRef": {"name": block.runtime},
            **_filled(activeDeadlineSeconds=_deadline(plan)),
            "trainer": {
                "image": block.image,
                "command": _command(),
                **_filled(env=_secrets(plan.nodes[0], block)),
                "numNodes": plan.topology.nodes,
                **_filled(
                    numProcPerNode=plan.topology.processes, resourcesPerNode=_resources(block)
                ),
            },
            "runtimePatches": [{"manager": "safelaunch", "trainingRuntimeSpec": runtime}],
        },
    }


def _filled(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {key: value for key, value in fields.items() if value}


def _command() -> list[str]:
    return ["bash", f"{MOUNT}/{_SCRIPT}"]


def _deadline(plan: Plan) -> int | None:
    limit = plan.supervision.max_duration
    return None if limit is None else math.ceil(limit)


def _failure_policy() -> dict[str, Any]:
    """Return what does not count as a failure, and what is no use to start again."""
    exit_codes = {"containerName": "main", "operator": "In", "values": list(_NOT_STARTED)}
    disruption = [{"type": "DisruptionTarget", "status": "True"}]
    return {
        "rules": [
            {"action": "FailJob", "onExitCodes": exit_codes},
            {"action": "Ignore", "onPodConditions": disruption},
        ]
    }


def _template(block: Kubernetes) -> dict[str, Any]:
    fields = _filled(labels=dict(block.labels), annotations=dict(block.annotations))
    return _filled(metadata=fields)


def _pod(block: Kubernetes) -> dict[str, Any]:
    """Return what Job and TrainJob say of a pod alike."""
    secret = block.pull_secret_name
    return _filled(
        serviceAccountName=block.service_account,
        imagePullSecrets=[{"name": secret}] if secret is not None else None,
        nodeSelector=dict(block.node_selector),
        tolerations=[_toleration(taint) for taint in block.tolerations],
    )


def _toleration(taint: Toleration) -> dict[str, str]:
    value = {"operator": "Exists"} if taint.value is None else {"value": taint.value}
    operator = {"operator": "Equal", **value} if taint.value is not None else value
    return {"key": taint.key, **operator, **_filled(effect=taint.effect)}


def _secrets(node: NodePlan, block: Kubernetes) -> list[dict[str, Any]]:
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": block.secret_name, "key": name}}}
        for name in node.secrets
    ]


def _resources(block: Kubernetes) -> dict[str, Any]:
    """Return the limits; what is requested is by default the same."""
    limits: dict[str, str] = {}
    if block.gpus_per_node and block.gpu_resource:
        limits[block.gpu_resource] = str(block.gpus_per_node)
    if block.cpu is not None:
        limits["cpu"] = str(block.cpu)
    if block.memory is not None:
        limits["memory"] = size(block.memory)
    limits |= block.resources
    return {"limits": limits} if limits else {}


def size(count: int) -> str:
    """Return bytes as Kubernetes takes them."""
    gib, rest = divmod(count, 1 << 30)
    return f"{gib}Gi" if not rest else f"{math.ceil(count / (1 << 20))}Mi"


def _mounts(block: Kubernetes) -> list[dict[str, Any]]:
    names = _claim_names(block)
    return [
        {"name": "safelaunch", "mountPath": MOUNT, "readOnly": True},
        {"name": "shm", "mountPath": SHM},
        *(
            {
                "name": names[volume.claim],
                "mountPath": volume.path,
                **_filled(subPath=volume.sub_path, readOnly=volume.read_only),
            }
            for volume in block.volumes
        ),
    ]


def _volumes(name: str, block: Kubernetes) -> list[dict[str, Any]]:
    memory: dict[str, Any] = {"medium": "Memory"}
    if block.shm is not None:
        memory["sizeLimit"] = size(block.shm)
    return [
        {"name": "safelaunch", "configMap": {"name": name}},
        {"name": "shm", "emptyDir": memory},
        *(
            {"name": at, "persistentVolumeClaim": {"claimName": claim}}
            for claim, at in _claim_names(block).items()
        ),
    ]


def _claim_names(block: Kubernetes) -> Mapping[str, str]:
    """Return {claim: name of its volume}: each claim once, whatever characters it has."""
    claims: Sequence[str] = tuple(dict.fromkeys(volume.claim for volume in block.volumes))
    return {claim: f"volume-{number}" for number, claim in enumerate(claims)}
