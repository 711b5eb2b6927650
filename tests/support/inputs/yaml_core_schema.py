"""YAML as editors see it: the core schema of YAML 1.2 (yaml.org/spec/1.2.2, section 10.3.2)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from safelaunch.config.yaml_io.reader import parse

if TYPE_CHECKING:
    from safelaunch.config.yaml_io.node import Node

_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def read(text: str) -> Any:
    """Return what a file holds, as JSON."""
    return typed(parse(text, "file"))


def typed(node: Node) -> Any:
    """Return a node as JSON."""
    if node.kind == "map":
        return {key.text: typed(value) for key, value in node.items}
    if node.kind == "list":
        return [typed(item) for item in node.items]
    return _scalar(node.text) if node.plain else node.text


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) and len(text) < 400:  # int() refuses 4,300 digits
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "")) if _SPECIAL.fullmatch(text) else text
