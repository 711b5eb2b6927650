"""Verbs for the network between hosts: which addresses of one machine the others reach.

Agents listen on ports of their own choice and connect to each other's. A token proves that it was
the other host that answered: 172.17.0.1 is a bridge of Docker's on every one of them.
"""

# ruff: noqa: ARG001, PLC0415 - all verbs have one signature; fcntl is missing on Windows, where a
# client imports this module

from __future__ import annotations

import array
import errno
import os
import socket
import struct
import threading

from safelaunch.runtime.start import start_probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.runtime.agent.wire import Link, Message

TIMEOUT = 3.0  # seconds for a connection between two hosts: a second for a lost SYN, and once more
TOKEN_LIMIT = 64
SIOCGIFCONF, SIOCGIFFLAGS = 0x8912, 0x8913  # netdevice(7)
IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x1, 0x8, 0x40
IFREQ = 40  # bytes of a struct ifreq on 64-bit Linux
IF_INET6 = "/proc/net/if_inet6"
UNSUITABLE = 0x01 | 0x08 | 0x20 | 0x40  # temporary, duplicate, deprecated, tentative: if_addr.h
ADDRESS_LIMIT = 512  # of one machine


def family(address: str) -> int:
    """Return the address family of a numeric address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _listener(port: int) -> socket.socket:
    """Return a socket that listens on all addresses, IPv6 included where there is any."""
    try:
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    except OSError:  # the kernel has no IPv6
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", port))
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    return listener


class TokenServer:
    """A port on which this machine sends its token to each client."""

    def __init__(self, port: int, token: str) -> None:
        self.token = token.encode()
        self.socket = _listener(port)
        self.port = int(self.socket.getsockname()[1])
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            try:
                client.settimeout(TIMEOUT)
                client.sendall(self.token)
                # the side that closes first keeps the port for a minute (TIME_WAIT): not us
                client.recv(1)
            except OSError:
                pass

    def close(self) -> None:
        """Release the port."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        except OSError:
            pass
        self.socket.close()
        self.thread.join(TIMEOUT)


_servers: list[TokenServer] = []
ERRORS = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "timed out",
    errno.EHOSTUNREACH: "no route",
    errno.ENETUNREACH: "no route",
    errno.ECONNRESET: "another program answers there",
}


def addresses() -> list[Message]:
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


def _row(probe: socket.socket, label: str, address: str) -> list[Message]:
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


# -- verbs -----------------------------------------------------------------------------------------


def open_ports(request: Message, link: Link) -> Message:
    """Listen on each of `ports`, sending `token`; return the ports and the addresses.

    0 stands for any port, -1 for one that will be free again later: no outgoing connection gets
    it. One that is taken is None. The ports close with `close`, or with the agent.
    """
    ports: list[int | None] = []
    for wish in request["ports"]:
        port = start_probe.free_port(os.getpid() * 31) if wish == -1 else int(wish)
        try:
            _servers.append(TokenServer(port or 0, str(request["token"])))
            ports.append(_servers[-1].port)
        except OSError:
            ports.append(None)
    return {"ports": ports, "addresses": addresses()}


def close_ports(request: Message, link: Link) -> Message:
    """Release the ports."""
    while _servers:
        _servers.pop().close()
    return {}


def reach(request: Message, link: Link) -> Message:
    """Connect to each of `targets` [address, port, token], all at once.

    Returns for each {"interface", "address"} from which it went, or {"error": why not}.
    """
    targets = request["targets"]
    results: list[Message] = [{"error": "not tried"} for _ in targets]
    interfaces = {own["address"]: own["interface"] for own in addresses()}

    def attempt(index: int) -> None:
        address, port, token = targets[index]
        results[index] = connect(str(address), int(port), str(token), interfaces)

    threads = [threading.Thread(target=attempt, args=(i,)) for i in range(len(targets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"results": results}


def connect(address: str, port: int, token: str, interfaces: dict[str, Any]) -> Message:
    """Connect to a port; return the own address and interface of the connection, or an `error`."""
    expected, received = token.encode(), b""
    with socket.socket(family(address), socket.SOCK_STREAM) as client:
        client.settimeout(TIMEOUT)
        try:
            client.connect((address, port))
            own = str(client.getsockname()[0])
            while len(received) < len(expected):
                part = client.recv(TOKEN_LIMIT)
                if not part:
                    break
                received += part
        except socket.timeout:
            return {"error": "timed out"}
        except OSError as e:
            return {"error": ERRORS.get(e.errno or 0) or (e.strerror or str(e)).lower()}
    if received != expected:
        return {"error": "another machine answers there"}
    return {"address": own, "interface": interfaces.get(own)}


VERBS = {"open": open_ports, "close": close_ports, "reach": reach}
