"""Changes an entry of a hosts file as a person would: its lines alone, the rest untouched."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from safelaunch.config.hosts_file.add_entry import with_entry
from safelaunch.config.yaml_io.reader import parse
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.yaml_io.node import Node

_INTERPRETERS = ("python", "venv", "conda", "conda_root")  # `python` stands for all of them

# a value that ends in its line, and the comment behind it
_SIMPLE = re.compile(
    r"""(\s*[\w-]+\s*:)\s*('(?:[^']|'')*'|"(?:[^"\\]|\\.)*"|\[[^\[\]#'"]*\]|[^\s#'"\[{&*!|>][^#]*?)"""
    r"""?(\s+\#.*)?\s*"""
)


def with_changes(text: str, shown: str, name: str, changes: Mapping[str, str | None]) -> str:
    """Return the text with other values in an entry, None removes one; comments and all else stay.

    `shown` names the file in messages. Raises ConfigError where the file is written in a way that
    only its author should change.
    """
    root = parse(text, shown)
    key, values = entry(root, name)
    wanted = plain(root)
    said = wanted["hosts"][name] = {} if values.is_null else wanted["hosts"][name]
    for each, value in changes.items():
        for other in _INTERPRETERS if each == "python" else (each,):
            said.pop(other, None)
        if value is not None:
            said[each] = value
    new = _edited(text, key, values, changes)
    with contextlib.suppress(ConfigError):
        if plain(parse(new, shown)) == wanted:
            return new
    lines = "; ".join(
        f"{each}: {value}" if value else f"no {each}" for each, value in changes.items()
    )
    raise ConfigError(
        f"`{name}` cannot be changed as it is written there",
        where=key.origin,
        hint=f"change it by hand: {lines}",
    )


def _edited(text: str, key: Node, values: Node, changes: Mapping[str, str | None]) -> str:
    lines: list[str | None] = [*text.splitlines()]
    items = values.items if values.kind == "map" else ()
    at = {each.text: each.origin.line - 1 for each, _ in items}
    indent = " " * (items[0][0].origin.column - 1 if items else 2 * (key.origin.column - 1))
    added = []
    for each, value in changes.items():
        for other in _INTERPRETERS if each == "python" else (each,):
            if other != each and other in at:
                lines[at[other]] = None
        if each in at:
            lines[at[each]] = _with_value(lines[at[each]] or "", indent, each, value)
        elif value is not None:
            added.append(indent + _as_line(each, value))
    begin = key.origin.line
    new = [line for line in (*lines[:begin], *added, *lines[begin:]) if line is not None]
    end = "\r\n" if "\r\n" in text else "\n"
    return end.join(new) + end


def _with_value(line: str, indent: str, key: str, value: str | None) -> str | None:
    """Return a line with another value, its comment kept; as it was where that is not simple."""
    found = _SIMPLE.fullmatch(line)
    if value is None or found is None:
        return None if value is None else line
    return indent + _as_line(key, value) + (found[3] or "")


def _as_line(key: str, value: str) -> str:
    """Return `key: value` as with_entry writes it, which knows what to quote."""
    return with_entry("", "", "x", {key: value}).splitlines()[-1].strip()


def entry(root: Node, name: str) -> tuple[Node, Node]:
    """Return key and value of a host that is in the file."""
    entries = root.get("hosts")
    pairs: tuple[tuple[Node, Node], ...] = entries.items if entries is not None else ()
    return next(pair for pair in pairs if pair[0].text == name)


def plain(node: Node) -> Any:
    """Return a node as plain data, without its place."""
    if node.kind == "map":
        return {key.text: plain(value) for key, value in node.items}
    if node.kind == "list":
        return [plain(value) for value in node.items]
    return node.text
