"""What went wrong between here and a host, in the user's words: each failure, and what to do next.

Makes errors; connects to nothing. `where` in each is the host's name.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from safelaunch.errors import HostError
from safelaunch.runtime.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.ssh.config.target import Target


class Unreachable(HostError):  # noqa: N818 - reads as what happened
    """No SSH server answered. Another way to the machine, or another time, may do."""


class Unknown(Unreachable):
    """The name server does not know the name: it may be misspelt."""


class Dropped(Unreachable):
    """A server took the connection and hung up before it said anything: worth another try."""


class Untrusted(HostError):  # noqa: N818 - reads as what happened
    """The machine that answered could not prove to be the one that is meant."""


class LoginFailed(HostError):  # noqa: N818 - reads as what happened
    """The server lets us not in."""


class TooManyKeys(LoginFailed):
    """The server hung up after some of our keys; one that comes later may do."""


class Unusable(HostError):  # noqa: N818 - reads as what happened
    """We are in, and cannot run commands."""


class ConnectionLost(ConnectionError):  # noqa: N818 - reads as what happened
    """The connection ended in the middle; what the host does meanwhile is not known here."""


_UNREACHABLE = {
    getattr(errno, name)
    for name in ("ENETUNREACH", "EHOSTUNREACH", "ENETDOWN", "WSAENETUNREACH", "WSAEHOSTUNREACH")
    if hasattr(errno, name)
}


def unresolved(target: Target, error: OSError | UnicodeError) -> HostError:
    """Return the error of a name that the resolver does not know."""
    shown = f"`{target.address}`" + ("" if target.address == target.name else " (its address)")
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
        return Unreachable(
            f"the name {shown} cannot be looked up now: the name server does not answer",
            where=target.name,
            hint="is this machine on the network, and the VPN up?",
        )
    return Unknown(
        f"no such name: {shown} is not known to the name server",
        where=target.name,
        hint="is it spelt so (`safelaunch hosts` lists your machines)? Some names are only known "
        "inside a VPN",
    )


def adding(target: Target) -> str:
    """Return the command that lets a key in, for a hint."""
    if "@" in target.name or ":" in target.name:
        return f"safelaunch hosts add NAME {target.name}"
    return f"safelaunch hosts add {target.name}"


def not_connected(target: Target, error: OSError, seconds: float) -> HostError:
    """Return the error of a TCP connection that did not come about."""
    place = f"{target.address} port {target.port}"
    if isinstance(error, ConnectionRefusedError):
        return Unreachable(
            f"{place} refuses connections: the machine is there, no SSH server listens",
            where=target.name,
            hint=f"is sshd running, and is {target.port} its port?",
        )
    if isinstance(error, TimeoutError):
        return Unreachable(
            f"{place} does not answer (tried for {seconds:g} s)",
            where=target.name,
            hint="is the machine on and the VPN up? a firewall that drops packets looks the same",
        )
    if error.errno in _UNREACHABLE:
        return Unreachable(
            f"no way to {place}: {error.strerror}",
            where=target.name,
            hint="is this machine on the network, and the VPN up?",
        )
    return Unreachable(f"{place}: {error.strerror or error}", where=target.name)


def not_forwarded(target: Target, jump: str, reason: str) -> HostError:
    """Return the error of a jump host that opens no way on."""
    prohibited = "prohibited" in reason.lower()
    return Unreachable(
        f"jump host `{jump}` opens no connection to {target.address} port {target.port}: "
        f"{reason or 'no reason given'}",
        where=target.name,
        hint=f"`AllowTcpForwarding` or `PermitOpen` in the sshd_config of `{jump}` forbids it"
        if prohibited
        else f"the name and the port are as `{jump}` sees them: try `nc -vz {target.address} "
        f"{target.port}` there",
    )


def dropped(target: Target, tries: int, last: str) -> HostError:
    """Return the error of a server that hangs up before it has said who it is."""
    times = "once" if tries == 1 else f"{tries} times"
    said = f" ({last})" if last else ""
    return Dropped(
        f"{target.address} port {target.port} took the connection and closed it before the SSH "
        f"handshake, {times}{said}",
        where=target.name,
        hint="sshd may be restarting, have too many logins at once (MaxStartups), or have banned "
        "this address for a while (fail2ban, PerSourcePenalties): wait some minutes, and look at "
        "sshd's log there",
    )


def no_ssh(target: Target, said: str) -> HostError:
    """Return the error of a server that speaks, but not SSH."""
    return Unreachable(
        f"what answers at {target.address} port {target.port} is no SSH server: it said "
        f"{said[:80]!r}",
        where=target.name,
        hint="is this the right port?",
    )


def mute(target: Target, seconds: float, stage: str) -> HostError:
    """Return the error of a server that stops answering in the middle of the handshake."""
    return Unreachable(
        f"{target.address} port {target.port} took the connection, and did not finish {stage} in "
        f"{seconds:g} s",
        where=target.name,
        hint="the machine may be out of memory or stuck in disk access; where only small packets "
        "get through, the MTU of a VPN is too large",
    )


def handshake(target: Target, told: str) -> HostError:
    """Return the error of a key exchange that failed."""
    return Unreachable(
        f"the SSH handshake with {target.address} port {target.port} failed: {printable(told)}",
        where=target.name,
        hint="the server may only know methods that are not safe any more, or none but "
        f"chacha20-poly1305, which is not supported: compare with `ssh -v {target.name}`",
    )


def proxy(target: Target, command: str, told: str, code: int | None) -> HostError:
    """Return the error of a proxy command that ended or gave nothing."""
    end = "" if code is None else f" (exit code {code})"
    said = f": {printable(told.strip().splitlines()[-1])}" if told.strip() else ""
    return Unreachable(
        f"the proxy command `{command}` opened no connection{end}{said}",
        where=target.name,
        hint="try it in a shell: it should show a line that begins with SSH-",
    )


def several(name: str, errors: Sequence[HostError]) -> HostError:
    """Return one error for a machine that no way leads to."""
    if len(errors) == 1:
        return errors[0]
    told = "; ".join(error.message for error in errors)
    return Unreachable(
        f"none of its {len(errors)} addresses works: {told}", where=name, hint=errors[0].hint
    )


def at_jump(target: Target, jump: str, error: HostError) -> HostError:
    """Return an error of a jump host as one of the machine behind it."""
    return type(error)(f"jump host `{jump}`: {error.message}", where=target.name, hint=error.hint)


# -- login


def too_many(target: Target, tried: Sequence[str]) -> HostError:
    """Return the error of a server that hung up after MaxAuthTries keys."""
    return TooManyKeys(
        f"the server hung up after {len(tried)} keys that it does not know "
        f"(its MaxAuthTries): {', '.join(tried)}",
        where=target.name,
        hint="there are too many keys in the agent: name the right one with `identity` in the "
        "hosts file, or with `IdentityFile` and `IdentitiesOnly yes` in ~/.ssh/config",
    )


def not_let_in(
    target: Target, tried: Sequence[str], offers: Sequence[str], advice: Sequence[str], told: str
) -> HostError:
    """Return the error of a login that no method achieved."""
    user = f"{target.user}@{target.address}"
    shown = ", ".join(tried) or "nothing: there is no key here to try"
    said = f"; it says: {told}" if told else ""
    return LoginFailed(
        f"{user} is not let in: tried {shown}; the server offers "
        f"{', '.join(offers) or 'nothing'}{said}",
        where=target.name,
        hint="; ".join(advice) or None,
    )


def login_cut(target: Target, reason: str) -> HostError:
    """Return the error of a server that ended the connection during the login, and said why."""
    return LoginFailed(
        f"the server ended the login of `{target.user}`: {reason}",
        where=target.name,
        hint="look at sshd's log there",
    )


def lost_in_login(target: Target, reason: str) -> HostError:
    """Return the error of a connection that was lost during the login."""
    return Unreachable(
        f"the connection was lost during the login of `{target.user}`"
        + (f": {reason}" if reason else ""),
        where=target.name,
        hint="try again; where it happens each time, look at sshd's log there (LoginGraceTime, "
        "fail2ban)",
    )


# -- commands


def no_session(where: str, reason: str) -> HostError:
    """Return the error of a server that opens no session."""
    return Unusable(
        f"the server opens no session: {reason}",
        where=where,
        hint="`MaxSessions` in its sshd_config limits the sessions of one connection, and 0 "
        "forbids them",
    )


def no_command(where: str) -> HostError:
    """Return the error of a server that runs no commands."""
    return Unusable(
        "the server runs no commands for this user",
        where=where,
        hint="the account may be for file transfer or jumps only (ForceCommand, `restrict` in "
        "authorized_keys)",
    )


_SIGNS = (
    (
        ("no space left on device", "disk quota exceeded"),
        "the disk is full there",
        "free some space, or set `workdir` and SAFELAUNCH_HOME to another disk",
    ),
    (
        ("read-only file system", "permission denied"),
        "a folder cannot be written there",
        "is the home directory there, mounted and the user's own?",
    ),
    (
        ("python3: not found", "python3: command not found", "python: not found"),
        "there is no python3 on the PATH of a login without a terminal",
        "install Python 3.8 or newer, or name one with `python:` in the hosts file",
    ),
)


def no_answer(where: str, out: bytes, err: str, code: int | None) -> HostError:
    """Return why a command that should have answered ended without: from what it left behind."""
    text = (out[-4096:].decode("utf-8", "replace") + "\n" + err[-4096:]).strip()
    low = text.lower()
    last = printable(text.splitlines()[-1]) if text else ""
    if "not available" in low and "account" in low:
        return Unusable(
            f"the account has no shell: {last}",
            where=where,
            hint="its login shell is nologin: ask for a real one (`chsh -s /bin/bash`)",
        )
    for signs, what, hint in _SIGNS:
        if any(sign in low for sign in signs):
            return Unusable(f"{what}: {last}", where=where, hint=hint)
    if not text and code in (0, 1):
        return Unusable(
            f"a command ended at once and said nothing (exit code {code})",
            where=where,
            hint="the login shell may be /bin/false, or a startup file (.bashrc, .profile) may "
            "end the shell: see `getent passwd $USER` there",
        )
    shown = f": {last}" if last else ""
    return Unusable(
        f"a command ended with exit code {code} before it answered{shown}",
        where=where,
        hint="what startup files (.bashrc, .profile) print or run comes first: try "
        f"`ssh {where} true`",
    )
