"""What tests of connections share: a person who answers, ways to a server, what fails and how."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.ssh.connection import Connection, connect

if TYPE_CHECKING:
    from safelaunch.errors import HostError
    from safelaunch.ssh.connection import Channel
    from support.ssh.faulty_proxy import Faults
    from support.ssh.sshd import Sshd

MIB = 1 << 20
_BOUND: list[socket.socket] = []  # bound, and not listening, until the tests end


class Person:
    """Answers prompts, and remembers them."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.prompts: list[tuple[str, bool]] = []

    def __call__(self, prompt: str, *, secret: bool) -> str:
        self.prompts.append((prompt, secret))
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)


def through(server: Sshd, proxy: Faults, **changes: Any) -> Any:
    """Return the target of a server behind a proxy, under the server's own name."""
    alias = f"[{server.address}]:{server.port}"
    return server.target(port=proxy.port, host_key_alias=alias, **changes)


def everything(channel: Channel) -> bytes:
    parts = []
    while part := channel.read(1 << 16):
        parts.append(part)
    return b"".join(parts)


def upload(channel: Channel) -> None:
    """Write more than any test lets through."""
    for _ in range(200):
        channel.write(bytes(MIB))


def output(connection: Connection, command: str) -> str:
    with connection.exec(command) as channel:
        out = everything(channel).decode()
        assert channel.exit_code(20) == 0, channel.stderr_tail()
    return out


def ours() -> set[threading.Thread]:
    """Return the threads that run, but for those of the proxy with faults."""
    return {thread for thread in threading.enumerate() if "_pump" not in thread.name}


def fails(kind: type[HostError], target: Any, **options: Any) -> HostError:
    with pytest.raises(kind) as caught:
        connect(target, **options).close()
    assert caught.value.where == target.name
    return caught.value


def refused_port() -> int:
    """Return a port where nobody listens, and that nobody gets meanwhile."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    _BOUND.append(listener)
    return int(listener.getsockname()[1])
