from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shutil
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from support import REPOSITORY
from support.ssh import sshd
from support.ssh.clients import Person, fails
from support.ssh.sshd import PASSWORD, ROOT, Sshd, agent, keygen

from safelaunch.errors import ConfigError
from safelaunch.ssh import install_key
from safelaunch.ssh.connection import connect
from safelaunch.ssh.errors import IncompleteLogin, LoginFailed, NoCommandSession, UntrustedHostKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
root_only = pytest.mark.skipif(
    not ROOT, reason="only root can give a server its own passwords and users"
)


PASSWORDS = {"PasswordAuthentication": "yes"}
SESAME = "open sesame"


@pytest.fixture(autouse=True)
def silent(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing of ours, and nothing of Paramiko's threads, comes onto the screen."""
    yield
    assert capfd.readouterr() == ("", "")


# -- keys


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("ed25519", ()),
        ("ecdsa", ()),
        ("ecdsa", ("-b", "521")),
        ("rsa", ("-b", "2048")),
        ("rsa", ("-b", "2048", "-m", "PEM")),
        ("ecdsa", ("-m", "PKCS8")),
    ],
    ids=" ".join,
)
def test_every_usual_kind_of_key_opens(
    server: Sshd, tmp_path: Path, kind: str, words: tuple[str, ...]
) -> None:
    key = keygen(tmp_path / "key", kind, *words)
    server.authorize(key.with_suffix(".pub").read_text())
    key.with_suffix(".pub").unlink()
    with connect(server.target(identities=(str(key),))) as connection:
        assert str(key) in connection.credential


@pytest.mark.parametrize("words", [(), ("-m", "PEM"), ("-m", "PKCS8")], ids=str)
def test_an_encrypted_key_asks_for_its_passphrase(
    server: Sshd, tmp_path: Path, words: tuple[str, ...]
) -> None:
    key = keygen(tmp_path / "key", "ecdsa", *words, passphrase=SESAME)
    server.authorize(key.with_suffix(".pub").read_text())
    key.with_suffix(".pub").unlink()
    person = Person("wrong", SESAME)
    connect(server.target(identities=(str(key),)), ask=person).close()
    assert person.prompts == [(f"passphrase of {key}: ", True)] * 2


def test_a_passphrase_is_not_asked_for_a_key_that_the_server_does_not_want(
    server: Sshd, tmp_path: Path
) -> None:
    key = keygen(tmp_path / "key", passphrase=SESAME)
    person = Person()
    connect(server.target(identities=(str(key), str(server.key))), ask=person).close()
    assert person.prompts == []


def test_an_encrypted_key_without_a_terminal_says_what_to_do(server: Sshd, tmp_path: Path) -> None:
    key = keygen(tmp_path / "key", passphrase=SESAME)
    server.authorize(key.with_suffix(".pub").read_text())
    error = fails(LoginFailed, server.target(identities=(str(key),)))
    assert "it has a passphrase, and there is no terminal to ask for it" in error.message
    assert f"ssh-add {key}" in str(error.hint)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("PuTTY-User-Key-File-3: ssh-ed25519\n", "puttygen"),
        ("what is this\n", "not a private key"),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
            "damaged",
        ),
    ],
)
def test_a_key_file_that_is_none_is_named(
    server: Sshd, tmp_path: Path, content: str, message: str
) -> None:
    key = tmp_path / "key"
    key.write_text(content)
    key.chmod(0o600)
    error = fails(LoginFailed, server.target(identities=(str(key),)))
    assert f"{key}: " in error.message
    assert message in error.message


def test_a_key_that_others_can_read_is_not_used(server: Sshd, tmp_path: Path) -> None:
    key = shutil.copy(server.key, tmp_path / "key")
    os.chmod(key, 0o644)
    assert "chmod 600" in fails(LoginFailed, server.target(identities=(str(key),))).message


def test_a_given_key_that_is_not_there_is_named(server: Sshd, tmp_path: Path) -> None:
    missing = str(tmp_path / "gone")
    message = fails(LoginFailed, server.target(identities=(missing,))).message
    assert f"{missing}: no such file" in message
    message = fails(
        LoginFailed, server.target(identities=(missing,), identities_configured=False)
    ).message
    assert "this machine has no key to try; the server offers publickey" in message


def test_a_refused_key_is_named_with_what_the_server_offers(server: Sshd, tmp_path: Path) -> None:
    key = keygen(tmp_path / "key")
    error = fails(LoginFailed, server.target(identities=(str(key),), notes=("GSSAPI is not done",)))
    assert (
        f"login failed for {server.user}@127.0.0.1: tried {key} (ED25519 SHA256:" in error.message
    )
    assert error.message.endswith("the server offers publickey")
    assert "authorized_keys" in str(error.hint)
    assert str(error.hint).endswith("GSSAPI is not done")


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_key_of_the_agent_opens(server: Sshd, tmp_path: Path, kind: str) -> None:
    key = keygen(tmp_path / "key", kind, "-C", "me@laptop")
    server.authorize(key.with_suffix(".pub").read_text())
    with agent(tmp_path, key) as path:
        key.unlink()
        with connect(server.target(identities=(), agent=path)) as connection:
            assert connection.credential.startswith("agent: me@laptop (")


def test_the_public_half_chooses_a_key_of_the_agent(server: Sshd, tmp_path: Path) -> None:
    keys = [keygen(tmp_path / f"key{n}", "ed25519", "-C", f"key{n}") for n in range(8)]
    server.authorize(keys[7].with_suffix(".pub").read_text())
    with agent(tmp_path, *keys) as path:
        keys[7].unlink()
        for name in (str(keys[7]), f"{keys[7]}.pub"):
            target = server.target(identities=(name,), agent=path, identities_only=True)
            with connect(target) as connection:
                assert connection.credential.startswith("agent: key7 (")


@pytest.mark.parametrize("named_only", [False, True])
def test_identities_only_keeps_the_agent_s_other_keys_back(
    server: Sshd, tmp_path: Path, named_only: bool
) -> None:
    named, other = (keygen(tmp_path / name) for name in ("named", "other"))
    server.authorize(other.with_suffix(".pub").read_text())
    with agent(tmp_path, named, other) as path:
        target = server.target(identities=(str(named),), agent=path, identities_only=named_only)
        if named_only:
            assert str(other) not in fails(LoginFailed, target).message
        else:
            connect(target).close()


def test_too_many_keys_in_the_agent_are_called_so(server: Sshd, tmp_path: Path) -> None:
    keys = [keygen(tmp_path / f"key{n}") for n in range(8)]
    with agent(tmp_path, *keys) as path:
        error = fails(LoginFailed, server.target(identities=(), agent=path))
        assert "MaxAuthTries" in error.message
        assert "IdentitiesOnly yes" in str(error.hint)
        # the key that is meant goes first
        connect(server.target(agent=path, identities_only=True)).close()


def test_an_agent_that_is_gone_is_told_where_the_login_fails(server: Sshd, tmp_path: Path) -> None:
    missing = str(tmp_path / "gone")
    assert missing in str(fails(LoginFailed, server.target(identities=(), agent=missing)).hint)
    connect(server.target(agent=missing)).close()


@pytest.mark.parametrize("in_agent", [False, True], ids=["file", "agent"])
@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_a_certificate_opens(tmp_path: Path, kind: str, in_agent: bool) -> None:
    authority, key = keygen(tmp_path / "ca"), keygen(tmp_path / "key", kind)
    with Sshd({"TrustedUserCAKeys": str(authority.with_suffix(".pub"))}) as server:
        sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", server.user]
        subprocess.run([*sign, f"{key}.pub"], check=True, capture_output=True)
        with contextlib.ExitStack() as stack:
            path = stack.enter_context(agent(tmp_path, key)) if in_agent else None
            beside = connect(server.target(identities=(str(key),), agent=path))
            assert "-CERT" in beside.credential
            beside.close()
            certificate = tmp_path / "elsewhere.pub"
            (tmp_path / "key-cert.pub").rename(certificate)
            target = server.target(
                identities=(str(key),), certificates=(str(certificate),), agent=path
            )
            with connect(target) as connection:
                assert "-CERT" in connection.credential


# -- what a person types


@root_only
def test_a_password_is_asked_for_and_asked_again() -> None:
    with Sshd(PASSWORDS) as server:
        person = Person("wrong", PASSWORD)
        connect(server.target("alice", identities=()), ask=person).close()
        assert person.prompts == [("alice@127.0.0.1's password: ", True)] * 2
        person = Person("wrong", "wrong", "wrong", PASSWORD)
        error = fails(LoginFailed, server.target("alice", identities=()), ask=person)
        assert len(person.prompts) == 3
        assert "tried password; the server offers publickey, password" in error.message
        assert "AllowUsers" in str(error.hint)


@root_only
def test_without_a_terminal_no_password_is_asked_for() -> None:
    with Sshd(PASSWORDS) as server:
        error = fails(LoginFailed, server.target("alice", identities=()))
        assert "safelaunch hosts add" in str(error.hint)
        assert (
            "cancelled"
            in fails(LoginFailed, server.target("alice", identities=()), ask=Person()).message
        )


@root_only
def test_questions_of_the_server_are_put_as_they_are() -> None:
    config = {"UsePAM": "yes", "KbdInteractiveAuthentication": "yes"}
    with Sshd(config, pam=sshd.MODULES) as server:
        person = Person(PASSWORD)
        connect(server.target("alice", identities=()), ask=person).close()
        assert person.prompts == [("(alice@127.0.0.1) Password: ", True)]


@root_only
def test_a_key_and_a_password_where_both_are_demanded() -> None:
    with Sshd({**PASSWORDS, "AuthenticationMethods": "publickey,password"}) as server:
        person = Person(PASSWORD)
        with connect(server.target("alice"), ask=person) as connection:
            assert connection.credential.endswith(") and a password")
        assert [prompt for prompt, _ in person.prompts] == ["alice@127.0.0.1's password: "]
        error = fails(IncompleteLogin, server.target("alice"))
        assert error.message.startswith(f"the server accepts {server.key} (ED25519 SHA256:")
        assert error.message.endswith(" for alice@127.0.0.1, and wants password besides")
        assert "only at a terminal" in str(error.hint)


TERMINAL = """
import sys
from safelaunch.ssh import prompt
from safelaunch.ssh.config.target import Target
from safelaunch.ssh.connection import connect
target = Target(name="box", address="127.0.0.1", port=int(sys.argv[1]), user="alice",
                identities=(), agent=None, known_hosts=(sys.argv[2],))
ask = prompt.terminal_prompter()
with connect(target, ask=ask) as connection, connection.exec("echo I am in") as c:
    print(c.read(100).decode())
"""


@root_only
def test_a_terminal_is_asked_and_shows_no_secret(tmp_path: Path) -> None:
    with Sshd(PASSWORDS) as server:
        child, screen = pty.fork()
        if not child:
            os.chdir(REPOSITORY)
            program = [sys.executable, "-c", TERMINAL, str(server.port), str(tmp_path / "known")]
            os.execv(sys.executable, program)  # noqa: S606 - the child of pty.fork
        screen_text = b""

        def see(text: bytes) -> None:
            nonlocal screen_text
            deadline = time.monotonic() + 20
            while (
                text not in screen_text
                and select.select([screen], [], [], deadline - time.monotonic())[0]
            ):
                screen_text += os.read(screen, 4096)
            assert text in screen_text

        try:
            see(b"(yes/no/[fingerprint])? ")
            os.write(screen, b"yes\n")
            see(b"password: ")
            os.write(screen, PASSWORD.encode() + b"\n")
            see(b"I am in")
        finally:
            os.close(screen)
            os.waitpid(child, 0)
        assert PASSWORD.encode() not in screen_text


def test_without_a_terminal_there_is_nobody_to_ask() -> None:
    program = "from safelaunch.ssh import prompt; print(prompt.terminal_prompter())"
    root = REPOSITORY
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    assert result.stdout == "None\n"


# -- host keys


def test_an_unknown_host_key_is_refused_where_nobody_is_asked(server: Sshd, tmp_path: Path) -> None:
    known_hosts_file = tmp_path / "known"
    error = fails(UntrustedHostKey, server.target(known_hosts=(str(known_hosts_file),)))
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-f", server.host_keys[0]], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert f"its host key is not known: ED25519 {shown}" in error.message
    assert "safelaunch hosts test box" in str(error.hint)
    assert not known_hosts_file.exists()


@pytest.mark.parametrize("answer", ["yes", "fingerprint"])
def test_an_accepted_host_key_is_kept_for_us_and_for_openssh(
    server: Sshd, tmp_path: Path, answer: str
) -> None:
    known_hosts_file = tmp_path / "ssh" / "known"
    person = Person("what", answer)

    def ask(prompt: str, *, secret: bool) -> str:
        answer = person(prompt, secret=secret)
        if answer != "fingerprint":
            return answer
        return str(re.findall(r"SHA256:\S+(?=\.\n)", person.prompts[0][0])[0])

    target = server.target(known_hosts=(str(known_hosts_file),))
    connect(target, ask=ask).close()
    assert "The authenticity of host 'box' (127.0.0.1 port" in person.prompts[0][0]
    assert person.prompts[1][0] == "Please type yes, no or the fingerprint: "
    assert stat.S_IMODE(known_hosts_file.stat().st_mode) == 0o600
    connect(target).close()
    shutil.copy(known_hosts_file, server.known_hosts)
    assert server.run("echo openssh too") == "openssh too\n"


def test_a_host_key_that_is_not_accepted_is_not_kept(server: Sshd, tmp_path: Path) -> None:
    known_hosts_file = tmp_path / "known"
    fails(UntrustedHostKey, server.target(known_hosts=(str(known_hosts_file),)), ask=Person("no"))
    fails(UntrustedHostKey, server.target(known_hosts=(str(known_hosts_file),)), ask=Person())
    assert not known_hosts_file.exists()


def test_settings_may_accept_or_forbid_new_host_keys(server: Sshd, tmp_path: Path) -> None:
    messages: list[str] = []
    known_hosts_file = tmp_path / "known"
    strict = server.target(known_hosts=(str(known_hosts_file),), strict="yes")
    assert "StrictHostKeyChecking" in str(fails(UntrustedHostKey, strict, ask=Person("yes")).hint)
    connect(
        server.target(known_hosts=(str(known_hosts_file),), strict="accept-new"),
        notify=messages.append,
    ).close()
    assert "new host key ED25519 SHA256:" in messages[0]
    connect(strict).close()


@pytest.mark.parametrize("strict", ["ask", "no"])
def test_a_changed_host_key_is_refused_with_the_line_to_look_at(
    server: Sshd, tmp_path: Path, strict: str
) -> None:
    name = f"[127.0.0.1]:{server.port}"
    other = keygen(tmp_path / "other").with_suffix(".pub").read_text()
    known_hosts_file = tmp_path / "known"
    known_hosts_file.write_text(f"# mine\nelsewhere {other}{name} {other}")
    target = server.target(known_hosts=(str(known_hosts_file),), strict=strict)
    error = fails(UntrustedHostKey, target, ask=Person("yes"))
    assert "its host key has changed: it shows ED25519 SHA256:" in error.message
    assert f"{known_hosts_file}:3 has SHA256:" in error.message
    command = str(error.hint).split(": ", 1)[1]
    assert command == f"ssh-keygen -f {known_hosts_file} -R '{name}'"
    subprocess.run(["bash", "-c", command], check=True, capture_output=True)
    connect(target, ask=Person("yes")).close()


def test_the_kind_of_host_key_that_is_known_is_asked_for(tmp_path: Path) -> None:
    with Sshd(host_keys=("ed25519", "rsa", "ecdsa")) as server:
        lines = server.known_hosts.read_text().splitlines()
        for line in lines:
            server.known_hosts.write_text(line + "\n")
            connect(server.target()).close()
        known_hosts_file = tmp_path / "known"
        shutil.copy(server.known_hosts, known_hosts_file)
    with Sshd(host_keys=("ed25519",), port=server.port) as server:
        target = server.target(known_hosts=(str(known_hosts_file),))
        person = Person("no")
        fails(UntrustedHostKey, target, ask=person)
        assert (
            f"{known_hosts_file}:1 has its ECDSA key, which the server does not offer"
            in person.prompts[0][0]
        )
        error = fails(
            UntrustedHostKey,
            server.target(known_hosts=(str(known_hosts_file),), strict="accept-new"),
        )
        assert "which the server does not offer" in error.message


def test_a_revoked_host_key_is_refused(server: Sshd, tmp_path: Path) -> None:
    known_hosts_file = tmp_path / "known"
    key = server.host_keys[0].with_suffix(".pub").read_text()
    known_hosts_file.write_text(server.known_hosts.read_text() + f"@revoked * {key}")
    error = fails(UntrustedHostKey, server.target(known_hosts=(str(known_hosts_file),)))
    assert error.message == f"its host key is revoked in {known_hosts_file}:2"


def test_an_authority_is_no_host_key_and_is_named(server: Sshd, tmp_path: Path) -> None:
    known_hosts_file = tmp_path / "known"
    known_hosts_file.write_text(f"@cert-authority * {server.key.with_suffix('.pub').read_text()}")
    person = Person("yes")
    error = fails(UntrustedHostKey, server.target(known_hosts=(str(known_hosts_file),)), ask=person)
    assert f"{known_hosts_file}:1 trusts a certificate authority for it" in error.message
    assert "only `ssh` can check" in str(error.hint)
    assert person.prompts == []


def test_a_key_known_for_the_usual_port_is_the_machine_s(server: Sshd, tmp_path: Path) -> None:
    known_hosts_file = tmp_path / "known"
    known_hosts_file.write_text("127.0.0.1 " + server.host_keys[0].with_suffix(".pub").read_text())
    with connect(server.target(known_hosts=(str(known_hosts_file),))) as connection:
        assert connection.alive


# -- keys for `hosts add`


@pytest.fixture
def home(tmp_path: Path) -> Callable[[], str]:
    """Let the commands of a connection run in a home of their own, and return its keys."""
    (tmp_path / "home").mkdir(mode=0o755)

    def keys() -> str:
        return (tmp_path / "home" / ".ssh" / "authorized_keys").read_text()

    return keys


def install(tmp_path: Path, line: str, before: str = "") -> install_key.InstallResult:
    forced = f'{before} export HOME={tmp_path}/home; eval "$SSH_ORIGINAL_COMMAND"'
    script = tmp_path / "forced"
    script.write_text(f"#!/bin/sh\n{forced}\n")
    script.chmod(0o755)
    with Sshd({"ForceCommand": str(script)}) as own, connect(own.target()) as connection:
        return install_key.install_key(connection, line)


def test_a_key_is_installed_once(tmp_path: Path, home: Callable[[], str]) -> None:
    line = keygen(tmp_path / "key").with_suffix(".pub").read_text()
    assert install(tmp_path, line, "umask 000;") == install_key.InstallResult(True, None)
    assert home() == line
    folder = tmp_path / "home" / ".ssh"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "authorized_keys").stat().st_mode) == 0o600
    other = " ".join(line.split()[:2]) + " another comment"
    assert install(tmp_path, other, "umask 777; echo hello from .bashrc;").added is False
    assert home() == line


def test_an_installed_key_spares_what_is_there(tmp_path: Path, home: Callable[[], str]) -> None:
    line = keygen(tmp_path / "key").with_suffix(".pub").read_text()
    folder = tmp_path / "home" / ".ssh"
    folder.mkdir(mode=0o775)
    for loose in (folder, folder.parent):
        os.chmod(loose, 0o775)  # noqa: S103 - what is to be noticed
    old = f"# {line}ssh-rsa AAAA the last line has no end"
    (folder / "authorized_keys").write_text(old)
    done = install(tmp_path, line)
    assert done.added
    assert "chmod go-w ~" in str(done.warning)
    assert home() == f"{old}\n{line}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_what_is_no_public_key_is_not_installed(server: Sshd) -> None:
    connection = connect(server.target())
    for line in ("", "ssh-ed25519", "ssh-ed25519 ????", "ssh-rsa " + "QUFBQQ=="):
        with pytest.raises(ConfigError):
            install_key.install_key(connection, line)
    connection.close()


@root_only
def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    line = keygen(tmp_path / "key").with_suffix(".pub").read_text()
    with Sshd() as server, connect(server.target("alice")) as connection:
        home = server.home("alice")
        keys = home / ".ssh" / "authorized_keys"
        os.chown(keys, 0, 0)
        keys.chmod(0o644)
        with pytest.raises(NoCommandSession, match="is not writable"):
            install_key.install_key(connection, line)


@root_only
def test_a_new_key_replaces_the_password() -> None:
    with Sshd(PASSWORDS) as server:
        path = str(server.folder / "mine" / "id_ed25519")
        line = install_key.generate_key(path, comment="me@laptop")
        with connect(server.target("alice", identities=()), ask=Person(PASSWORD)) as connection:
            assert install_key.install_key(connection, line) == install_key.InstallResult(
                True, None
            )
        connect(server.target("alice", identities=(path,))).close()


def test_a_made_key_is_one_of_openssh_and_private(tmp_path: Path) -> None:
    path = tmp_path / "ssh" / "id_ed25519"
    line = install_key.generate_key(str(path), comment="me@laptop")
    assert re.fullmatch(r"ssh-ed25519 \S+ me@laptop", line)
    assert path.with_suffix(".pub").read_text() == line + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    shown = subprocess.run(
        ["ssh-keygen", "-y", "-P", "", "-f", path], capture_output=True, text=True, check=True
    ).stdout
    assert shown.split()[:2] == line.split()[:2]
    with pytest.raises(ConfigError):
        install_key.generate_key(str(path), comment="again")
    assert path.with_suffix(".pub").read_text() == line + "\n"


def test_a_made_key_can_have_a_passphrase(server: Sshd, tmp_path: Path) -> None:
    path = tmp_path / "key"
    server.authorize(install_key.generate_key(str(path), comment="me", passphrase=SESAME))
    person = Person(SESAME)
    connect(server.target(identities=(str(path),)), ask=person).close()
    assert [secret for _, secret in person.prompts] == [True]


@root_only
def test_a_server_that_lets_no_root_in_gets_a_hint_about_that(server: Sshd) -> None:
    with Sshd({"PermitRootLogin": "no"}) as strict:
        assert "PermitRootLogin" in str(fails(LoginFailed, strict.target("root")).hint)
    error = fails(LoginFailed, server.target("alice", identities=()))
    assert "PermitRootLogin" not in str(error.hint)
