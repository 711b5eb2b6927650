"""What a job asks of a Ray for each node: its block over that of the hosts file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch.config.hosts_file.reader import LOCAL
from safelaunch.config.topology.gpus import check_processes, count_gpus, without_gpus
from safelaunch.errors import ConfigError
from safelaunch.model import Host, Origin, Ray

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.yaml_io.node import Node
    from safelaunch.model import Profile

OWN_FILES = False
_COUNTED = {"CPU": "cpus", "GPU": "gpus_per_node"}  # resource -> the key that counts it


def entry(machines: Mapping[str, Host]) -> Host:
    """Return the entry of this machine, which shares its files with those of the Ray."""
    return machines.get(LOCAL, Host(LOCAL))


def read(values: dict[str, Any], origins: Mapping[str, Origin], tree: Node, host: Host) -> Ray:
    """Return what a job asks of Ray. Raises ConfigError.

    `tree` has the job's keys as they are written, `host` is the entry of this machine. For
    `gpus: auto` the value becomes the GPUs of a node, which only a block knows.
    """
    own: Ray = values.get("ray", Ray())
    block = own if host.ray is None else own.over(host.ray)
    if "hosts" in values:
        count = len(values["hosts"])
        raise ConfigError(
            "`hosts`, where Ray chooses the nodes",
            where=origins["hosts"],
            hint=f"nodes: {count} (--set hosts=null --set nodes={count}); `resources` of the "
            "`ray:` block limits the choice",
        )
    for name, key in _COUNTED.items():
        if name in block.resources:
            raise ConfigError(
                f"`{name}` among `resources`",
                where=block.origins["resources"],
                hint=f"`{key}` counts them",
            )
    if "gpus" in values:
        count = count_gpus(block, "Ray", values, origins["gpus"], tree.get("gpus"))
        changed = {**block.origins, "gpus_per_node": origins["gpus"]}
        block = replace(block, gpus_per_node=count, origins=changed)
    named = {key: origins[key] for key in ("name", "nodes") if key in origins}
    return replace(block, job_origins=named)


def for_profile(
    block: Ray, profile: Profile | None, values: Mapping[str, Any], origins: Mapping[str, Origin]
) -> Ray:
    """Return what is asked of Ray for a profile: no GPUs on the CPU unless the job says so.

    Raises ConfigError.
    """
    if profile is not None and profile.accelerator == "cpu" and "gpus" not in values:
        return without_gpus(block)
    check_processes(block, values, origins)
    return block
