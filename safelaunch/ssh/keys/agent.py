"""Client of ssh-agent, over its socket or its named pipe on Windows: list keys, and sign."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Any

from safelaunch.ssh import paramiko_patches
from safelaunch.ssh.config.target import DEFAULT_AGENT
from safelaunch.ssh.keys import identities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.keys.identities import Signer

_LIST, _LISTED, _SIGN, _SIGNED = 11, 12, 13, 14
_FLAGS = {"rsa-sha2-256": 2, "rsa-sha2-512": 4}
_MAX_MESSAGE = 1 << 22


class SshAgent:
    """A connection to an ssh-agent; not thread-safe."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def identities(self) -> list[identities.Identity]:
        """Return the keys of the agent. Raises OSError, ValueError."""
        reply = self._ask(bytes([_LIST]))
        if reply[0] != _LISTED:
            raise ValueError("it refused to list its keys")
        (count,) = struct.unpack_from(">I", reply, 1)
        fields = identities.unpack_strings(reply[5:], 2 * count)
        keys = []
        for blob, comment in zip(fields[::2], fields[1::2], strict=True):
            kind = identities.unpack_strings(blob, 1)[0].decode()
            label = f"agent: {comment.decode('utf-8', 'replace') or 'a key'}"
            keys.append(identities.Identity(label, kind, blob, self._signer(blob), in_agent=True))
        return keys

    def close(self) -> None:
        """Close the connection to it."""
        with contextlib.suppress(OSError):
            self._connection.close()

    def _signer(self, blob: bytes) -> Signer:
        def sign(data: bytes, algorithm: str) -> bytes:
            flags = _FLAGS.get(algorithm.removesuffix(identities.CERTIFICATE), 0)
            fields = identities.pack_string(blob) + identities.pack_string(data)
            reply = self._ask(bytes([_SIGN]) + fields + struct.pack(">I", flags))
            if reply[0] != _SIGNED:
                raise ValueError("the agent refused to sign")
            return identities.unpack_strings(reply[1:], 1)[0]

        return sign

    def _ask(self, request: bytes) -> bytes:
        self._connection.send(identities.pack_string(request))
        (length,) = struct.unpack(">I", self._exactly(4))
        if not 0 < length < _MAX_MESSAGE:
            raise ValueError("it does not use the ssh-agent protocol")
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self._connection.recv(length - len(data))
            if not part:
                raise ValueError("it closed the connection")
            data += part
        return data


@contextlib.contextmanager
def agent_keys(
    target: Target, complain: Callable[[str], None]
) -> Iterator[list[identities.Identity]]:
    """Yield the keys of the target's agent, valid inside the context; [] without an agent."""
    keys: list[identities.Identity] = []
    with contextlib.ExitStack() as cleanup:
        try:
            connection = None if target.agent is None else _connect(target.agent)
            if connection is not None:
                agent = SshAgent(connection)
                cleanup.callback(agent.close)
                keys = agent.identities()
        except (OSError, ValueError, IndexError, struct.error) as e:
            complain(f"cannot list the keys of the agent: {e}")
        yield keys


def _connect(where: str) -> Any:
    """Return a connection to an agent, or None if there is no agent. Raises OSError."""
    if where == DEFAULT_AGENT:
        return paramiko_patches.paramiko().agent.get_agent_connection()
    if not hasattr(socket, "AF_UNIX"):
        return _NamedPipe(where)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(where)
    except OSError as e:
        connection.close()
        raise OSError(e.errno, f"{where}: {e.strerror}") from e
    return connection


class _NamedPipe:
    """A named pipe of Windows, used by OpenSSH's agent there."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "r+b", buffering=0)  # noqa: SIM115 - closed by close

    def send(self, data: bytes) -> None:
        self._file.write(data)

    def recv(self, size: int) -> bytes:
        return self._file.read(size) or b""

    def close(self) -> None:
        self._file.close()
