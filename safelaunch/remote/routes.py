"""The network between the hosts of a job: tried before anything starts.

Rank 0's host gets the address that all others reach, on its fastest card; each node names the
interface on that route to NCCL and gloo. Both open ports of their own, so each host must reach a
high port of each other one.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import HostError, StartError
from safelaunch.remote.parallel import together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.remote.machine import Machine

_HINT = (
    "open TCP between the hosts, all ports above 1023 (NCCL and gloo choose theirs); or name the "
    "card that connects them in the hosts file: `interface: eth1`"
)


class Routes(NamedTuple):
    """What was found: an address and an interface for each node, in the order of the nodes."""

    addresses: tuple[str, ...]
    interfaces: tuple[str, ...]
    port: int  # for the ranks, on rank 0's host
    meeting: int  # for the supervisors, there too


class _Node(NamedTuple):
    """A host with its open ports: those asked for, and a high one last."""

    machine: Machine
    token: str
    ports: tuple[int | None, ...]
    addresses: tuple[Mapping[str, Any], ...]


def find(machines: Sequence[Machine], interfaces: Sequence[str | None], port: int) -> Routes:
    """Try the ways between machines; `port` is the ranks', on the first. Raises StartError.

    `interfaces` are those that the hosts file names.
    """
    try:
        found = _find(machines, interfaces, port)
    except Exception:  # after Ctrl-C the agents are busy: the doors close with the connections
        _close(machines)
        raise
    _close(machines)
    return found


def _close(machines: Sequence[Machine]) -> None:
    with contextlib.suppress(HostError):
        together(lambda machine: machine.agent.call("network.close"), machines)


def _find(machines: Sequence[Machine], interfaces: Sequence[str | None], port: int) -> Routes:
    nodes = together(
        lambda rank: _open(machines[rank], [port, -1] if rank == 0 else [], interfaces[rank]),
        range(len(machines)),
    )
    first, others = nodes[0], nodes[1:]
    if first.ports[0] is None:
        raise StartError(
            f"port {port} of {first.machine.name} has just been taken", hint="start again"
        )
    tried = together(lambda node: _tries(node, first), others)
    address = _chosen(first, others, tried)
    ways = [tries[address] for tries in tried]
    own = next(one for one in first.addresses if one["address"] == address)
    routes = Routes(
        (address, *(str(way[0]["address"]) for way in ways)),
        (str(own["interface"]), *(str(way[0]["interface"]) for way in ways)),
        port,
        int(first.ports[1] or 0),
    )
    _check_each_way(nodes, routes.addresses)
    return routes


def _open(machine: Machine, ports: Sequence[int], interface: str | None) -> _Node:
    token = secrets.token_hex(8)
    found = machine.agent.call("network.open", ports=[*ports, 0], token=token)
    addresses = found["addresses"]
    if interface is not None:
        named = [one for one in addresses if one["interface"] == interface]
        if not named:
            known = ", ".join(dict.fromkeys(one["interface"] for one in addresses)) or "none"
            raise StartError(
                f"{machine.name} has no interface `{interface}` with an IPv4 address that is up",
                hint=f"those that are: {known}",
            )
        addresses = named
    if not addresses:
        raise StartError(
            f"{machine.name} has no IPv4 address but loopback", hint="the nodes need a network"
        )
    # the fastest card first, then in the order of the machine
    ordered = sorted(addresses, key=lambda one: -int(one["speed"]))
    return _Node(machine, token, tuple(found["ports"]), tuple(ordered))


def _tries(node: _Node, first: _Node) -> dict[str, list[dict[str, Any]]]:
    """Return {address of the first: how each of its ports was reached from a node}."""
    wanted = [(one["address"], port) for one in first.addresses for port in first.ports]
    targets = [(address, port, first.token) for address, port in wanted]
    results = node.machine.agent.call("network.reach", targets=targets)["results"]
    known = {one["interface"] for one in node.addresses}
    found: dict[str, list[dict[str, Any]]] = {}
    for (address, _), result in zip(wanted, results, strict=True):
        strays = "error" not in result and result["interface"] not in known
        through = f"goes through {result.get('interface') or 'no card'}"
        found.setdefault(address, []).append({"error": through} if strays else result)
    return found


def _chosen(
    first: _Node,
    others: Sequence[_Node],
    tried: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]],
) -> str:
    """Return the first address that all others reach on all ports. Raises StartError."""
    for one in first.addresses:
        address = str(one["address"])
        if not any("error" in result for tries in tried for result in tries[address]):
            return address
    said = []
    for node, tries in zip(others, tried, strict=True):
        for address, results in tries.items():
            errors = [
                f"{address}:{port} {result['error']}"
                for port, result in zip(first.ports, results, strict=True)
                if "error" in result
            ]
            said += [f"{node.machine.name} -> {error}" for error in errors[:1]]
    shown = "; ".join(said[:_SHOWN])
    more = f"; and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    raise StartError(
        f"no address of {first.machine.name} is reached by every other host: {shown}{more}",
        hint=_HINT,
    )


_SHOWN = 4  # ways that did not work


def _check_each_way(nodes: Sequence[_Node], addresses: Sequence[str]) -> None:
    """Raise StartError unless each host reaches a high port of each other one but the first."""

    def tries(rank: int) -> list[str]:
        aims = [at for at in range(1, len(nodes)) if at != rank]
        targets = [(addresses[at], nodes[at].ports[-1], nodes[at].token) for at in aims]
        if not targets:
            return []
        results = nodes[rank].machine.agent.call("network.reach", targets=targets)["results"]
        name = nodes[rank].machine.name
        return [
            f"{name} -> {nodes[at].machine.name} ({target[0]}:{target[1]}) {result['error']}"
            for at, target, result in zip(aims, targets, results, strict=True)
            if "error" in result
        ]

    bad = [said for found in together(tries, range(len(nodes))) for said in found]
    if bad:
        more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        raise StartError(f"no way between hosts: {'; '.join(bad[:_SHOWN])}{more}", hint=_HINT)
