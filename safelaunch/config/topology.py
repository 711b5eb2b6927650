"""How many nodes and processes a job has, from its `gpus`, `processes`, `nodes` and `hosts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.errors import ConfigError
from safelaunch.launchers import load as load_launcher
from safelaunch.model import Topology
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import Origin


def read_topology(
    values: Mapping[str, Any], origins: Mapping[str, Origin], launcher: str
) -> tuple[tuple[str, ...], Topology]:
    """Return the GPUs that a job names, and its nodes and processes. Raises ConfigError."""
    gpus: tuple[str, ...] = values.get("gpus", ())
    processes: int | None = values.get("processes")
    hosts: tuple[str, ...] = values.get("hosts", ())
    nodes: int = values.get("nodes", len(hosts) or 1)
    needs = load_launcher(launcher)
    if processes is None and gpus and needs.COUNT_REQUIRED:
        processes = None if gpus == ("auto",) else len(gpus)
    elif processes is None:
        if needs.COUNT_REQUIRED:
            raise ConfigError(
                f"number of processes missing: {launcher} would guess it",
                where=origins.get("launcher"),
                hint="give `processes: N` per node, or `gpus: auto`, `gpus: N`, `gpus: [0, 1]`",
            )
        processes = 1
    if processes is not None and gpus not in ((), ("auto",)) and processes > len(gpus):
        raise ConfigError(
            f"{processes} processes on {len(gpus)} GPUs",
            where=origins.get("processes"),
            hint="two ranks on one GPU fail in NCCL (duplicate GPU); list more or start fewer",
        )
    if nodes > 1 and not hosts:
        hint = "hosts: [first, second]"
        raise ConfigError(f"`nodes: {nodes}` without `hosts`", where=origins["nodes"], hint=hint)
    if hosts and len(hosts) != nodes:
        raise ConfigError(
            f"{quantity(len(hosts), 'host')} for {quantity(nodes, 'node')}",
            where=origins.get("nodes", origins["hosts"]),
            hint=f"--set nodes={len(hosts)}, or one host for each node",
        )
    if len(set(hosts)) != len(hosts):
        raise ConfigError("a host is listed twice", where=origins["hosts"])
    if nodes > 1 and not needs.STARTS_RANKS:
        where = origins.get("nodes", origins.get("hosts"))
        raise ConfigError(f"launcher `{launcher}` runs on one node", where=where)
    return (() if gpus == ("auto",) else gpus), Topology(nodes, processes)
