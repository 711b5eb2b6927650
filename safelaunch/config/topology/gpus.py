"""How many GPUs a job asks an engine for, which chooses them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from safelaunch.errors import ConfigError
from safelaunch.model import Kubernetes, Ray, Slurm
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.yaml_io.node import Node
    from safelaunch.model import EngineBlock, Origin

Block = TypeVar("Block", Slurm, Kubernetes, Ray)
# what a block says of GPUs, or counts by them
_KEYS = ("gpus_per_node", "gpu_type", "cpus_per_gpu", "mem_per_gpu")


def count_gpus(
    block: EngineBlock,
    title: str,
    values: dict[str, Any],
    where: Origin,
    node: Node | None,
) -> int:
    """Return the job's count of GPUs for each node. Raises ConfigError where it names some.

    For `gpus: auto` the value becomes the GPUs of a node, which only a block knows. `node` has the
    key as it is written.
    """
    gpus, of_node = values["gpus"], block.gpus_per_node
    if gpus == ("auto",):
        if of_node is None:
            raise ConfigError(
                f"`gpus: auto`, where {title} chooses the machines",
                where=where,
                hint=f"gpus: N; or `{block.engine_name}: {{gpus_per_node: N}}`, which takes all "
                "of a node",
            )
        values["gpus"] = tuple(map(str, range(of_node)))
        return of_node
    if node is not None and node.kind == "list":
        raise ConfigError(
            f"`gpus: [{', '.join(gpus)}]`, where {title} chooses the GPUs",
            where=where,
            hint=f"gpus: {len(gpus)}, or --set gpus={len(gpus)}",
        )
    if of_node is not None and len(gpus) > of_node:
        raise ConfigError(
            f"{quantity(len(gpus), 'GPU')} on nodes that have {of_node}",
            where=where,
            hint=f"`gpus_per_node` is set at {block.origins['gpus_per_node']}; "
            "more GPUs come with more `nodes`",
        )
    return len(gpus)


def check_processes(
    block: EngineBlock, values: Mapping[str, Any], origins: Mapping[str, Origin]
) -> None:
    """Refuse more processes than GPUs of a node. Raises ConfigError."""
    processes, gpus = values.get("processes"), block.gpus_per_node
    if processes is not None and gpus is not None and processes > gpus:
        raise ConfigError(
            f"{processes} processes on {gpus} GPUs",
            where=origins["processes"],
            hint=f"`gpus_per_node` is set at {block.origins['gpus_per_node']}",
        )


def without_gpus(block: Block) -> Block:
    """Return the block for a profile that has no GPUs, with what of it has no effect then."""
    idle = {key: block.origins[key] for key in _KEYS if getattr(block, key, None) is not None}
    return replace(block, gpus_per_node=None, idle=idle)
