"""`queue`: whether a run waits for free cards of its machine, and how soon it goes."""
# ruff: noqa: D102 - types.Type describes `read` and `schema`

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.config.schema import json_types
from safelaunch.config.schema.keys import Key, Schema
from safelaunch.config.schema.text_checks import INT, check_kind, wrong
from safelaunch.model import CardQueue
from safelaunch.runtime.card_claims import MAX_PRIORITY

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node

_DIGITS = 4  # of a priority, with its sign


class Priority:
    """A whole number, also below zero."""

    wants = f"a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}"

    def read(self, node: Node) -> int:
        is_number = node.kind == "scalar" and node.plain and INT.fullmatch(node.text)
        if not is_number or len(node.text) > _DIGITS or int(node.text) > MAX_PRIORITY:
            raise wrong(node, self.wants)
        return int(node.text)

    def schema(self) -> Shape:
        return {"type": "integer", "minimum": -MAX_PRIORITY, "maximum": MAX_PRIORITY}


QUEUE = Schema("queue", (Key("priority", Priority(), "who has a higher one goes first; 0"),))


class QueueType:
    """true, false, or a mapping; false reads as None."""

    wants = "true, false, or a mapping such as {priority: 10}"

    def read(self, node: Node) -> CardQueue | None:
        if node.kind == "scalar" and node.plain and node.text in ("true", "false"):
            return CardQueue() if node.text == "true" else None
        check_kind(node, "map", self.wants)
        return CardQueue(**QUEUE.read(node)[0])

    def schema(self) -> Shape:
        return json_types.either(json_types.words("true", "false"), QUEUE.schema())
