"""The keys of a composed configuration, as far as the text of its files shows them."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Leaf(enum.Enum):
    """A node without keys that are read. OPEN may have any: an interpolation, a list."""

    VALUE = "value"
    EMPTY = "empty"  # null, or `???`
    OPEN = "open"


Node = dict[str, "Node"] | Leaf
Tree = dict[str, Node]


def from_yaml(value: Any) -> Node:
    """Return the node of a value of a YAML file."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            return Leaf.OPEN  # a key that is a number is not matched by its text
        return {key: from_yaml(child) for key, child in value.items()}
    if value is None or value == "???":
        return Leaf.EMPTY
    if isinstance(value, list) or (isinstance(value, str) and "${" in value):
        return Leaf.OPEN
    return Leaf.VALUE


def merge(old: Node | None, new: Node) -> Node:
    """Return what OmegaConf makes of two nodes at the same key."""
    if old is None or (isinstance(old, Leaf) and old is not Leaf.OPEN):
        return new
    if old is Leaf.OPEN:
        return Leaf.OPEN
    if isinstance(new, dict):
        merged = dict(old)
        for key, child in new.items():
            merged[key] = merge(merged.get(key), child)
        return merged
    return Leaf.OPEN  # `???` keeps the mapping, null and a value replace it: rare


def embed(node: Node, package: str) -> Node:
    """Return a node below the keys of a package such as `a.b`."""
    for key in reversed(package.split(".") if package else []):
        node = {key: node}
    return node


def find(tree: Node, path: str) -> Node | None:
    """Return the node of a dotted key, OPEN where it is not certain, None where there is none."""
    node = tree
    for key in path.split("."):
        if node is Leaf.OPEN:
            return Leaf.OPEN
        child = node.get(key) if isinstance(node, dict) else None
        if child is None:
            return None
        node = child
    return node


def put(tree: Tree, path: str, node: Node | None) -> None:
    """Set the node of a dotted key, or delete it; what is on the way becomes a mapping."""
    *parents, last = path.split(".")
    for key in parents:
        child = tree.get(key)
        if child is Leaf.OPEN:
            return
        if not isinstance(child, dict):
            child = tree[key] = {}
        tree = child
    if node is None:
        tree.pop(last, None)
    else:
        tree[last] = node


def keys(tree: Node, prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of a tree."""
    for key, child in tree.items() if isinstance(tree, dict) else ():
        yield f"{prefix}{key}"
        yield from keys(child, f"{prefix}{key}.")
