"""Which address of node 0 the other machines of an allocation reach, and over which card.

Engines state names. On many clusters a machine resolves its own name to 127.0.1.1, and a name may
not resolve at all; a node that then takes `localhost` trains alone. So an address is measured by
the route to another node, and where there is none that is an error.
"""

from __future__ import annotations

import socket

from safelaunch.runtime.engines.allocation import JoinError
from safelaunch.runtime.start import network_cards

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.engines.allocation import Allocation

LOOPBACK, LOOPBACK_CARD = "127.0.0.1", "lo"
ANY_PORT = 9  # discard: a connected UDP socket sends nothing


def of_node_0(allocation: Allocation) -> str:
    """Return the address of this machine, node 0, for the others. Raises JoinError."""
    others = [name for name in allocation.nodes if name != allocation.nodes[0]]
    if not others:
        return LOOPBACK
    own = [str(row["address"]) for row in network_cards.addresses()]
    named = [address for address in resolve(allocation, allocation.nodes[0]) if address in own]
    if named:
        return named[0]
    targets = resolve(allocation, others[0])
    if not targets:
        raise JoinError(
            f"the name of node 1, {others[0]}, has no address on {allocation.nodes[0]}:"
            " neither /etc/hosts nor DNS nor the engine has one"
        )
    source = route(targets[0])
    if source is None:
        raise JoinError(f"no route from {allocation.nodes[0]} to {others[0]} ({targets[0]})")
    if is_loopback(source) and not _share_machine(allocation):
        raise JoinError(f"{others[0]} resolves to {targets[0]} on {allocation.nodes[0]}")
    return source


def interface(address: str) -> str:
    """Return this machine's network card on the way to an address. Raises JoinError."""
    source = route(address)
    if source is None:
        raise JoinError(f"no route to {address} (node 0)")
    if is_loopback(source):
        return LOOPBACK_CARD
    for row in network_cards.addresses():
        if row["address"] == source:
            return str(row["interface"])
    raise JoinError(f"no network card has {source}, the address on the way to {address}")


def resolve(allocation: Allocation, name: str) -> list[str]:
    """Return the addresses of a node: by its name, else by the engine's own table."""
    addresses = _lookup(name)
    if all(map(is_loopback, addresses)):  # or there is none
        text = allocation.address(name)
        addresses = (_lookup(text) if text else []) or addresses
    return addresses


def _lookup(name: str) -> list[str]:
    try:
        rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


def _share_machine(allocation: Allocation) -> bool:
    """Whether all nodes are on one machine, as those of a Slurm with several slurmd."""
    return all(any(map(is_loopback, resolve(allocation, name))) for name in allocation.nodes)


def route(address: str) -> str | None:
    """Return the address of this machine on the way to another one; nothing is sent."""
    try:
        with socket.socket(network_cards.family(address), socket.SOCK_DGRAM) as probe:
            probe.connect((address, ANY_PORT))
            return str(probe.getsockname()[0])
    except OSError:
        return None


def is_loopback(address: str) -> bool:
    """Whether an address is one of this machine alone."""
    return address.startswith("127.") or address == "::1"
