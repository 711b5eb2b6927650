"""How many nodes and processes a job has, from its `gpus`, `processes`, `nodes` and `hosts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.errors import ConfigError
from safelaunch.launchers import load as load_launcher
from safelaunch.launchers.common import is_single
from safelaunch.launchers.flag_table import PASTED_LINE
from safelaunch.model import Args, Topology
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import Origin


def read_topology(
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
    launcher: str,
    engine: str | None = None,
) -> tuple[tuple[str, ...], Topology]:
    """Return the GPUs that a job names, and its nodes and processes. Raises ConfigError.

    An `engine` chooses the machines, so `hosts` need not name them.
    """
    gpus: tuple[str, ...] = values.get("gpus", ())
    processes: int | None = values.get("processes")
    hosts: tuple[str, ...] = values.get("hosts", ())
    has_parts = bool(values.get("shards") or values.get("matrix"))
    # hosts share the parts, of which each runs on one
    nodes: int = values.get("nodes", 1 if has_parts else len(hosts) or 1)
    needs = load_launcher(launcher)
    is_counted = needs.COUNT_REQUIRED and not is_single(needs.SINGLE, values.get("command", ()))
    if processes is None and gpus and is_counted:
        count = values.get("part_gpus") if has_parts else None
        processes = None if gpus == ("auto",) else count or len(gpus)
    elif processes is None:
        if is_counted:
            raise ConfigError(
                f"number of processes missing: {launcher} would guess it",
                where=origins.get("launcher"),
                hint="give `processes: N` per node, or `gpus: auto`, `gpus: N`, `gpus: [0, 1]`",
            )
        processes = 1
    is_named = gpus not in ((), ("auto",)) and not needs.PLACES_RANKS
    if processes is not None and is_named and processes > len(gpus):
        raise ConfigError(
            f"{processes} processes on {len(gpus)} GPUs",
            where=origins.get("processes"),
            hint="two ranks on one GPU fail in NCCL (duplicate GPU); list more or start fewer",
        )
    node_rank = _node_rank(values, origins, nodes)
    _check_engine(engine, values, origins, launcher)
    by_hand = node_rank is not None or needs.numbers_nodes(values.get("launcher_args", Args()))
    needs_hosts = not by_hand and engine is None
    if nodes > 1 and not hosts and needs_hosts:
        what, hint = _without_hosts(nodes, launcher, is_pasted=origins["nodes"] == PASTED_LINE)
        raise ConfigError(what, where=origins["nodes"], hint=hint)
    is_divided = has_parts and nodes == 1
    if hosts and len(hosts) != nodes and (needs_hosts or len(hosts) > 1) and not is_divided:
        raise ConfigError(
            f"{quantity(len(hosts), 'host')} for {quantity(nodes, 'node')}",
            where=origins.get("nodes", origins["hosts"]),
            hint=f"--set nodes={len(hosts)}, or one host for each node",
        )
    if len(set(hosts)) != len(hosts):
        raise ConfigError("a host is listed twice", where=origins["hosts"])
    if nodes > 1 and not needs.STARTS_RANKS and not values.get("ray_cluster"):
        where = origins.get("nodes", origins.get("hosts"))
        hint = "" if needs.PLACES_RANKS else "`ray_cluster: true` brings up a Ray on all of them"
        raise ConfigError(f"launcher `{launcher}` runs on one node", where=where, hint=hint or None)
    return (() if gpus == ("auto",) else gpus), Topology(nodes, processes, node_rank)


def _without_hosts(nodes: int, launcher: str, *, is_pasted: bool) -> tuple[str, str]:
    """Return what is wrong with several nodes that nobody names, and what to do."""
    if not is_pasted:
        hint = "hosts: [first, second]; or by hand `node_rank: 0` here, 1 on the next machine; "
        return f"`nodes: {nodes}` without `hosts`", f"{hint}or `--on slurm`, which chooses them"
    all_at_once = "or start all: `safelaunch remote --host FIRST --host SECOND -- LINE`"
    machine_list = load_launcher(launcher).MACHINE_LIST
    if machine_list:
        hint = f"`{machine_list}` lists them, and {launcher} starts its ranks there; {all_at_once}"
        return f"the line is for {nodes} nodes, and {launcher} knows none but this machine", hint
    hint = "add its rank, 0 here and 1 on the next (`--node_rank`, accelerate's "
    hint += f"`--machine_rank`, NODE_RANK); {all_at_once}"
    return f"the line is for {nodes} nodes and does not say which of them this machine is", hint


def _check_engine(
    engine: str | None, values: Mapping[str, Any], origins: Mapping[str, Origin], launcher: str
) -> None:
    """Refuse what an engine decides itself, and launchers that it stands in for."""
    if engine is None:
        return
    if "node_rank" in values:
        hint = "leave it out (--set node_rank=null): all nodes are started"
        raise ConfigError(
            f"`node_rank`, where {engine} numbers the nodes", where=origins["node_rank"], hint=hint
        )
    if load_launcher(launcher).PLACES_RANKS:
        raise ConfigError(
            f"launcher `{launcher}` starts ranks on all nodes, which {engine} does here",
            where=origins.get("launcher"),
            hint="name what starts the ranks of one node: torchrun, accelerate, deepspeed",
        )


def _node_rank(values: Mapping[str, Any], origins: Mapping[str, Origin], nodes: int) -> int | None:
    """Return the number of this machine's node, where each is started by hand."""
    rank: int | None = values.get("node_rank")
    if rank is None:
        return None
    where = origins["node_rank"]
    if len(values.get("hosts", ())) > 1:
        hint = "their order numbers them; leave `node_rank` out (--set node_rank=null)"
        raise ConfigError("`node_rank` and several `hosts`", where=where, hint=hint)
    if rank >= nodes:
        hint = "nodes are counted from 0; `nodes:` is how many there are"
        raise ConfigError(
            f"`node_rank: {rank}` of {quantity(nodes, 'node')}", where=where, hint=hint
        )
    return rank if nodes > 1 else None
