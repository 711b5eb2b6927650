"""What a job asks of Slurm for each node: its block over that of the host, and its other keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch.config.hosts_file.reader import LOCAL
from safelaunch.config.schema.blocks import check_exclusive_keys
from safelaunch.config.topology.gpus import check_processes, count_gpus, without_gpus
from safelaunch.engines.slurm.options import FORCED_OPTIONS, check_options
from safelaunch.errors import ConfigError
from safelaunch.model import Host, Origin, Slurm
from safelaunch.runtime.units import job_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.yaml_io.node import Node
    from safelaunch.model import Profile

OWN_FILES = False
# seconds between the end that `max_duration` brings and the one by Slurm: safelaunch ends the ranks
# first, and says why
_MARGIN = 300
_EARLY = 60  # seconds by which Slurm may send the signal early: sbatch(1), --signal


def entry(machines: Mapping[str, Host]) -> Host:
    """Return the entry of this machine, which is a login node."""
    return machines.get(LOCAL, Host(LOCAL))


def read(values: dict[str, Any], origins: Mapping[str, Origin], tree: Node, host: Host) -> Slurm:
    """Return what a job asks of Slurm. Raises ConfigError.

    `tree` has the job's keys as they are written, `host` is the entry of this machine. For
    `gpus: auto` the value becomes the GPUs of a node, which only a block knows.
    """
    own: Slurm = values.get("slurm", Slurm())
    block = own if host.slurm is None else own.over(host.slurm)
    check_exclusive_keys(block)
    if "gpus" in values:
        block = _with_gpus(block, values, origins["gpus"], tree.get("gpus"))
    if "hosts" in values:
        if "nodelist" in own.origins and own.nodelist:
            raise ConfigError(
                "`hosts` and `nodelist` together",
                where=own.origins["nodelist"],
                hint=f"both name the nodes; `hosts` is set at {origins['hosts']}",
            )
        block = _with_key(block, "nodelist", values["hosts"], origins["hosts"])
    if block.time is None and "max_duration" in values:
        limit = values["max_duration"] + _MARGIN
        block = _with_key(block, "time", limit, origins["max_duration"])
    block = _fit_signal(block, own)
    check_options(block, forced=FORCED_OPTIONS in values.get("force", ()))
    named = {key: origins[key] for key in ("name", "nodes", "hosts") if key in origins}
    return replace(block, job_origins=named)


def _fit_signal(block: Slurm, own: Slurm) -> Slurm:
    """Return the block without a signal that may come as the job starts, since its `time` is short.

    Raises ConfigError where the job itself, whose block is `own`, asks for such a signal.
    """
    if block.time is None or not block.signal:
        return block
    if "signal" not in own.origins:
        return replace(block, signal=0) if block.time <= block.signal + _EARLY else block
    if block.signal >= block.time:
        signal, limit = job_duration(block.signal), job_duration(block.time)
        raise ConfigError(
            f"`signal: {signal}` with a time limit of {limit}",
            where=block.origins["signal"],
            hint="it would end the ranks as they start; give less than `time` (set at "
            f"{block.origins['time']}), or `signal: 0s`",
        )
    return block


def _with_key(block: Slurm, key: str, value: object, origin: Origin) -> Slurm:
    changed: dict[str, Any] = {key: value}
    return replace(block, **changed, origins={**block.origins, key: origin})


def _with_gpus(block: Slurm, values: dict[str, Any], where: Origin, node: Node | None) -> Slurm:
    """Return the block with the job's count of GPUs. Raises ConfigError where it names some."""
    count = count_gpus(block, "Slurm", values, where, node)
    if node is not None and node.text == "auto":
        return _with_key(block, "exclusive", value=True, origin=where)
    return _with_key(block, "gpus_per_node", count, where)


def for_profile(
    block: Slurm, profile: Profile | None, values: Mapping[str, Any], origins: Mapping[str, Origin]
) -> Slurm:
    """Return what is asked of Slurm for a profile: no GPUs on the CPU unless the job says so.

    Raises ConfigError.
    """
    if profile is not None and profile.accelerator == "cpu" and "gpus" not in values:
        return without_gpus(block)
    check_processes(block, values, origins)
    return block
