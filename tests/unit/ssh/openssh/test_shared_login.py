"""Whether a login is shared, and the end of a command whose `ssh` shares its streams."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from support.workspace import DEADLINE

from safelaunch.ssh.config.target import Target
from safelaunch.ssh.openssh import channel as openssh_channel
from safelaunch.ssh.openssh.channel import OpenSSHChannel
from safelaunch.ssh.openssh.client import Client

if TYPE_CHECKING:
    from pathlib import Path

HELLO = b"\0\0\0\x08\0\0\0\1\0\0\0\4"


def client(program: str) -> Client:
    """Return a client whose `ssh` is another program."""
    return Client(program, Target("box", "box", 22, "me", ()), {}, (program,))


@pytest.mark.parametrize(
    ("greeting", "program", "is_shared"),
    [
        (HELLO, "false", True),  # no `ssh` is needed
        (b"", "false", False),
        (b"", "true", True),  # `ssh -O check` says so
        (b"HTTP/1.1 400 Bad Request", "false", False),
    ],
)
def test_a_shared_login_is_known_by_its_greeting(
    tmp_path: Path, greeting: bytes, program: str, is_shared: bool
) -> None:
    path = str(tmp_path / "control")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(greeting)

        thread = threading.Thread(target=greet)
        thread.start()
        assert client(program).is_shared(path) == is_shared
        thread.join(DEADLINE)


def test_a_socket_without_a_login_is_none(tmp_path: Path) -> None:
    path = tmp_path / "control"
    assert not client("false").is_shared(str(path))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    assert not client("false").is_shared(str(path))


def test_the_end_of_a_command_does_not_wait_for_who_else_has_its_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openssh_channel, "_GRACE", 100 * DEADLINE)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = ["sh", "-c", f'cat "{fifo}" >/dev/null & echo here; exec cat']
    channel = OpenSSHChannel("box", words, lambda: None, None)
    assert channel.read(100) == b"here\n"
    closing = threading.Thread(target=channel.close, daemon=True)
    closing.start()
    closing.join(DEADLINE)
    assert not closing.is_alive()
    with fifo.open("w"):  # the other one ends
        pass
    channel.stderr_tail()  # waits for its end
