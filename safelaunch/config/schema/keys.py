"""What a file may say: keys with their types and a line of help. Unknown keys are errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config.schema.json_types import nullable
from safelaunch.config.schema.text_checks import wrong
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.secrets_in_text import is_secret_name

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node
    from safelaunch.model import Origin


class Key(NamedTuple):
    """One key of a file: its name, type and a line of help."""

    name: str
    type: Any
    help: str


class Schema(NamedTuple):
    """The keys of one kind of file."""

    name: str
    keys: tuple[Key, ...]

    def find(self, name: str) -> Key | None:
        """Return the key of that name, or None."""
        return next((key for key in self.keys if key.name == name), None)

    def check_keys(self, node: Node) -> None:
        """Refuse unknown keys with the nearest known name, and secrets by name."""
        known = {key.name for key in self.keys}
        for key, _ in node.items:
            if key.text in known:
                continue
            if is_secret_name(key.text):
                raise ConfigError(
                    f"`{key.text}`: a secret does not belong into a file",
                    where=key.origin,
                    hint="use an SSH key or agent; tokens go under `env_from: [NAME]`",
                )
            raise ConfigError(
                f"unknown key `{key.text}`",
                where=key.origin,
                hint=did_you_mean(key.text, known) or f"known: {', '.join(sorted(known))}",
            )

    def read(self, node: Node) -> tuple[dict[str, Any], dict[str, Origin]]:
        """Return the values of a map node by key and their origins; nulls are absent."""
        self.check_keys(node)
        types = {key.name: key.type for key in self.keys}
        values, origins = {}, {}
        for key, value in node.items:
            if not value.is_null:
                values[key.text] = types[key.text].read(value)
                origins[key.text] = value.origin
        return values, origins

    def schema(self) -> Shape:
        """Return the shape for editors; each key may be null."""
        keys = {
            key.name: {**nullable(key.type.schema()), "description": key.help} for key in self.keys
        }
        return {"type": "object", "additionalProperties": False, "properties": keys}


class Block:
    """A mapping with keys of its own."""

    def __init__(self, schema: Schema, what: str) -> None:
        self.keys = schema
        self.wants = f"a mapping ({what})"

    def read(self, node: Node) -> dict[str, Any]:
        """Return the values by key; nulls are absent."""
        if node.kind != "map":
            raise wrong(node, self.wants)
        return self.keys.read(node)[0]

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return self.keys.schema()
