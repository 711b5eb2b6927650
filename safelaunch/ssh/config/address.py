"""Parse `[user@]host[:port]`, reject characters that are unsafe in a shell, match patterns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

STANDARD_PORT = 22
_BRACKETED = re.compile(r"\[(?P<host>[^\[\]]+)\](:(?P<port>[0-9]*))?")
# OpenSSH refuses these too: they would reach the shell that runs a ProxyCommand.
_UNSAFE_HOST = re.compile(r"^-|[\s/@\[\]\x00-\x1f\x7f'\"`$\\;&<>|(){}]")
_UNSAFE_USER = re.compile(r"^-|[\x00-\x1f\x7f'\"`;&<>|(){}]|\\$")


class Address(NamedTuple):
    """The host, user and port of an address on the command line."""

    host: str
    user: str | None = None
    port: int | None = None


def parse_address(text: str, where: object = None) -> Address:
    """Return the parts of `[user@]host[:port]` or of an ssh:// address.

    An IPv6 address with a port must be in brackets. Raises ConfigError if it is not valid.
    """
    rest = text.removeprefix("ssh://").removesuffix("/") if text.startswith("ssh://") else text
    user, separator, host = rest.rpartition("@")
    port = ""
    bracketed = _BRACKETED.fullmatch(host)
    if bracketed is not None:
        host, port = bracketed["host"], bracketed["port"] or ""
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if ":" in user:
        raise ConfigError(
            "an address must not contain a password",
            where=where,
            hint="remove it: `safelaunch hosts add` asks for it once and installs a key",
        )
    if (
        not host
        or (separator and not user)
        or _UNSAFE_HOST.search(host)
        or _UNSAFE_USER.search(user)
    ):
        raise ConfigError(f"`{text}` is not a host", where=where, hint="write [user@]host[:port]")
    return Address(host, user or None, parse_port(port, where) if port else None)


def parse_port(text: str, where: object) -> int:
    """Return a port number. Raises ConfigError if it is not valid."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 0 < int(text) < 1 << 16:
        raise ConfigError(f"`{text}` is not a port", where=where, hint="a number from 1 to 65535")
    return int(text)


def matches_patterns(patterns: Iterable[str], name: str) -> bool:
    """Whether a pattern matches the whole name, and none that begins with `!` does.

    `*` and `?` are wildcards, brackets are literal.
    """
    matched = False
    for pattern in patterns:
        parts = ({"*": ".*", "?": "."}.get(c) or re.escape(c) for c in pattern.removeprefix("!"))
        if re.fullmatch("".join(parts), name, re.DOTALL):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched
