"""ssh-agent: the keys that it holds, and their signatures. Its socket, on Windows a named pipe."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Any

from safelaunch.ssh import paramiko_patches
from safelaunch.ssh.config.target import USUAL_AGENT
from safelaunch.ssh.keys import identities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.keys.identities import Signer

_LIST, _LISTED, _SIGN, _SIGNED = 11, 12, 13, 14
_FLAGS = {"rsa-sha2-256": 2, "rsa-sha2-512": 4}
_LONGEST = 1 << 22


class Agent:
    """An ssh-agent. Not for several threads at once."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def identities(self) -> list[identities.Identity]:
        """Return its keys. Raises OSError, ValueError."""
        answer = self._ask(bytes([_LIST]))
        if answer[0] != _LISTED:
            raise ValueError("it does not tell its keys")
        (count,) = struct.unpack_from(">I", answer, 1)
        fields = identities.strings(answer[5:], 2 * count)
        found = []
        for blob, comment in zip(fields[::2], fields[1::2], strict=True):
            kind = identities.strings(blob, 1)[0].decode()
            label = f"agent: {comment.decode('utf-8', 'replace') or 'a key'}"
            found.append(identities.Identity(label, kind, blob, self._signer(blob), held=True))
        return found

    def close(self) -> None:
        """Close the connection to it."""
        with contextlib.suppress(OSError):
            self._connection.close()

    def _signer(self, blob: bytes) -> Signer:
        def sign(data: bytes, algorithm: str) -> bytes:
            flags = _FLAGS.get(algorithm.removesuffix(identities.CERTIFICATE), 0)
            fields = identities.string(blob) + identities.string(data) + struct.pack(">I", flags)
            answer = self._ask(bytes([_SIGN]) + fields)
            if answer[0] != _SIGNED:
                raise ValueError("the agent refused to sign")
            return identities.strings(answer[1:], 1)[0]

        return sign

    def _ask(self, request: bytes) -> bytes:
        self._connection.send(identities.string(request))
        (length,) = struct.unpack(">I", self._exactly(4))
        if not 0 < length < _LONGEST:
            raise ValueError("it speaks another protocol")
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self._connection.recv(length - len(data))
            if not part:
                raise ValueError("it hung up")
            data += part
        return data


@contextlib.contextmanager
def agent(target: Target, complain: Callable[[str], None]) -> Iterator[list[identities.Identity]]:
    """Yield the keys of the target's agent, to be used inside; none where there is no agent."""
    if target.agent is None:
        yield []
        return
    found: Agent | None = None
    held: list[identities.Identity] = []
    try:
        connection = _connect(target.agent)
        if connection is not None:
            found = Agent(connection)
            held = found.identities()
    except (OSError, ValueError, IndexError, struct.error) as e:
        complain(f"the agent gives no keys: {e}")
    try:
        yield held
    finally:
        if found is not None:
            found.close()


def _connect(where: str) -> Any:
    """Return a connection to an agent, or None where there is none. Raises OSError."""
    if where == USUAL_AGENT:
        return paramiko_patches.paramiko().agent.get_agent_connection()
    if not hasattr(socket, "AF_UNIX"):
        return _Pipe(where)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(where)
    except OSError as e:
        connection.close()
        raise OSError(e.errno, f"{where}: {e.strerror}") from e
    return connection


class _Pipe:
    """A named pipe of Windows, as OpenSSH's agent there has one."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "r+b", buffering=0)  # noqa: SIM115 - closed by close

    def send(self, data: bytes) -> None:
        self._file.write(data)

    def recv(self, size: int) -> bytes:
        return self._file.read(size) or b""

    def close(self) -> None:
        self._file.close()
