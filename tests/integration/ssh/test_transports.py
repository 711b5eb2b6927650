"""What both transports do alike, and what only the system's `ssh` can do."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd
from support.ssh.clients import Person, everything, fails, output, refused_port
from support.ssh.faulty_proxy import Faults
from support.ssh.sshd import PASSWORD, ROOT, Sshd, keygen
from support.workspace import wait_for

from safelaunch.model import Host
from safelaunch.ssh.config.local_user import current_user
from safelaunch.ssh.config.target import resolve_target
from safelaunch.ssh.connection import connect
from safelaunch.ssh.errors import (
    ConnectionLost,
    IncompleteLogin,
    LoginFailed,
    Unreachable,
    UntrustedHostKey,
)
from safelaunch.ssh.openssh.connection import OpenSSHConnection
from safelaunch.ssh.prompt import SharedAnswers

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.ssh.config.target import Target

pytestmark = [
    pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing())),
    pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here: install openssh-client"),
]
root_only = pytest.mark.skipif(not ROOT, reason="only root can give a server its own passwords")
both = pytest.mark.parametrize("transport", ["paramiko", "ssh"])
SESAME = "open sesame"


class Desk:
    """A ~/.ssh/config, in which a server is `box`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "config"

    def target(
        self, server: Sshd, *lines: str, transport: str | None = None, **changes: Any
    ) -> Target:
        """Return how to reach a server; `changes` replace words of its block."""
        block = server.ssh_config("box")
        for name, value in changes.items():
            block = "".join(
                f"  {name} {value}\n" if line.split()[0] == name else line
                for line in block.splitlines(keepends=True)
            )
        self.file.write_text(block + "".join(f"  {line}\n" for line in lines))
        host = Host("box", transport=transport)
        return resolve_target("box", host, current_user(os.environ), config=str(self.file))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def logins(server: Sshd) -> int:
    return server.log().count("Accepted publickey for")


# -- what both do


@both
def test_commands_share_one_login_and_have_streams_and_exit_codes(
    server: Sshd, desk: Desk, transport: str
) -> None:
    before, data = logins(server), os.urandom(1 << 20)
    for_a_shell = ("RemoteCommand false", "RequestTTY force", "LogLevel QUIET")
    with connect(desk.target(server, *for_a_shell, transport=transport)) as connection:
        assert str(server.key) in connection.credential
        assert connection.host_key is not None
        assert connection.host_key.where == f"{server.known_hosts}:1"
        with connection.exec("cat") as first, connection.exec("sha256sum; exit 7") as second:
            second.write(data)
            second.close_stdin()
            assert len(everything(second)) == 68
            assert second.exit_code(20) == 7
            first.write(b"still here\xff")
            assert first.read(100) == b"still here\xff"
        with connection.exec("echo oops >&2; kill -9 $$") as killed:
            assert everything(killed) == b""
            assert (killed.exit_code(20), killed.stderr_tail()) == (255, "oops\n")
    assert logins(server) == before + 1


@both
def test_a_terminal_has_the_size_that_it_is_given(server: Sshd, desk: Desk, transport: str) -> None:
    with (
        connect(desk.target(server, transport=transport)) as connection,
        connection.exec("stty size; cat", pty=True, size=(100, 30)) as channel,
    ):
        shown = b""
        while b"\n" not in shown:
            shown += channel.read(100)
        assert shown == b"30 100\r\n"
        channel.resize(90, 20)
        with connection.exec("cat") as beside:
            beside.close_stdin()
            assert everything(beside) == b""


@both
def test_a_host_that_is_not_trusted_is_refused_alike(
    server: Sshd, desk: Desk, tmp_path: Path, transport: str
) -> None:
    known_hosts = tmp_path / "known"
    unknown = fails(
        UntrustedHostKey, desk.target(server, transport=transport, UserKnownHostsFile=known_hosts)
    )
    assert "its host key is not known: ED25519 SHA256:" in unknown.message
    assert "safelaunch hosts test box" in str(unknown.hint)
    assert not known_hosts.exists()
    other = keygen(tmp_path / "other").with_suffix(".pub").read_text()
    known_hosts.write_text(f"[{server.address}]:{server.port} {other}")
    for strict in ("yes", "no"):
        changed = fails(
            UntrustedHostKey,
            desk.target(
                server, f"StrictHostKeyChecking {strict}", transport=transport,
                UserKnownHostsFile=known_hosts,
            ),
        )  # fmt: skip
        assert "its host key has changed" in changed.message


@both
def test_a_login_that_fails_is_explained_alike(
    server: Sshd, desk: Desk, tmp_path: Path, transport: str
) -> None:
    other = keygen(tmp_path / "other")
    denied = fails(LoginFailed, desk.target(server, transport=transport, IdentityFile=other))
    assert f"login failed for {server.user}@127.0.0.1: tried {other} (ED2" in denied.message
    assert denied.message.endswith("the server offers publickey")
    refused = fails(Unreachable, desk.target(server, transport=transport, Port=refused_port()))
    assert "refuses connections" in refused.message


@both
def test_a_connection_that_is_cut_is_lost_alike(server: Sshd, desk: Desk, transport: str) -> None:
    with Faults(server.address, server.port) as faults:
        alias = f"HostKeyAlias [{server.address}]:{server.port}"
        target = desk.target(server, alias, transport=transport, Port=faults.port)
        with connect(target) as connection, connection.exec("echo first; cat") as channel:
            assert channel.read(100) == b"first\n"
            faults.reset()
            with pytest.raises(ConnectionLost, match="connection to box was lost"):
                channel.read(1)
            with pytest.raises(ConnectionLost):
                channel.exit_code(20)


@both
def test_a_passphrase_is_asked_once_for_several_hosts(
    server: Sshd, desk: Desk, tmp_path: Path, transport: str
) -> None:
    key = keygen(tmp_path / "key", "ed25519", "-a", "1", passphrase=SESAME)
    server.authorize(key.with_suffix(".pub").read_text())
    person = Person("wrong", SESAME)
    answers = SharedAnswers(person)
    for host in ("one", "two"):
        target = desk.target(server, transport=transport, IdentityFile=key)
        connect(target, ask=answers.prompter(host)).close()
    assert person.prompts == [(f"passphrase of {key}: ", True)] * 2  # the first was wrong


@both
@root_only
def test_a_key_that_is_not_enough_is_called_accepted(desk: Desk, transport: str) -> None:
    config = {"PasswordAuthentication": "yes", "AuthenticationMethods": "publickey,password"}
    with Sshd(config) as server:
        target = desk.target(server, transport=transport, User="alice")
        assert "and wants password besides" in fails(IncompleteLogin, target).message
        person = Person(PASSWORD)
        with connect(target, ask=person) as connection:
            assert connection.credential.endswith(") and a password")
        assert person.prompts == [("alice@127.0.0.1's password: ", True)]


# -- what only `ssh` does


def test_a_shared_login_is_made_as_configured_and_used_again(server: Sshd, desk: Desk) -> None:
    socket = server.folder / "control"  # the path of a socket is short
    lines = ("ControlMaster auto", f"ControlPath {socket}", "ControlPersist 60")
    before = logins(server)
    with connect(desk.target(server, *lines)) as connection:
        assert output(connection, "echo one") == "one\n"
    assert socket.exists()
    with connect(desk.target(server, *lines)) as connection:
        assert isinstance(connection, OpenSSHConnection)
        assert connection.credential == "a login that ssh shares"
        assert output(connection, "echo two") == "two\n"
    assert logins(server) == before + 1
    end = ["ssh", "-F", str(desk.file), "-O", "exit", "box"]
    subprocess.run(end, check=True, capture_output=True)
    wait_for(lambda: not socket.exists(), "end of the shared login")


def test_a_host_certificate_is_checked_and_nobody_asked(desk: Desk, tmp_path: Path) -> None:
    authority = keygen(tmp_path / "ca")
    known_hosts = tmp_path / "known"
    with Sshd() as server:
        sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "box", "-h", "-n", server.address]
        host_key = server.host_keys[0]
        subprocess.run([*sign, f"{host_key}.pub"], check=True, capture_output=True)
        server.restart({"HostCertificate": f"{host_key}-cert.pub"})
        known_hosts.write_text(f"@cert-authority * {authority.with_suffix('.pub').read_text()}")
        with connect(
            desk.target(server, UserKnownHostsFile=known_hosts), ask=Person()
        ) as connection:
            assert output(connection, "echo in") == "in\n"
            assert connection.host_key is not None
            assert connection.host_key.where == f"{known_hosts}:1"
        foreign = keygen(tmp_path / "foreign").with_suffix(".pub").read_text()
        known_hosts.write_text(f"@cert-authority * {foreign}")
        fails(UntrustedHostKey, desk.target(server, UserKnownHostsFile=known_hosts))


def test_a_jump_host_is_used_and_its_refusal_told(server: Sshd, desk: Desk, tmp_path: Path) -> None:
    jump = server.ssh_config("jump")
    command = f"Match exec true\n  SetEnv A=b\nHost jump\n{jump.partition(chr(10))[2]}"
    with connect(desk.target(server, "ProxyJump jump", command)) as connection:
        assert isinstance(connection, OpenSSHConnection)
        assert output(connection, "echo behind") == "behind\n"
    other = str(keygen(tmp_path / "other"))
    target = desk.target(server, "ProxyJump jump", command.replace(str(server.key), other))
    error = fails(LoginFailed, target)
    assert error.message.startswith("on the way: login failed")


def test_a_server_with_ciphers_that_paramiko_lacks_is_reached_by_ssh(desk: Desk) -> None:
    with (
        Sshd({"Ciphers": "chacha20-poly1305@openssh.com"}) as server,
        connect(desk.target(server)) as connection,
    ):
        assert output(connection, "echo in") == "in\n"


def test_an_unknown_host_key_is_put_to_the_user_in_the_words_of_ssh(
    server: Sshd, desk: Desk, tmp_path: Path
) -> None:
    known_hosts = tmp_path / "known"
    target = desk.target(server, transport="ssh", UserKnownHostsFile=known_hosts)
    fails(UntrustedHostKey, target, ask=Person("no"))
    person, messages = Person("yes"), list[str]()
    connect(target, ask=person, notify=messages.append).close()
    assert person.prompts[0][1] is False
    assert "The authenticity of host" in person.prompts[0][0]
    assert known_hosts.exists()


def test_nothing_is_left_of_a_connection(
    server: Sshd, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = server.folder / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    connection = connect(desk.target(server, transport="ssh"))
    channel = connection.exec("cat")
    connection.close()
    assert channel.read(1) == b""
    assert list(folder.iterdir()) == []
    wait_for(lambda: not any("cat" in line for line in server.processes()), "end of the command")
