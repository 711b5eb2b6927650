"""What environment variables do to each other, and to what is known of the job's machines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.lint.finding import ERROR, NOTE, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.lint.env.model import Facts

_NEW_GROUP = "2.15.0"  # the release whose nccl2 has no heartbeat thread


class Together(NamedTuple):
    """One thing that does harm; `name` is the variable to show it at."""

    id: str
    name: str
    message: str
    fix: str | None
    severity: str


def check(variables: Mapping[str, str | None], facts: Facts) -> Iterator[Together]:
    """Yield harmful combinations. What is not known of the machines counts as harmless."""
    yield from _local_off(variables)
    yield from _torch(variables, facts)
    yield from _machines(variables, facts)
    yield from _nodes(variables, facts)
    if variables.get("HF_HUB_OFFLINE") == "1" and variables.get("HF_ENDPOINT"):
        message = "HF_HUB_OFFLINE=1 beside HF_ENDPOINT: the mirror is not asked"
        yield Together("together", "HF_ENDPOINT", message, "keep one of them", NOTE)


def _local_off(variables: Mapping[str, str | None]) -> Iterator[Together]:
    if variables.get("NCCL_SHM_DISABLE") != "1" or variables.get("NCCL_P2P_DISABLE") != "1":
        return
    message = "NCCL_P2P_DISABLE=1 with NCCL_SHM_DISABLE=1: the GPUs of a machine talk over network"
    if variables.get("NCCL_IB_DISABLE") == "1":
        message += " code, by TCP"
    fix = "keep them only against a crash that you have seen; try NCCL_CUMEM_HOST_ENABLE=0 first"
    yield Together("together", "NCCL_SHM_DISABLE", message, fix, WARNING)


def _torch(variables: Mapping[str, str | None], facts: Facts) -> Iterator[Together]:
    if "TORCH_NCCL_BLOCKING_WAIT" in variables and "TORCH_NCCL_ASYNC_ERROR_HANDLING" in variables:
        message = "TORCH_NCCL_BLOCKING_WAIT beats TORCH_NCCL_ASYNC_ERROR_HANDLING"
        yield Together("together", "TORCH_NCCL_BLOCKING_WAIT", message, "keep one", WARNING)
    old, new = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
    if new in variables and old not in variables:
        torch = _version(facts.torch)
        if torch and torch < (2, 10):
            message = f"{new} alone: the CUDA allocator of PyTorch 2.9 and older ignores it"
            yield Together("together", new, message, f"use {old}", ERROR)
    hook = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"
    conf = f"{variables.get(old) or ''},{variables.get(new) or ''}"
    if "expandable_segments:True" in conf and variables.get(hook) == "1":
        message = f"expandable_segments:True switches {hook} off"
        yield Together("together", hook, message, "keep one of them", WARNING)
    yield from _heartbeat(variables, facts)


def _heartbeat(variables: Mapping[str, str | None], facts: Facts) -> Iterator[Together]:
    if facts.torch is None or not facts.torch.startswith(_NEW_GROUP):
        return
    for name in ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_ENABLE_MONITORING"):
        if name in variables and variables.get("TORCH_DIST_USE_NCCL2") != "0":
            message = f"{name}: the default process group of PyTorch {_NEW_GROUP} has no heartbeat"
            fix = "TORCH_DIST_USE_NCCL2=0 goes back to the one that has"
            yield Together("together", name, message, fix, WARNING)


def _machines(variables: Mapping[str, str | None], facts: Facts) -> Iterator[Together]:
    if facts.nvlink:
        for name, value in (("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "LOC")):
            if variables.get(name) == value:
                message = f"{name}={value} on a machine with NVLink: GPUs talk through host memory"
                yield Together("machine", name, message, "remove it", ERROR)
        if variables.get("NCCL_NVLS_ENABLE") == "0":
            message = "NCCL_NVLS_ENABLE=0 costs about a quarter of the all-reduce bandwidth"
            yield Together("machine", "NCCL_NVLS_ENABLE", message, "only against error 401", NOTE)
    nccl = _version(facts.nccl)
    if nccl >= (2, 21) and "NCCL_IB_GID_INDEX" in variables:
        message = "NCCL_IB_GID_INDEX is fixed: NCCL 2.21 and newer choose it by themselves"
        yield Together("machine", "NCCL_IB_GID_INDEX", message, "remove it", WARNING)


def _nodes(variables: Mapping[str, str | None], facts: Facts) -> Iterator[Together]:
    if facts.nodes is None or facts.nodes < 2:  # noqa: PLR2004 - nodes
        return
    if facts.rdma and variables.get("NCCL_IB_DISABLE") == "1":
        message = "NCCL_IB_DISABLE=1 with several nodes and RDMA: traffic falls back to TCP"
        yield Together("machine", "NCCL_IB_DISABLE", message, "remove it", ERROR)
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = variables.get(name) or ""
        if re.fullmatch(r"=?(lo|docker\d*)", value):
            message = f"{name}={value} with several nodes: no other node can connect"
            fix = "name the interface towards the other nodes"
            yield Together("machine", name, message, fix, ERROR)


def _version(text: str | None) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", text or "")
    return tuple(int(part) for part in match.group().split(".")) if match else ()
