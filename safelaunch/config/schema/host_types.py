"""The value types of a hosts file: where a machine is, and what it can fetch."""

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
# hosts behind another port write it here: one machine may have a port for each address
_ADDRESS = r"[A-Za-z0-9_][A-Za-z0-9._-]*(:[0-9]+)?|[0-9A-Fa-f:.]+(%[\w.-]+)?"
_ADDRESS += r"|\[[0-9A-Fa-f:.]+(%[\w.-]+)?\](:[0-9]+)?"


def check_no_password(node: Node, user: str | None = None) -> None:
    """Refuse `user:password`, by default in front of an `@`. Raises ConfigError."""
    said = node.text.removeprefix("ssh://").rpartition("@")[0] if user is None else user
    if ":" in said:
        raise ConfigError(
            "a password does not belong into a file",
            where=node.origin,
            hint=f"leave it out; {INSTEAD.format(name='NAME')}",
        )


class Address(Text):
    """A name or a number under which a machine is reached, with a port or without."""

    def __init__(self) -> None:
        super().__init__("an address", _ADDRESS, "is no address: a name or a number, and `:port`")

    def read(self, node: Node) -> str:
        """Return the address; a user has a key of its own."""
        if node.kind == "scalar" and "@" in node.text:
            check_no_password(node)
            user, _, host = node.text.rpartition("@")
            raise ConfigError(
                "a user in an address",
                where=node.origin,
                hint=f"write `address: {host}` and `user: {user}`",
            )
        return super().read(node)


class Addresses(ListOf):
    """One address, or several of the same machine in the order in which they are tried."""

    def __init__(self) -> None:
        super().__init__(Address(), "addresses", single=True)

    def read(self, node: Node) -> tuple[str, ...]:
        """Return the addresses; at least one."""
        found = super().read(node)
        if not found:
            raise wrong(node, self.wants)
        if len(set(found)) != len(found):
            raise ConfigError("an address is listed twice", where=node.origin)
        return found

    def schema(self) -> Shape:
        """Return the shape for editors."""
        one = self.item.schema()
        several = json_types.listed(one, minItems=1)
        return json_types.either(one, several)


class SshName(Text):
    """A name in ~/.ssh/config, as one types it behind `ssh`."""

    def __init__(self) -> None:
        super().__init__(
            "a name", r"[^\s-]\S*", "is no name of ~/.ssh/config: no blanks, no `-` first"
        )

    def read(self, node: Node) -> str:
        """Return the name."""
        if node.kind == "scalar":
            check_no_password(node)
        return super().read(node)


class Port:
    """A TCP port."""

    wants = "a port from 1 to 65535"

    def read(self, node: Node) -> int:
        """Return the number."""
        if node.kind != "scalar" or not re.fullmatch(_PORT, node.text):
            raise wrong(node, self.wants)
        if int(node.text) > _MAX_PORT:
            raise wrong(node, self.wants)
        return int(node.text)

    def schema(self) -> Shape:
        """Return the shape for editors."""
        number = {"type": "integer", "minimum": 1, "maximum": _MAX_PORT}
        quoted = {"type": "string", "pattern": f"^{_PORT}$"}
        return json_types.either(number, quoted)


class User(Text):
    """The name of an account on the machine."""

    def __init__(self) -> None:
        super().__init__(
            "a user",
            r"[A-Za-z0-9_][^\s:/'\x22`;&<>|(){}$]*\$?(?<!\\)",
            "is no user name: no blank, `:` or sign that a shell reads",
        )

    def read(self, node: Node) -> str:
        """Return the name; a password behind it is refused."""
        if node.kind == "scalar":
            check_no_password(node, node.text)
        return super().read(node)


class Hub:
    """Where models and data come from: the hub itself, a mirror, or nowhere."""

    wants = "online, offline or the address of a mirror such as https://hub.example"

    def read(self, node: Node) -> str:
        """Return the word or the address."""
        said = Text(self.wants).read(node)
        if said in ("online", "offline") or re.fullmatch(_MIRROR, said):
            return said
        error = wrong(node, self.wants)
        if re.fullmatch(r"[\w-]+(\.[\w-]+)+(/\S*)?", said):
            error.hint = f"did you mean `https://{said}`?"
        raise error

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return json_types.either(
            json_types.words("online", "offline"),
            json_types.text(_MIRROR, f"expected {self.wants}"),
        )
