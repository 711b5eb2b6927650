"""Verbs for the network between hosts: which addresses of one machine the others reach.

Agents listen on ports of their own choice and connect to each other's. A token proves that it was
the other host that answered: 172.17.0.1 is a bridge of Docker's on every one of them.
"""

# ruff: noqa: ARG001 - all verbs have one signature; fcntl is missing on Windows, where a
# client imports this module

from __future__ import annotations

import errno
import os
import socket
import threading

from safelaunch.runtime.start import start_probe
from safelaunch.runtime.start.network_cards import addresses, family

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.runtime.agent.wire import Link, Message

TIMEOUT = 3.0  # seconds for a connection between two hosts: a second for a lost SYN, and once more
TOKEN_LIMIT = 64


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
