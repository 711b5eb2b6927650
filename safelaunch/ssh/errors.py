"""Errors of SSH connections: what failed, and what to do next.

Only constructs errors, connects to nothing. `where` is the host's name in each.
"""
# ruff: noqa: N818 - the names of the classes read as what happened

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from safelaunch.errors import HostError
from safelaunch.runtime.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.ssh.config.target import Target


class Unreachable(HostError):
    """No SSH server answered; another address of the machine, or a later attempt, may work."""

    code = "host-unreachable"


class UnknownHostName(Unreachable):
    """The name server does not know the host name, which may be misspelt."""

    code = "host-unknown"


class ClosedBeforeHandshake(Unreachable):
    """A server closed the connection before the SSH handshake; a retry may work."""


class NoCommonAlgorithm(Unreachable):
    """The server offers no cipher, key exchange or host key that the client has."""

    code = "host"


class UntrustedHostKey(HostError):
    """The host key is not the expected one, or was not accepted."""

    code = "host-key"


class LoginFailed(HostError):
    """The server accepted none of the credentials."""

    code = "host-login"


class IncompleteLogin(LoginFailed):
    """The server accepted a key, and wants a password or a code besides."""


class TooManyKeys(LoginFailed):
    """The server closed the connection after some keys; a later key may work."""


class NoCommandSession(HostError):
    """The login worked, but commands cannot be run."""

    code = "host-commands"


class ConnectionLost(ConnectionError):
    """The connection ended unexpectedly; the state of the host is unknown."""


_UNREACHABLE = {
    getattr(errno, name)
    for name in ("ENETUNREACH", "EHOSTUNREACH", "ENETDOWN", "WSAENETUNREACH", "WSAEHOSTUNREACH")
    if hasattr(errno, name)
}


def name_not_resolved(target: Target, error: OSError | UnicodeError) -> HostError:
    """Return the error of a host name that cannot be resolved."""
    shown = f"`{target.address}`" + ("" if target.address == target.name else " (its address)")
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
        return Unreachable(
            f"cannot resolve {shown}: the name server does not answer",
            where=target.name,
            hint="is this machine on the network, and the VPN up?",
        )
    return UnknownHostName(
        f"no such host: the name server does not know {shown}",
        where=target.name,
        hint="check the spelling (`safelaunch hosts` lists your machines); some names are only "
        "known inside a VPN",
    )


def install_key_command(target: Target) -> str:
    """Return the command that installs a key on the host, for a hint."""
    if "@" in target.name or ":" in target.name:
        return f"safelaunch hosts add NAME {target.name}"
    return f"safelaunch hosts add {target.name}"


def tcp_connect_failed(target: Target, error: OSError, seconds: float) -> HostError:
    """Return the error of a TCP connection that could not be opened."""
    place, hint = f"{target.address} port {target.port}", None
    text = f"{place}: {error.strerror or error}"
    if isinstance(error, ConnectionRefusedError):
        text = f"{place} refuses connections: the machine is up, but no SSH server listens there"
        hint = f"is sshd running, and is {target.port} its port?"
    elif isinstance(error, TimeoutError):
        text = f"{place} does not answer (tried for {seconds:g} s)"
        hint = "is the machine on, and the VPN up? A firewall may also drop the packets"
    elif error.errno in _UNREACHABLE:
        text = f"no route to {place}: {error.strerror}"
        hint = "is this machine on the network, and the VPN up?"
    return Unreachable(text, where=target.name, hint=hint)


def forwarding_refused(target: Target, jump: str, reason: str) -> HostError:
    """Return the error of a jump host that does not forward the connection."""
    prohibited = "prohibited" in reason.lower()
    return Unreachable(
        f"jump host `{jump}` opens no connection to {target.address} port {target.port}: "
        f"{reason or 'no reason given'}",
        where=target.name,
        hint=f"`AllowTcpForwarding` or `PermitOpen` in the sshd_config of `{jump}` forbids it"
        if prohibited
        else f"the name is resolved on `{jump}`: try `nc -vz {target.address} {target.port}` there",
    )


def closed_before_handshake(target: Target, tries: int, last: str) -> HostError:
    """Return the error of a server that closes the connection before its SSH greeting."""
    times = "once" if tries == 1 else f"{tries} times"
    reason = f" ({last})" if last else ""
    return ClosedBeforeHandshake(
        f"{target.address} port {target.port} accepted the connection and closed it before the SSH "
        f"handshake, {times}{reason}",
        where=target.name,
        hint="sshd may be restarting, be at its limit of logins (MaxStartups), or have banned "
        "this address for some time (fail2ban, PerSourcePenalties): wait some minutes, then look "
        "at sshd's log on the host",
    )


def not_an_ssh_server(target: Target, reason: str) -> HostError:
    """Return the error of a server that speaks another protocol than SSH."""
    return Unreachable(
        f"{target.address} port {target.port} is not an SSH server: it answered {reason[:80]!r}",
        where=target.name,
        hint="is this the right port?",
    )


def handshake_timeout(target: Target, seconds: float, stage: str) -> HostError:
    """Return the error of a server that stops answering during the handshake."""
    return Unreachable(
        f"{target.address} port {target.port} accepted the connection, but did not finish {stage} "
        f"in {seconds:g} s",
        where=target.name,
        hint="the machine may be out of memory or blocked on disk access; if only small packets "
        "get through, the MTU of a VPN is too large",
    )


def handshake_failed(target: Target, text: str) -> HostError:
    """Return the error of a key exchange that failed."""
    return Unreachable(
        f"the SSH handshake with {target.address} port {target.port} failed: {printable(text)}",
        where=target.name,
        hint=f"compare with `ssh -v {target.name}`",
    )


def no_common_algorithm(target: Target, text: str) -> HostError:
    """Return the error of a server and a client that have no algorithm in common."""
    return NoCommonAlgorithm(
        f"the SSH handshake with {target.address} port {target.port} failed: {printable(text)}",
        where=target.name,
        hint="the server may offer only obsolete algorithms, or only new ones; where `ssh "
        f"{target.name}` works: `transport: ssh` in the hosts file",
    )


def session_refused(where: str, reason: str) -> HostError:
    """Return the error of a server that opens no session for a command."""
    return NoCommandSession(
        f"the server refused to open a session: {reason}",
        where=where,
        hint="`MaxSessions` in its sshd_config limits the sessions per connection; 0 forbids them",
    )


SHARE_LOGIN = (
    "to be asked once for many commands, set ControlMaster, ControlPath and ControlPersist for the "
    "host in ~/.ssh/config"
)


def login_incomplete(
    target: Target, accepted: Sequence[str], offers: Sequence[str], *, may_prompt: bool
) -> HostError:
    """Return the error of a server that wants more than the credentials it has accepted."""
    advice = "" if may_prompt else "safelaunch asks for it only at a terminal: run this in one; "
    return IncompleteLogin(
        f"the server accepts {', '.join(accepted)} for {target.user}@{target.address}, and wants "
        f"{', '.join(offers) or 'something'} besides",
        where=target.name,
        hint=advice + SHARE_LOGIN,
    )


def too_many_keys(target: Target, tried: Sequence[str]) -> HostError:
    """Return the error of a server that closes the connection after some keys."""
    return TooManyKeys(
        f"the server closed the connection after {len(tried)} keys that it does not "
        f"accept (its MaxAuthTries): {', '.join(tried)}",
        where=target.name,
        hint="the agent holds too many keys: name the right one with `identity` in the "
        "hosts file, or with `IdentityFile` and `IdentitiesOnly yes` in ~/.ssh/config",
    )


def proxy_command_failed(target: Target, command: str, text: str, code: int | None) -> HostError:
    """Return the error of a proxy command that exited or printed nothing."""
    end = "" if code is None else f" (exit code {code})"
    reason = f": {printable(text.strip().splitlines()[-1])}" if text.strip() else ""
    return Unreachable(
        f"the proxy command `{command}` opened no connection{end}{reason}",
        where=target.name,
        hint="run it in a shell: it should print a line that begins with SSH-",
    )


def exec_refused(where: str) -> HostError:
    """Return the error of a server that refuses to run commands."""
    return NoCommandSession(
        "the server runs no commands for this user",
        where=where,
        hint="the account may be for file transfer or jumps only (ForceCommand, `restrict` in "
        "authorized_keys)",
    )


_KNOWN_FAILURES = (
    (
        ("safely_chroot", "chroot directory", "chroot("),  # sshd's own words (session.c)
        "sshd cannot give this user the root folder that is set for it",
        "`ChrootDirectory` in its sshd_config must exist, belong to root, and have a shell in it",
    ),
    (
        ("no space left on device", "disk quota exceeded"),
        "the disk of the host is full",
        "free some space, or set `workdir` and SAFELAUNCH_HOME to another disk",
    ),
    (
        ("read-only file system", "permission denied"),
        "a folder of the host is not writable",
        "does the home directory exist, is it mounted, and does it belong to the user?",
    ),
    (
        ("python3: not found", "python3: command not found", "python: not found"),
        "no python3 on the PATH of a login without a terminal",
        "install Python 3.8 or newer, or name one with `python:` in the hosts file",
    ),
)


def command_failed(where: str, out: bytes, err: str, code: int | None) -> HostError:
    """Return the error of a command that ended without an answer, explained from its output."""
    text = (out[-4096:].decode("utf-8", "replace") + "\n" + err[-4096:]).strip()
    lowered = text.lower()
    last = printable(text.splitlines()[-1]) if text else ""
    if "not available" in lowered and "account" in lowered:
        return NoCommandSession(
            f"the account has no shell: {last}",
            where=where,
            hint="its login shell is nologin: ask the administrator for a shell "
            "(`chsh -s /bin/bash`)",
        )
    for fragments, what, hint in _KNOWN_FAILURES:
        if any(fragment in lowered for fragment in fragments):
            return NoCommandSession(f"{what}: {last}", where=where, hint=hint)
    if not text and code in (0, 1):
        return NoCommandSession(
            f"a command ended at once without output (exit code {code})",
            where=where,
            hint="the login shell may be /bin/false, or a startup file (.bashrc, .profile) may "
            "exit: see `getent passwd $USER` on the host",
        )
    shown = f": {last}" if last else ""
    return NoCommandSession(
        f"a command ended with exit code {code} before it answered{shown}",
        where=where,
        hint="a startup file (.bashrc, .profile) may print or run something: try "
        f"`ssh {where} true`",
    )
