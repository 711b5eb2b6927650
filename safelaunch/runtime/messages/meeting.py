"""Where the supervisors of nodes that were started by hand meet, found without asking the user.

Each knows the address and port of the launcher's rendezvous from its own line. Node 0 listens on
one of a few ports that follow from that port, the others try them. Where the launcher numbers the
nodes, the machine with the address is node 0, as torchrun itself decides it.
"""

from __future__ import annotations

import errno
import socket
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# beside the ephemeral range of Linux, 32768 to 60999, from which the ranks' own sockets come
FIRST_PORT, LAST_PORT = 20000, 32767
TRIES = 3  # ports, since another program may have one of them
ADDRESSES = 3  # at most of those that a name has


class Meeting:
    """The place of one run: its addresses, once its name is resolved, and its ports."""

    def __init__(self, address: str, port: int, nodes: int) -> None:
        self.name = address.strip("[]")
        self.ports = meeting_ports(port, nodes)
        self.is_name = not _is_address(self.name)
        self.addresses: Sequence[str] = () if self.is_name else (self.name,)
        self.is_resolved = not self.is_name
        self.tries = 0

    def resolve(self) -> None:
        """Look the name up beside what goes on: that may take as long as DNS allows."""
        if self.is_resolved:
            return
        import threading  # noqa: PLC0415 - 2 ms: for names only

        threading.Thread(target=self._resolve, daemon=True).start()

    def _resolve(self) -> None:
        try:
            entries = socket.getaddrinfo(self.name, None, type=socket.SOCK_STREAM)
        except OSError:
            entries = []  # it stays unknown: the launcher itself reports that
        addresses = dict.fromkeys(str(entry[4][0]) for entry in entries)
        self.addresses = tuple(addresses)[:ADDRESSES]
        self.is_resolved = True

    def listen(self, *, everywhere: bool) -> socket.socket | None:
        """Return a socket that listens here; None where this is not the machine of the address.

        `everywhere`: this is node 0, also where its address is that of a router. Raises OSError
        where another program has the port.
        """
        if not self.addresses:
            return None
        *ports, last = self.ports if everywhere else self.ports[:1]
        for port in ports:
            try:
                return self._listen(port, everywhere=everywhere)
            except OSError:
                continue
        return self._listen(last, everywhere=everywhere)

    def _listen(self, port: int, *, everywhere: bool) -> socket.socket | None:
        try:
            link = _listen(self.addresses[0], port)
        except OSError as e:
            if e.errno != errno.EADDRNOTAVAIL:
                raise
            return _listen("", port) if everywhere else None
        if self.is_name:  # a machine's own name is often 127.0.1.1 there
            link.close()
            link = _listen("", port)
        return link

    def next_place(self) -> tuple[str, int] | None:
        """Return address and port of the next try to connect; None without an address."""
        if not self.addresses:
            return None
        places = [(address, port) for port in self.ports for address in self.addresses]
        self.tries += 1
        return places[(self.tries - 1) % len(places)]


def meeting_ports(port: int, nodes: int) -> tuple[int, ...]:
    """Return the ports that follow from the port of a rendezvous.

    Not its neighbours: those are the rendezvous of other jobs.
    """
    count = LAST_PORT - FIRST_PORT + 1
    start = zlib.crc32(b"%d %d" % (port, nodes))
    ports = (FIRST_PORT + (start + 4099 * index) % count for index in range(TRIES + 1))
    return tuple(other for other in ports if other != port)[:TRIES]


def _is_address(text: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
        return True
    return False


def _listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens at an address, or with "" at all. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if not address and socket.has_dualstack_ipv6():
        family = socket.AF_INET6
    link = socket.socket(family, socket.SOCK_STREAM)
    try:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not address and family == socket.AF_INET6:
            link.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        link.setblocking(False)
        link.bind((address, port))
        link.listen(socket.SOMAXCONN)
    except BaseException:
        link.close()
        raise
    return link
