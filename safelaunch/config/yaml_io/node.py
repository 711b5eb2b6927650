"""A YAML value with its origin, and how one is merged over another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.model import Origin


@dataclass(slots=True, eq=False)
class Node:
    """One YAML value: `kind` is scalar, map or list. `beats` are the values that it replaced."""

    kind: str
    origin: Origin
    text: str = ""
    plain: bool = False
    items: tuple[Any, ...] = ()  # list: nodes; map: (key node, value node)
    beats: tuple[Node, ...] = ()
    size: int = 1
    depth: int = 0  # levels below this node, aliases expanded

    @property
    def is_null(self) -> bool:
        """Whether this is a plain `null`, `~` or nothing at all: it removes an inherited value."""
        return self.kind == "scalar" and self.plain and self.text in _NULLS

    def get(self, key: str) -> Node | None:
        """Return the value of a key of a map, or None."""
        return next((v for k, v in self.items if k.text == key), None)


_NULLS = ("", "~", "null", "Null", "NULL")


def scalar(text: str, origin: Origin) -> Node:
    """Return a plain scalar that did not come from a file (a flag, a default)."""
    return Node("scalar", origin, text, plain=True)


def mapping(entries: dict[str, Node], origin: Origin) -> Node:
    """Return a map node with text keys."""
    items = tuple((Node("scalar", node.origin, key), node) for key, node in entries.items())
    return Node("map", origin, items=items)


def leaves(node: Node) -> Iterator[Node]:
    """Yield the scalars of a node, the values of its maps and lists; no keys."""
    if node.kind == "scalar":
        yield node
    for item in node.items:
        for child in item[1:] if isinstance(item, tuple) else (item,):
            yield from leaves(child)


def overlay(base: Node | None, over: Node) -> Node:
    """Return `over` merged over `base`: maps merge key by key, everything else replaces.

    A null stays in the tree: its reader decides what removal means. The result keeps the origin of
    the file where one of the two is a flag.
    """
    if base is None or base is over:
        return over
    if base.kind != "map" or over.kind != "map":
        return replace(over, beats=(*over.beats, base, *base.beats))
    merged = {k.text: (k, v) for k, v in base.items}
    for key, value in over.items:
        old = merged.get(key.text)
        merged[key.text] = (key, overlay(old[1] if old else None, value))
    origin = over.origin if over.origin.line else base.origin
    return Node("map", origin, items=tuple(merged.values()))
