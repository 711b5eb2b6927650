"""What a job asks of Kubernetes for each node: its block over that of the hosts file."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch.config.topology.gpus import check_processes, count_gpus, without_gpus
from safelaunch.engines.kubernetes.kubectl import create_secret
from safelaunch.engines.kubernetes.manifest import MOUNT, QUEUE_LABEL, SHM
from safelaunch.errors import ConfigError
from safelaunch.model import BUILT_IN, Host, Kubernetes, Needs, Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.yaml_io.node import Node
    from safelaunch.model import Profile

OWN_FILES = True
_JOB_KEYS = ("name", "nodes", "max_duration", "env_from")  # the manifest has them
# accelerator -> what its device plugin calls a device: the README files of
# github.com/NVIDIA/k8s-device-plugin and github.com/ROCm/k8s-device-plugin, and that of the Ascend
# device plugin (gitcode.com/Ascend/mind-cluster)
_GPU_RESOURCES = {
    "cuda": "nvidia.com/gpu",
    "rocm": "amd.com/gpu",
    "npu": "huawei.com/Ascend910",
}
_NOT_OF_A_TRAINJOB = {
    "retries": "its runtime says what is started again",
    "priority_class": "its runtime sets it",
}


def entry(machines: Mapping[str, Host]) -> Host:
    """Return the entry that describes a cluster, whatever its name. Raises ConfigError for two."""
    entries = [host for host in machines.values() if host.kubernetes is not None]
    if len(entries) > 1:
        raise ConfigError(
            f"`kubernetes:` at `{entries[0].name}` and at `{entries[1].name}`",
            where=entries[1].kubernetes.origin if entries[1].kubernetes else None,
            hint="one cluster for each hosts file: --hosts FILE",
        )
    return entries[0] if entries else Host("kubernetes")


def read(
    values: dict[str, Any], origins: Mapping[str, Origin], tree: Node, host: Host
) -> Kubernetes:
    """Return what a job asks of Kubernetes. Raises ConfigError.

    `tree` has the job's keys as they are written, `host` is the entry of the cluster. For
    `gpus: auto` the value becomes the GPUs of a node, which only a block knows.
    """
    own: Kubernetes = values.get("kubernetes", Kubernetes())
    block = own if host.kubernetes is None else own.over(host.kubernetes)
    _refuse_keys(values, origins)
    where = tree.origin if block.origin == BUILT_IN else block.origin
    if block.image is None:
        hint = "kubernetes: {image: REGISTRY/NAME:TAG}, with bash, python and the job's packages"
        raise ConfigError("no `image` for Kubernetes", where=where, hint=hint)
    if "env_from" in values and values["env_from"] and block.secret_name is None:
        names = values["env_from"]
        raise ConfigError(
            f"`env_from: [{', '.join(names)}]`: Kubernetes takes them from a Secret",
            where=origins["env_from"],
            hint=f"kubernetes: {{secret_name: NAME}}; {create_secret('NAME', names)}",
        )
    if "gpus" in values:
        where = origins["gpus"]
        count = count_gpus(block, "Kubernetes", values, where, tree.get("gpus"))
        block = _with_key(block, "gpus_per_node", count, where)
    needs: Needs = values.get("needs", Needs())
    if block.shm is None and needs.shm is not None:
        block = _with_key(block, "shm", needs.shm, origins["needs"])
    _check_memory(block)
    _check_mounts(block)
    _check_starts(block, values.get("nodes", 1))
    named = {key: origins[key] for key in _JOB_KEYS if key in origins}
    return replace(block, job_origins=named)


def _refuse_keys(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> None:
    """Refuse keys of a job that name machines or files of other ones. Raises ConfigError."""
    if "hosts" in values:
        count = len(values["hosts"])
        raise ConfigError(
            "`hosts`, where Kubernetes chooses the nodes",
            where=origins["hosts"],
            hint=f"nodes: {count} (--set hosts=null --set nodes={count}); `node_selector` of the "
            "`kubernetes:` block limits the choice",
        )
    if "assets" in values:
        raise ConfigError(
            "`assets`, which nothing copies to the containers",
            where=origins["assets"],
            hint="`volumes` of the `kubernetes:` block, and the path there in `args`",
        )


def _with_key(block: Kubernetes, key: str, value: object, origin: Origin) -> Kubernetes:
    changed: dict[str, Any] = {key: value}
    return replace(block, **changed, origins={**block.origins, key: origin})


def _check_memory(block: Kubernetes) -> None:
    """Refuse more of /dev/shm than memory, of which it is a part. Raises ConfigError."""
    if block.shm is not None and block.memory is not None and block.shm > block.memory:
        raise ConfigError(
            "more `shm` than `memory`, of which it is a part",
            where=block.origins["shm"],
            hint=f"`memory` is set at {block.origins['memory']}",
        )


def _check_mounts(block: Kubernetes) -> None:
    """Refuse volumes and labels that the manifest itself has. Raises ConfigError."""
    paths = [posixpath.normpath(volume.path) for volume in block.volumes]
    for path in paths:
        twice = paths.count(path) > 1
        if twice or path in (SHM, MOUNT, "/"):
            raise ConfigError(
                f"{path} is mounted twice" if twice else f"a volume at {path}",
                where=block.origins["volumes"],
                hint="`shm: 16GiB` sets its size" if path == SHM else None,
            )
    if QUEUE_LABEL in block.labels and block.queue is not None:
        raise ConfigError(
            f"`queue`, and the label {QUEUE_LABEL}",
            where=block.origins["labels"],
            hint=f"give one; `queue` is set at {block.origins['queue']}",
        )
    if block.gpu_resource in block.resources:
        raise ConfigError(
            f"{block.gpu_resource} among `resources`, and as `gpu_resource`",
            where=block.origins["resources"],
            hint="`gpus:` of the job counts them",
        )


def _check_starts(block: Kubernetes, nodes: int) -> None:
    """Refuse what cannot start the pods again in the right way. Raises ConfigError."""
    for key, why in _NOT_OF_A_TRAINJOB.items():
        if block.kind == "trainjob" and getattr(block, key):
            where = block.origins[key]
            raise ConfigError(f"`{key}` of a TrainJob: {why}", where=where, hint="leave it out")
    if block.retries and nodes > 1:
        raise ConfigError(
            f"`retries` with {nodes} nodes: Kubernetes would start again the pod that failed, and "
            "its ranks would not meet the others",
            where=block.origins["retries"],
            hint="leave it out; or `kind: trainjob`, with a runtime that starts all pods again",
        )


def project(block: Kubernetes, where: Origin) -> str:
    """Return the folder where the containers have the project. Raises ConfigError."""
    if block.workdir is None:
        raise ConfigError(
            "no `workdir` for Kubernetes: where the project is in the image, or on a volume",
            where=where if block.origin == BUILT_IN else block.origin,
            hint="kubernetes: {workdir: /workspace/NAME}",
        )
    return posixpath.normpath(block.workdir)


def for_profile(
    block: Kubernetes,
    profile: Profile | None,
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
) -> Kubernetes:
    """Return what is asked of Kubernetes for a profile: its devices, and none on the CPU.

    Raises ConfigError.
    """
    kind = "cuda" if profile is None else profile.accelerator
    resource = block.gpu_resource or _GPU_RESOURCES.get(kind)
    if resource is None:
        return without_gpus(block)
    check_processes(block, values, origins)
    return replace(block, gpu_resource=resource)
