"""The block of a file that says what an engine is asked for, each of its keys with its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from safelaunch.config.schema.text_checks import check_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.schema.keys import Schema
    from safelaunch.config.yaml_io.node import Node

EngineBlock = TypeVar("EngineBlock")


class BlockType(Generic[EngineBlock]):
    """A mapping with the keys of a schema, read as the block of an engine."""

    def __init__(self, schema: Schema, block: Callable[..., EngineBlock], wants: str) -> None:
        self._schema, self._block, self.wants = schema, block, wants

    def read(self, node: Node) -> EngineBlock:
        """Return the block. Raises ConfigError."""
        check_kind(node, "map", self.wants)
        values, _ = self._schema.read(node)
        values["origins"] = {key.text: value.origin for key, value in node.items}
        return self._block(**values, origin=node.origin)

    def schema(self) -> Shape:
        """Return its JSON Schema."""
        return self._schema.schema()
