"""Commands over a connection that leave nothing to wait for: ciphers, a refusal that comes late."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd
from support.ssh.clients import MIB, everything, upload
from support.ssh.sshd import Sshd, keygen

from safelaunch.errors import HostError
from safelaunch.ssh import paramiko_patches
from safelaunch.ssh.config.target import Target
from safelaunch.ssh.connection import connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))


@pytest.mark.parametrize(
    "cipher", ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr"]
)
def test_bytes_arrive_as_they_went_under_each_cipher(cipher: str) -> None:
    if cipher not in paramiko_patches.paramiko().Transport._cipher_info:
        pytest.skip("this Paramiko does not know it")
    data = os.urandom(MIB + 7)
    with (
        Sshd({"Ciphers": cipher}) as server,
        connect(server.target()) as connection,
        connection.exec("sha256sum", wait=False) as channel,
    ):
        channel.write(data[:1])
        channel.write(data[1:])
        channel.close_stdin()
        output = everything(channel)
    assert output == hashlib.sha256(data).hexdigest().encode() + b"  -\n"


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[Target]:
    """Yield how to reach a server that lets everybody in and runs no command."""
    paramiko: Any = paramiko_patches.paramiko()

    class Server(paramiko.ServerInterface):  # type: ignore[misc]
        def get_allowed_auths(self, _: str) -> str:
            return "publickey"

        def check_auth_publickey(self, *_: object) -> Any:
            return paramiko.AUTH_SUCCESSFUL

        def check_channel_request(self, *_: object) -> Any:
            return paramiko.OPEN_SUCCEEDED

    host_key = paramiko.ECDSAKey.generate()
    opened: list[Any] = []

    def serve() -> None:
        transport = paramiko.Transport(listener.accept()[0])
        opened.append(transport)
        transport.add_server_key(host_key)
        # with an event it raises nothing here when the client leaves early
        transport.start_server(event=threading.Event(), server=Server())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        known_hosts = tmp_path / "known_hosts"
        line = f"[127.0.0.1]:{port} {host_key.get_name()} {host_key.get_base64()}\n"
        known_hosts.write_text(line)
        thread = threading.Thread(target=serve)
        thread.start()
        yield Target(
            name="box",
            address="127.0.0.1",
            port=port,
            user="anybody",
            identities=(str(keygen(tmp_path / "id_ed25519")),),
            identities_configured=True,
            agent=None,
            known_hosts=(str(known_hosts),),
        )
        thread.join(20)
    for transport in opened:
        transport.close()


def test_a_command_that_is_refused_is_told_at_once(refusing: Target) -> None:
    with connect(refusing) as connection, pytest.raises(HostError, match="runs no command"):
        connection.exec("true")


def test_a_refusal_that_nobody_waited_for_is_told_to_whom_reads_or_writes(refusing: Target) -> None:
    with connect(refusing) as connection:
        with pytest.raises(HostError, match="runs no command"):
            connection.exec("true", wait=False).read(1)
        channel = connection.exec("true", wait=False)
        with pytest.raises(HostError, match="runs no command"):
            upload(channel)
