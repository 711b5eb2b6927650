from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.errors import ConfigError
from safelaunch.model import Host
from safelaunch.ssh.config.local_user import LocalUser
from safelaunch.ssh.config.target import resolve_target
from safelaunch.ssh.openssh import client, selection

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.ssh.config.target import Target

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIHlvdSByZWFkIHRoaXM/IEl0IGlzIG5vIHJlYWwga2V5"
SK_KEY = "AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29t"  # its type alone


def reach(tmp_path: Path, config: str, transport: str | None = None) -> Target:
    (tmp_path / ".ssh").mkdir(exist_ok=True)
    (tmp_path / ".ssh" / "config").write_text(config)
    (tmp_path / ".ssh" / "config").chmod(0o600)
    local = LocalUser(str(tmp_path), "me", {}, "1000", "desk")
    return resolve_target("gpu1", Host("gpu1", transport=transport), local)


def need(tmp_path: Path, config: str) -> str | None:
    target = reach(tmp_path, config)
    return selection.need(target, (target,))


@pytest.mark.parametrize(
    "line",
    [
        "ControlPath ~/.ssh/%C",
        "PKCS11Provider /usr/lib/opensc-pkcs11.so",
        "GSSAPIAuthentication yes",
        "Ciphers chacha20-poly1305@openssh.com",
        "KexAlgorithms sntrup761x25519-sha512@openssh.com",
        "PreferredAuthentications gssapi-with-mic",
        "RevokedHostKeys /etc/ssh/revoked",
        "ProxyUseFdpass yes",
        "Match exec true\n  Port 23",
        "Host gpu1\n  ProxyJump jump\nHost jump\n  KnownHostsCommand /bin/keys",
    ],
)
def test_a_setting_that_paramiko_lacks_needs_ssh(tmp_path: Path, line: str) -> None:
    assert str(need(tmp_path, f"{line}\n")).startswith("~/.ssh/config:")


@pytest.mark.parametrize(
    "line",
    [
        "ControlPath none",
        "ControlMaster auto",
        "GSSAPIAuthentication no",
        "ServerAliveInterval 5",
        "Host other\n  ControlPath ~/.ssh/%C",
        "ProxyUseFdpass no",
        "PKCS11Provider none",
    ],
)
def test_other_settings_do_not(tmp_path: Path, line: str) -> None:
    assert need(tmp_path, f"{line}\n") is None


def test_a_fido_key_needs_ssh(tmp_path: Path) -> None:
    key = tmp_path / "id_sk"
    (tmp_path / "id_sk.pub").write_text(f"sk-ssh-ed25519@openssh.com {SK_KEY} me\n")
    assert need(tmp_path, f"IdentityFile {key}\n") == f"{key} is a FIDO key"


@pytest.mark.parametrize(("hosts", "needs"), [("*", True), ("gpu2", False)])
def test_a_certificate_authority_for_the_host_needs_ssh(
    tmp_path: Path, hosts: str, needs: bool
) -> None:
    (tmp_path / ".ssh").mkdir()
    known_hosts = tmp_path / ".ssh" / "known_hosts"
    known_hosts.write_text(f"@cert-authority {hosts} ssh-ed25519 {KEY}\n")
    assert need(tmp_path, "") == (f"{known_hosts}:1: `@cert-authority`" if needs else None)


def test_the_hosts_file_decides_before_the_configuration(tmp_path: Path) -> None:
    plain, shared = "Port 22\n", "ControlPath ~/.ssh/%C\n"
    target = reach(tmp_path, shared, "paramiko")
    assert not selection.uses_openssh(target, (target,))
    target = reach(tmp_path, plain, "ssh")
    assert selection.program() is None or selection.uses_openssh(target, (target,))


def test_without_a_program_ssh_is_an_error_only_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    target = reach(tmp_path, "ControlPath ~/.ssh/%C\n")
    assert not selection.uses_openssh(target, (target,))
    target = reach(tmp_path, "", "ssh")
    with pytest.raises(ConfigError, match="there is no `ssh` here"):
        selection.uses_openssh(target, (target,))


def test_what_ssh_gets_cannot_be_taken_for_an_option(tmp_path: Path) -> None:
    """A host with `-` in front is refused already where its name is read."""
    with pytest.raises(ConfigError, match="is not a host"):
        resolve_target("-oProxyCommand=x", None, LocalUser(str(tmp_path), "me", {}))
    target = reach(tmp_path, "HostName 10.0.0.1\n", "ssh")
    argv = client.Client("ssh", target, {}, ("ssh",)).argv("/tmp/%C", "-T", command="true")
    assert argv == ["ssh", "-S", "/tmp/%%C", "-T", "--", "gpu1", "true"]


def test_what_would_take_the_streams_of_a_command_is_overridden_where_it_is_set(
    tmp_path: Path,
) -> None:
    settings = {"stdinnull": "yes", "sessiontype": "default", "forkafterauthentication": "yes"}
    ssh = client.Client("ssh", reach(tmp_path, ""), settings, ("ssh",))
    overridden = [word for word in ssh.argv("c", command="true") if "=" in word]
    assert overridden == ["stdinnull=no", "forkafterauthentication=no"]
    assert not [word for word in ssh.argv("c", "-N") if "=" in word]
