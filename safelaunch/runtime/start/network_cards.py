"""The network cards of this machine: their addresses that other machines may reach."""

# ruff: noqa: PLC0415 - fcntl is missing on Windows, where a client imports this module

from __future__ import annotations

import array
import os
import socket
import struct

from safelaunch.runtime.start import start_probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SIOCGIFCONF, SIOCGIFFLAGS = 0x8912, 0x8913  # netdevice(7)
IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x1, 0x8, 0x40
IFREQ = 40  # bytes of a struct ifreq on 64-bit Linux
IF_INET6 = "/proc/net/if_inet6"
UNSUITABLE = 0x01 | 0x08 | 0x20 | 0x40  # temporary, duplicate, deprecated, tentative: if_addr.h
ADDRESS_LIMIT = 512  # of one machine


def family(address: str) -> int:
    """Return the address family of a numeric address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def addresses() -> list[dict[str, Any]]:
    """Return the addresses of the interfaces that are up, except loopback; IPv4 first.

    Each with `interface`, `address`, and its `speed` in Mbit/s: 0 for one that is no hardware
    (bridges, tunnels) or does not report it. Of IPv6 those that are valid in a whole network.
    """
    import fcntl

    result = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        buffer = array.array("B", bytes(ADDRESS_LIMIT * IFREQ))
        pointer, _ = buffer.buffer_info()
        request = struct.pack("iP", len(buffer), pointer)
        answer: bytes = fcntl.ioctl(probe.fileno(), SIOCGIFCONF, request)
        rows = buffer.tobytes()[: struct.unpack("iP", answer)[0]]
        for at in range(0, len(rows), IFREQ):
            label = os.fsdecode(rows[at : at + 16].split(b"\0", 1)[0])
            result += _row(probe, label, socket.inet_ntoa(rows[at + 20 : at + 24]))
        for name, address in ipv6_addresses(start_probe.read(IF_INET6)):
            result += _row(probe, name, address)
    return result


def _row(probe: socket.socket, label: str, address: str) -> list[dict[str, Any]]:
    """Return an address of an interface that is up, else nothing."""
    import fcntl

    query = struct.pack("16sh", os.fsencode(label)[:15], 0) + bytes(IFREQ - 18)
    try:
        flags = struct.unpack("16sh", fcntl.ioctl(probe, SIOCGIFFLAGS, query)[:18])[1]
    except OSError:
        return []
    if not (flags & IFF_UP and flags & IFF_RUNNING) or flags & IFF_LOOPBACK:
        return []
    name = label.partition(":")[0]  # eth0:1 is a label
    return [{"interface": name, "address": address, "speed": speed(name)}]


def ipv6_addresses(text: str) -> list[tuple[str, str]]:
    """Return (interface, address) of each IPv6 address in /proc/net/if_inet6 that others can use.

    Not those of one link alone, nor temporary ones, nor any that is deprecated or not valid yet.
    """
    pairs = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 6 and fields[3] == "00" and not int(fields[4], 16) & UNSUITABLE:  # noqa: PLR2004
            pairs.append((fields[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))))
    return pairs


def speed(interface: str) -> int:
    """Return the speed of a network card in Mbit/s; 0 where it is none, or does not report it."""
    folder = os.path.join("/sys/class/net", interface)
    if not is_hardware(folder):
        return 0
    try:
        with open(os.path.join(folder, "speed")) as file:
            return max(0, int(file.read()))
    except (OSError, ValueError):
        return 0


def is_hardware(folder: str, depth: int = 3) -> bool:
    """Whether an interface is a network card, or made of some: a bond, a VLAN, a host's bridge."""
    if os.path.exists(os.path.join(folder, "device")):
        return True
    try:
        below = [name for name in os.listdir(folder) if name.startswith("lower_")]
    except OSError:
        return False
    return depth > 0 and any(is_hardware(os.path.join(folder, name), depth - 1) for name in below)
