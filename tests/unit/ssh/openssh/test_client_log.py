from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.ssh import errors
from safelaunch.ssh.config.target import Target
from safelaunch.ssh.openssh import client_log

if TYPE_CHECKING:
    from safelaunch.errors import HostError

BOX = Target("box", "10.0.0.1", 22, "me", ())
REACHED = "debug1: Remote protocol version 2.0, remote software version X\n"
OFFERED = "debug1: Offering public key: /k ED25519 SHA256:abc explicit\n"
ACCEPTED = "debug1: Server accepts key: /k ED25519 SHA256:abc explicit\n"
DENIED = "me@10.0.0.1: Permission denied (publickey,password).\n"


def error(log: str, stderr: str = "", target: Target = BOX) -> HostError:
    return client_log.login_error(target, log, stderr, 1, may_prompt=False)


NO_CIPHER = "Unable to negotiate with 10.0.0.1 port 22: no matching cipher found. Their offer: x\n"
UNKNOWN = "debug1: Server host key: ssh-ed25519 SHA256:abc\nHost key verification failed.\n"
PARTIAL = f'{OFFERED}{ACCEPTED}Authenticated using "publickey" with partial success.\n'
MORE = "me@10.0.0.1: Permission denied (password).\n"
TOO_MANY = "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\n"
NO_NAME = "ssh: Could not resolve hostname x: "
NO_PORT = "ssh: connect to host 10.0.0.1 port 22: "
CLOSED = "kex_exchange_identification: "


@pytest.mark.parametrize(
    ("log", "kind", "message"),
    [
        (f"{NO_NAME}Name or service not known", errors.UnknownHostName, "no such host"),
        (f"{NO_NAME}Temporary failure in name resolution", errors.Unreachable, "not answer"),
        (f"{NO_PORT}Connection refused", errors.Unreachable, "refuses connections"),
        (f"{NO_PORT}Connection timed out", errors.Unreachable, "does not answer"),
        (f"{NO_PORT}No route to host", errors.Unreachable, "no route to"),
        (f"{CLOSED}Connection closed by remote host", errors.ClosedBeforeHandshake, "closed it"),
        (f"{CLOSED}read: Connection reset by peer", errors.ClosedBeforeHandshake, "closed it"),
        ("Connection timed out during banner exchange", errors.Unreachable, "its greeting"),
        ("banner exchange: to 10.0.0.1: invalid format", errors.Unreachable, "not an SSH server"),
        (f"{REACHED}{NO_CIPHER}", errors.NoCommonAlgorithm, "no matching cipher"),
        (f"{REACHED}{UNKNOWN}", errors.UntrustedHostKey, "is not known: ED25519 SHA256:abc"),
        (f"{REACHED}{OFFERED}{DENIED}", errors.LoginFailed, "tried /k (ED25519 SHA256:abc); the"),
        (f"{REACHED}{PARTIAL}{MORE}", errors.IncompleteLogin, "and wants password besides"),
        (f"{REACHED}{OFFERED}{TOO_MANY}", errors.TooManyKeys, "MaxAuthTries"),
        (f"{REACHED}something new\n", errors.Unreachable, "something new"),
        ("", errors.Unreachable, "no reason given"),
    ],
)
def test_an_error_of_ssh_is_the_error_that_paramiko_would_give(
    log: str, kind: type[HostError], message: str
) -> None:
    failure = error(f"debug1: Connecting\n{log}")
    assert type(failure) is kind
    assert message in failure.message
    assert failure.hint


def test_what_fails_on_the_way_is_said_in_its_words() -> None:
    through = Target("box", "10.0.0.1", 22, "me", (), jumps=(Target("jump", "j", 22, "me", ()),))
    closed = "kex_exchange_identification: Connection closed by remote host\n"
    failure = error(closed, DENIED, through)
    assert type(failure) is errors.LoginFailed
    assert failure.message.startswith("on the way: ")
    forwarded = "channel 0: open failed: administratively prohibited: open failed\r\n"
    failure = error(closed, forwarded, through)
    assert "jump host `jump` opens no connection" in failure.message
    assert "AllowTcpForwarding" in str(failure.hint)


def test_a_credential_is_the_key_with_its_file() -> None:
    log = f'{ACCEPTED}Authenticated to box ([10.0.0.1]:22) using "publickey".\n'
    assert client_log.credential(log) == "/k (ED25519 SHA256:abc)"
    assert client_log.credential(log.replace("publickey", "password")) == "a password"
    assert client_log.credential("") == client_log.SHARED


def test_text_of_a_server_is_shown_without_control_characters() -> None:
    assert "\x1b" not in str(error(f"{REACHED}\x1b]0;title\x07\x1b[31mred\n"))
