"""The network between the hosts of a job: tried before anything starts.

Rank 0's host gets the address that all others reach, on its fastest card; each node names the
interface on that route to NCCL and gloo. Both open ports of their own, so each host must reach a
high port of each other one.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import HostError, StartError
from safelaunch.remote.parallel import together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.remote.host_pool import Machine

_HINT = (
    "open TCP between the hosts, all ports above 1023 (NCCL and gloo choose theirs); or name the "
    "card that connects them in the hosts file: `interface: eth1`"
)
_SHOWN = 4  # failed connections in a message


class Routes(NamedTuple):
    """An address and an interface for each node, in the order of the nodes."""

    addresses: tuple[str, ...]
    interfaces: tuple[str, ...]
    port: int  # for the ranks, on rank 0's host
    supervisor_port: int  # there too


class _Attempt(NamedTuple):
    """From where a connection to a port went, or why there was none."""

    address: str = ""
    interface: str = ""
    error: str | None = None


class _Node(NamedTuple):
    """A host that listens on the ports asked for, and on a high one last."""

    machine: Machine
    token: str  # what the ports answer
    ports: tuple[int | None, ...]
    interfaces: dict[str, str]  # by address

    def connect(self, targets: Sequence[tuple[str, int | None, str]]) -> list[_Attempt]:
        """Return how the host reached each (address, port, token) of others. Raises HostError."""
        results = self.machine.agent.call("network.reach", targets=targets)["results"]
        return [
            _Attempt(error=str(result["error"] or "failed"))
            if "error" in result
            else _Attempt(str(result["address"]), str(result["interface"] or ""))
            for result in results
        ]


def find(machines: Sequence[Machine], port: int) -> Routes:
    """Try the network between machines; `port` is the ranks', on the first. Raises StartError."""
    try:
        routes = _find(machines, port)
    except Exception:  # after Ctrl-C the agents are busy: the ports close with the connections
        _close(machines)
        raise
    _close(machines)
    return routes


def _close(machines: Sequence[Machine]) -> None:
    with contextlib.suppress(HostError):
        together(lambda machine: machine.agent.call("network.close"), machines)


def _find(machines: Sequence[Machine], port: int) -> Routes:
    nodes = together(
        lambda rank: _listen(machines[rank], [port, -1] if rank == 0 else []), range(len(machines))
    )
    first, others = nodes[0], nodes[1:]
    if first.ports[0] is None:
        name = first.machine.name
        raise StartError(f"port {port} of {name} has just been taken", hint="start again")
    tries = together(lambda node: _connect_to(first, node), others)
    address = _common_address(first, others, tries)
    ways = [connections[address][0] for connections in tries]
    routes = Routes(
        (address, *(way.address for way in ways)),
        (first.interfaces[address], *(way.interface for way in ways)),
        port,
        int(first.ports[1] or 0),
    )
    _check_each_way(nodes, routes.addresses)
    return routes


def _listen(machine: Machine, ports: Sequence[int]) -> _Node:
    """Return a host that listens, with its addresses: IPv4 first, those on the fastest card first.

    IPv6 is the second choice since programs that write `tcp://ADDRESS:PORT` break on it.
    """
    interface, token = machine.session.host.interface, secrets.token_hex(8)
    answer = machine.agent.call("network.open", ports=[*ports, 0], token=token)
    rows = sorted(answer["addresses"], key=lambda row: (":" in row["address"], -int(row["speed"])))
    used = [row for row in rows if interface in (None, row["interface"])]
    if not used and interface is not None:
        names = ", ".join(dict.fromkeys(row["interface"] for row in answer["addresses"])) or "none"
        raise StartError(
            f"{machine.name} has no interface `{interface}` with an address that is up",
            hint=f"those that are: {names}",
        )
    if not used:
        raise StartError(
            f"{machine.name} has no address but loopback", hint="the nodes need a network"
        )
    interfaces: dict[str, str] = {}
    for row in used:  # of two interfaces with one address the faster
        interfaces.setdefault(str(row["address"]), str(row["interface"]))
    return _Node(machine, token, tuple(answer["ports"]), interfaces)


def _connect_to(first: _Node, node: _Node) -> dict[str, list[_Attempt]]:
    """Return {address of the first: how each of its ports was reached from a node}."""
    targets = [(address, port, first.token) for address in first.interfaces for port in first.ports]
    tries: dict[str, list[_Attempt]] = {}
    for (address, *_), connection in zip(targets, node.connect(targets), strict=True):
        strays = not connection.error and connection.interface not in node.interfaces.values()
        through = f"goes through {connection.interface or 'no card'}"
        way = _Attempt(error=through) if strays else connection
        tries.setdefault(address, []).append(way)
    return tries


def _common_address(
    first: _Node, others: Sequence[_Node], tries: Sequence[dict[str, list[_Attempt]]]
) -> str:
    """Return the first address that all others reach on all ports. Raises StartError."""
    errors = []
    for address in first.interfaces:
        if not any(way.error for connections in tries for way in connections[address]):
            return address
    for node, connections in zip(others, tries, strict=True):
        for address, ways in connections.items():
            pairs = zip(first.ports, ways, strict=True)
            failed = [f"{_endpoint(address, port)} {way.error}" for port, way in pairs if way.error]
            errors += [f"{node.machine.name} -> {text}" for text in failed[:1]]
    raise _no_route(f"no address of {first.machine.name} is reached by every other host", errors)


def _check_each_way(nodes: Sequence[_Node], addresses: Sequence[str]) -> None:
    """Raise StartError unless each host reaches a high port of each other one but the first."""

    def errors_from(rank: int) -> list[str]:
        others = [number for number in range(1, len(nodes)) if number != rank]
        targets = [(addresses[n], nodes[n].ports[-1], nodes[n].token) for n in others]
        ways = nodes[rank].connect(targets) if targets else []
        names = [node.machine.name for node in nodes]
        return [
            f"{names[rank]} -> {names[n]} ({_endpoint(address, port)}) {way.error}"
            for n, (address, port, _), way in zip(others, targets, ways, strict=True)
            if way.error
        ]

    errors = [error for node in together(errors_from, range(len(nodes))) for error in node]
    if errors:
        raise _no_route("no way between hosts", errors)


def _endpoint(address: str, port: int | None) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _no_route(message: str, errors: Sequence[str]) -> StartError:
    more = f"; and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
    return StartError(f"{message}: {'; '.join(errors[:_SHOWN])}{more}", hint=_HINT)
