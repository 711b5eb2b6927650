"""Mappings with names as keys: labels, resources."""
# ruff: noqa: D102 - types.Type describes `read` and `schema`

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from safelaunch.config.schema import json_types
from safelaunch.config.schema.text_checks import check_kind, check_secret, shorten
from safelaunch.config.schema.types import Text
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.schema.types import Type
    from safelaunch.config.yaml_io.node import Node

AMOUNT = Text("a whole number", r"[1-9][0-9]{0,8}", "is no whole number")


class Pairs:
    """A mapping with keys of a form, and values of a type; null leaves one out."""

    def __init__(self, key: str, rule: str, value: Type, wants: str) -> None:
        self.key = key
        self.rule = rule
        self.value = value
        self.wants = f"a mapping such as {{{wants}}}"

    def read(self, node: Node) -> dict[str, Any]:
        check_kind(node, "map", self.wants)
        for key, value in node.items:
            if not re.fullmatch(self.key, key.text):
                raise ConfigError(f"`{shorten(key.text)}` {self.rule}", where=key.origin)
            check_secret(key.text, value)
        return {key.text: self.value.read(value) for key, value in node.items if not value.is_null}

    def schema(self) -> Shape:
        value = json_types.nullable(self.value.schema())
        return json_types.mapped(value, {"pattern": f"^({self.key})$"})
