"""`[user@]host[:port]` in its parts, checked before any of it comes near a shell."""

from __future__ import annotations

import re
from typing import NamedTuple

from safelaunch.errors import ConfigError

PORT = 22
_BRACKETED = re.compile(r"\[(?P<host>[^\[\]]+)\](:(?P<port>[0-9]*))?")
# What OpenSSH refuses as well: it would reach the shell that runs a ProxyCommand.
_UNSAFE_HOST = re.compile(r"^-|[\s/@\[\]\x00-\x1f\x7f'\"`$\\;&<>|(){}]")
_UNSAFE_USER = re.compile(r"^-|[\x00-\x1f\x7f'\"`;&<>|(){}]|\\$")


class Place(NamedTuple):
    """A machine as a command line names it."""

    host: str
    user: str | None = None
    port: int | None = None


def place(text: str, where: object = None) -> Place:
    """Return the parts of `[user@]host[:port]` or of an ssh:// address.

    An IPv6 address stands in brackets where a port follows. Raises ConfigError where it is none.
    """
    rest = text.removeprefix("ssh://").removesuffix("/") if text.startswith("ssh://") else text
    user, at, host = rest.rpartition("@")
    port = ""
    found = _BRACKETED.fullmatch(host)
    if found is not None:
        host, port = found["host"], found["port"] or ""
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if ":" in user:
        raise ConfigError(
            "a password does not belong into an address",
            where=where,
            hint="leave it out: `safelaunch hosts add` asks for it once and installs a key",
        )
    if not host or (at and not user) or _UNSAFE_HOST.search(host) or _UNSAFE_USER.search(user):
        raise ConfigError(f"`{text}` is no host", where=where, hint="write [user@]host[:port]")
    return Place(host, user or None, port_number(port, where) if port else None)


def port_number(text: str, where: object) -> int:
    """Return the number of a port. Raises ConfigError."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 0 < int(text) < 1 << 16:
        raise ConfigError(f"`{text}` is no port", where=where, hint="a number from 1 to 65535")
    return int(text)
