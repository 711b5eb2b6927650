"""Checks environment variables in combination, and against known facts about the machines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.lint.env.model import VariableProblem, parse_version
from safelaunch.lint.finding import ERROR, NOTE, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.lint.env.model import Facts

_NEW_GROUP = "2.15.0"  # the release in which nccl2 has no heartbeat thread


def check(variables: Mapping[str, str | None], facts: Facts) -> Iterator[VariableProblem]:
    """Yield harmful combinations. Unknown facts about the machines count as harmless."""
    yield from _local_transports_off(variables)
    yield from _torch(variables, facts)
    yield from _machines(variables, facts)
    yield from _nodes(variables, facts)
    if variables.get("HF_HUB_OFFLINE") == "1" and variables.get("HF_ENDPOINT"):
        message = "HF_HUB_OFFLINE=1 with HF_ENDPOINT: the mirror is not used"
        yield VariableProblem("env-together", "HF_ENDPOINT", message, "keep one of them", NOTE)


def _local_transports_off(variables: Mapping[str, str | None]) -> Iterator[VariableProblem]:
    if variables.get("NCCL_SHM_DISABLE") != "1" or variables.get("NCCL_P2P_DISABLE") != "1":
        return
    how = "code, by TCP" if variables.get("NCCL_IB_DISABLE") == "1" else ""
    message = (
        "NCCL_P2P_DISABLE=1 with NCCL_SHM_DISABLE=1: the GPUs of a machine communicate over "
        f"network {how}".rstrip()
    )
    fix = "set them only to avoid a known crash; try NCCL_CUMEM_HOST_ENABLE=0 first"
    yield VariableProblem("env-together", "NCCL_SHM_DISABLE", message, fix, WARNING)


def _torch(variables: Mapping[str, str | None], facts: Facts) -> Iterator[VariableProblem]:
    if "TORCH_NCCL_BLOCKING_WAIT" in variables and "TORCH_NCCL_ASYNC_ERROR_HANDLING" in variables:
        message = "TORCH_NCCL_BLOCKING_WAIT overrides TORCH_NCCL_ASYNC_ERROR_HANDLING"
        yield VariableProblem("env-together", "TORCH_NCCL_BLOCKING_WAIT", message, "keep one")
    old, new = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
    if new in variables and old not in variables:
        torch = parse_version(facts.torch)
        if torch and torch < (2, 10):
            message = f"{new} alone: the CUDA allocator of PyTorch 2.9 and older ignores it"
            yield VariableProblem("env-together", new, message, f"use {old}", ERROR)
    hook = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"
    conf = f"{variables.get(old) or ''},{variables.get(new) or ''}"
    if "expandable_segments:True" in conf and variables.get(hook) == "1":
        message = f"expandable_segments:True disables {hook}"
        yield VariableProblem("env-together", hook, message, "keep one of them", WARNING)
    yield from _heartbeat(variables, facts)


def _heartbeat(variables: Mapping[str, str | None], facts: Facts) -> Iterator[VariableProblem]:
    if facts.torch is None or not facts.torch.startswith(_NEW_GROUP):
        return
    for name in ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_ENABLE_MONITORING"):
        if name in variables and variables.get("TORCH_DIST_USE_NCCL2") != "0":
            message = f"{name}: the default process group of PyTorch {_NEW_GROUP} has no heartbeat"
            fix = "TORCH_DIST_USE_NCCL2=0 selects the process group with a heartbeat"
            yield VariableProblem("env-together", name, message, fix, WARNING)


def _machines(variables: Mapping[str, str | None], facts: Facts) -> Iterator[VariableProblem]:
    if facts.nvlink:
        for name, value in (("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "LOC")):
            if variables.get(name) == value:
                harm = "GPUs communicate through host memory"
                message = f"{name}={value} on a machine with NVLink: {harm}"
                yield VariableProblem("env-machine", name, message, "remove it", ERROR)
        if variables.get("NCCL_NVLS_ENABLE") == "0":
            message = "NCCL_NVLS_ENABLE=0 costs about a quarter of the all-reduce bandwidth"
            fix = "set it only to avoid error 401"
            yield VariableProblem("env-machine", "NCCL_NVLS_ENABLE", message, fix, NOTE)
    nccl = parse_version(facts.nccl)
    if nccl >= (2, 21) and "NCCL_IB_GID_INDEX" in variables:
        message = "NCCL_IB_GID_INDEX is set: NCCL 2.21 and newer choose the index automatically"
        yield VariableProblem("env-machine", "NCCL_IB_GID_INDEX", message, "remove it", WARNING)


def _nodes(variables: Mapping[str, str | None], facts: Facts) -> Iterator[VariableProblem]:
    if facts.nodes in (None, 0, 1):
        return
    if facts.rdma and variables.get("NCCL_IB_DISABLE") == "1":
        message = "NCCL_IB_DISABLE=1 with several nodes and RDMA: traffic falls back to TCP"
        yield VariableProblem("env-machine", "NCCL_IB_DISABLE", message, "remove it", ERROR)
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = variables.get(name) or ""
        if re.fullmatch(r"=?(lo|docker\d*)", value):
            message = f"{name}={value} with several nodes: no other node can connect"
            fix = "set it to the interface that reaches the other nodes"
            yield VariableProblem("env-machine", name, message, fix, ERROR)
