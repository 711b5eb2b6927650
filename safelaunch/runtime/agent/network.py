"""Which addresses of this machine others reach: what an agent tries before a job on several hosts.

Agents listen on ports of their own choice and connect to each other's. A token says that it was
really the other host that answered: 172.17.0.1 is a bridge of Docker's on every one of them.
Addresses are IPv4: torchrun's static rendezvous and gloo take nothing else without trouble.
"""

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

    from safelaunch.runtime.agent.wire import Link

TIMEOUT = 3.0  # seconds for a connection between two hosts: a second for a lost SYN, and once more
LONGEST_TOKEN = 64
SIOCGIFCONF, SIOCGIFFLAGS = 0x8912, 0x8913  # netdevice(7)
IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x1, 0x8, 0x40
IFREQ = 40  # bytes of a struct ifreq on 64-bit Linux
ROOM = 512  # addresses of one machine


class Door(object):
    """A port on which this machine says its token to whoever connects."""

    def __init__(self, port: int, token: str) -> None:
        self.token = token.encode()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(("", port))
            self.socket.listen(64)
        except OSError:
            self.socket.close()
            raise
        self.port = int(self.socket.getsockname()[1])
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                other, _ = self.socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._answer, args=(other,), daemon=True).start()

    def _answer(self, other: socket.socket) -> None:
        with other:
            try:
                other.settimeout(TIMEOUT)
                other.sendall(self.token)
                # who closes first keeps the port for a minute (TIME_WAIT): not us
                other.recv(1)
            except OSError:
                pass

    def close(self) -> None:
        """Let go of the port."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        except OSError:
            pass
        self.socket.close()
        self.thread.join(TIMEOUT)


_doors: list[Door] = []


def addresses() -> list[dict[str, Any]]:
    """Return the IPv4 addresses of the interfaces that are up, but for loopback.

    Each with `interface`, `address`, and its `speed` in Mbit/s, 0 for one that is no hardware
    (bridges, tunnels) or does not say.
    """
    import fcntl  # noqa: PLC0415 - not on the machine of a Windows user, who imports this module

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        buffer = array.array("B", bytes(ROOM * IFREQ))
        place, _ = buffer.buffer_info()
        request = struct.pack("iP", len(buffer), place)
        answer: bytes = fcntl.ioctl(asker.fileno(), SIOCGIFCONF, request)
        length = struct.unpack("iP", answer)[0]
        rows = buffer.tobytes()[:length]
        for at in range(0, length, IFREQ):
            name = rows[at : at + 16].split(b"\0", 1)[0]
            try:
                asked = struct.pack("16sh", name[:15], 0) + bytes(IFREQ - 18)
                flags = struct.unpack("16sh", fcntl.ioctl(asker, SIOCGIFFLAGS, asked)[:18])[1]
            except OSError:
                continue
            is_up = flags & IFF_UP and flags & IFF_RUNNING
            if is_up and not flags & IFF_LOOPBACK:
                interface = os.fsdecode(name).split(":")[0]  # eth0:1 is a label
                address = socket.inet_ntoa(rows[at + 20 : at + 24])
                found.append(
                    {"interface": interface, "address": address, "speed": speed(interface)}
                )
    return found


def speed(interface: str) -> int:
    """Return the speed of a card in Mbit/s; 0 for what is no card, or does not say."""
    folder = os.path.join("/sys/class/net", interface)
    if not is_hardware(folder):
        return 0
    try:
        with open(os.path.join(folder, "speed")) as file:
            return max(0, int(file.read()))
    except (OSError, ValueError):
        return 0


def is_hardware(folder: str, depth: int = 3) -> bool:
    """Whether an interface is a card, or made of cards: a bond, a VLAN, the bridge of a host."""
    if os.path.exists(os.path.join(folder, "device")):
        return True
    try:
        below = [name for name in os.listdir(folder) if name.startswith("lower_")]
    except OSError:
        return False
    return depth > 0 and any(is_hardware(os.path.join(folder, name), depth - 1) for name in below)


# -- verbs -----------------------------------------------------------------------------------------


def open_doors(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Listen on each of `ports`, saying `token`; return the ports and the addresses.

    0 stands for any port, -1 for one that will be free again later: no outgoing connection gets
    it. One that cannot be had is None. The doors close with `close`, or with the agent.
    """
    del link
    ports: list[int | None] = []
    for wanted in request["ports"]:
        port = start_probe.free_port(os.getpid() * 31) if wanted == -1 else int(wanted)
        try:
            _doors.append(Door(port or 0, str(request["token"])))
            ports.append(_doors[-1].port)
        except OSError:
            ports.append(None)
    return {"ports": ports, "addresses": addresses()}


def close_doors(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Let go of the ports."""
    del request, link
    while _doors:
        _doors.pop().close()
    return {}


def reach(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Connect to each of `targets` [address, port, token], beside each other.

    Returns for each {"interface", "address"} from which it went, or {"error": why not}.
    """
    del link
    targets = request["targets"]
    results: list[dict[str, Any]] = [{"error": "not tried"} for _ in targets]
    own = {one["address"]: one["interface"] for one in addresses()}

    def attempt(index: int) -> None:
        address, port, token = targets[index]
        results[index] = try_one(str(address), int(port), str(token), own)

    threads = [threading.Thread(target=attempt, args=(i,)) for i in range(len(targets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"results": results}


def try_one(address: str, port: int, token: str, own: dict[str, str]) -> dict[str, Any]:
    """Connect to a door; return from where it went, or why it did not."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.settimeout(TIMEOUT)
        try:
            client.connect((address, port))
            here = str(client.getsockname()[0])
            wanted, heard = token.encode(), b""
            while len(heard) < len(wanted):
                part = client.recv(LONGEST_TOKEN)
                if not part:
                    break
                heard += part
        except socket.timeout:
            return {"error": "timed out"}
        except OSError as e:
            return {"error": _words(e)}
    if heard != wanted:
        return {"error": "another machine answers there"}
    return {"address": here, "interface": own.get(here)}


def _words(error: OSError) -> str:
    known = {
        errno.ECONNREFUSED: "refused",
        errno.ETIMEDOUT: "timed out",
        errno.EHOSTUNREACH: "no route",
        errno.ENETUNREACH: "no route",
        errno.ECONNRESET: "another program answers there",
    }
    return known.get(error.errno or 0) or (error.strerror or str(error)).lower()


VERBS = {"open": open_doors, "close": close_doors, "reach": reach}
