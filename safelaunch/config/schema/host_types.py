"""The value types of a hosts file: how a machine is reached, and where its models come from."""
# ruff: noqa: D102 - types.Type describes `read` and `schema`

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.config.schema import json_types
from safelaunch.config.schema.text_checks import wrong
from safelaunch.config.schema.types import ListOf, Text
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node

INSTEAD = "`safelaunch hosts add {name}` asks for the password once and installs a key"
_MAX_PORT = (1 << 16) - 1
_PORT = r"[1-9][0-9]{0,4}"
_MIRROR = r"https?://[^\s/'\x22]+(/[^\s'\x22]*)?"
# an address may have a port of its own: one machine may have a different one for each
_ADDRESS = r"[A-Za-z0-9_][A-Za-z0-9._-]*(:[0-9]+)?|[0-9A-Fa-f:.]+(%[\w.-]+)?"
_ADDRESS += r"|\[[0-9A-Fa-f:.]+(%[\w.-]+)?\](:[0-9]+)?"

HOST_NAME = Text(
    "a host",
    r"[A-Za-z0-9_\[:][A-Za-z0-9._@:%\[\]-]*",
    "is no host name: letters, digits, `.`, `-`, `_`, `:` and `@`, no blanks",
)


def check_no_password(node: Node, user: str | None = None) -> None:
    """Refuse `user:password`, by default in front of an `@`. Raises ConfigError."""
    if ":" in (node.text.removeprefix("ssh://").rpartition("@")[0] if user is None else user):
        raise ConfigError(
            "a password does not belong in a file",
            where=node.origin,
            hint=f"remove it; {INSTEAD.format(name='NAME')}",
        )


def _check_no_user(node: Node) -> None:
    if "@" in node.text:
        check_no_password(node)
        user, _, host = node.text.rpartition("@")
        hint = f"write `address: {host}` and `user: {user}`"
        raise ConfigError("a user in an address", where=node.origin, hint=hint)


class Addresses(ListOf):
    """One address, or several of the same machine in the order in which they are tried."""

    def __init__(self) -> None:
        rule = "is no address: a name or a number, and `:port`"
        item = Text("an address", _ADDRESS, rule, _check_no_user)
        super().__init__(item, "addresses", single=True)

    def read(self, node: Node) -> tuple[str, ...]:
        addresses = super().read(node)
        if not addresses:
            raise wrong(node, self.wants)
        if len(set(addresses)) != len(addresses):
            raise ConfigError("an address is listed twice", where=node.origin)
        return addresses

    def schema(self) -> Shape:
        address = self.item.schema()
        return json_types.either(address, json_types.listed(address, minItems=1))


SSH_NAME = Text(
    "a name",
    r"[^\s-]\S*",
    "is no name of ~/.ssh/config: no blanks, no `-` first",
    check_no_password,
)
USER = Text(
    "a user",
    r"[A-Za-z0-9_][^\s:/'\x22`;&<>|(){}$]*\$?(?<!\\)",
    "is no user name: no blank, `:` or sign that a shell reads",
    lambda node: check_no_password(node, node.text),
)


class Port:
    """A TCP port."""

    wants = "a port from 1 to 65535"

    def read(self, node: Node) -> int:
        is_number = node.kind == "scalar" and re.fullmatch(_PORT, node.text)
        if not is_number or int(node.text) > _MAX_PORT:
            raise wrong(node, self.wants)
        return int(node.text)

    def schema(self) -> Shape:
        number = {"type": "integer", "minimum": 1, "maximum": _MAX_PORT}
        quoted = {"type": "string", "pattern": f"^{_PORT}$"}
        return json_types.either(number, quoted)


class Hub:
    """Where models and data come from: the hub itself, a mirror, or nowhere."""

    wants = "online, offline or the address of a mirror such as https://hub.example"

    def read(self, node: Node) -> str:
        hub = Text(self.wants).read(node)
        if hub in ("online", "offline") or re.fullmatch(_MIRROR, hub):
            return hub
        error = wrong(node, self.wants)
        if re.fullmatch(r"[\w-]+(\.[\w-]+)+(/\S*)?", hub):
            error.hint = f"did you mean `https://{hub}`?"
        raise error

    def schema(self) -> Shape:
        mirror = json_types.text(_MIRROR, f"expected {self.wants}")
        return json_types.either(json_types.words("online", "offline"), mirror)
