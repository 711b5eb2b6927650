"""What a file may declare: keys with their types and a line of help. Unknown keys are errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config.schema.json_types import nullable, record
from safelaunch.config.schema.text_checks import check_kind
from safelaunch.config.yaml_io.node import overlay
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.secrets_in_text import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Callable

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
        """Refuse unknown keys with the nearest declared name, and secrets by name."""
        names = {key.name for key in self.keys}
        for key, _ in node.items:
            if key.text in names:
                continue
            if is_secret_name(key.text):
                raise ConfigError(
                    f"`{key.text}`: a secret does not belong in a file",
                    where=key.origin,
                    hint="use an SSH key or agent; tokens go under `env_from: [NAME]`",
                )
            raise ConfigError(
                f"unknown key `{key.text}`",
                where=key.origin,
                hint=did_you_mean(key.text, names) or f"known: {', '.join(sorted(names))}",
            )

    def read(self, node: Node) -> tuple[dict[str, Any], dict[str, Origin]]:
        """Return the values of a map node by key and their origins; nulls are absent."""
        self.check_keys(node)
        types = {key.name: key.type for key in self.keys}
        present = [(key.text, value) for key, value in node.items if not value.is_null]
        values = {key: types[key].read(value) for key, value in present}
        return values, {key: value.origin for key, value in present}

    def with_parents(self, tree: Node, read: Callable[[Node], Node]) -> Node:
        """Return a tree merged over those that its `extends` names, each as `read` returns it."""
        parents = tree.get("extends")
        if parents is None or parents.is_null:
            return tree
        next(key for key in self.keys if key.name == "extends").type.read(parents)
        base: Node | None = None
        for parent in parents.items if parents.kind == "list" else (parents,):
            base = overlay(base, read(parent))
        return overlay(base, tree)

    def schema(self) -> Shape:
        """Return the JSON Schema; each key may be null."""
        keys = self.keys
        return record({k.name: {**nullable(k.type.schema()), "description": k.help} for k in keys})


class Block(NamedTuple):
    """A mapping with keys of its own, read as `result` with a keyword for each key."""

    keys: Schema
    wants: str
    result: Callable[..., Any] = dict

    def read(self, node: Node) -> Any:
        """Return the result; a null key is absent."""
        check_kind(node, "map", self.wants)
        return self.result(**self.keys.read(node)[0])

    def schema(self) -> Shape:
        """Return the JSON Schema."""
        return self.keys.schema()
