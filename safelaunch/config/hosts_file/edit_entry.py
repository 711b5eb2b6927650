"""Changes the lines of one entry of a hosts file; the rest of the text stays as it is."""

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

_INTERPRETERS = (
    "python",
    "venv",
    "conda",
    "conda_root",
)  # `python` replaces any of them

# a value that ends in its line, and the comment after it
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
    expected = plain(root)
    fields = expected["hosts"][name] = {} if values.is_null else expected["hosts"][name]
    for field, value in changes.items():
        for replaced in _INTERPRETERS if field == "python" else (field,):
            fields.pop(replaced, None)
        if value is not None:
            fields[field] = value
    new = _edit(text, key, values, changes)
    with contextlib.suppress(ConfigError):
        if plain(parse(new, shown)) == expected:
            return new
    lines = (f"{field}: {value}" if value else f"no {field}" for field, value in changes.items())
    raise ConfigError(
        f"`{name}` cannot be changed as it is written there",
        where=key.origin,
        hint=f"change it by hand: {'; '.join(lines)}",
    )


def _edit(text: str, key: Node, values: Node, changes: Mapping[str, str | None]) -> str:
    lines: list[str | None] = [*text.splitlines()]
    items = values.items if values.kind == "map" else ()
    line_of = {field.text: field.origin.line - 1 for field, _ in items}
    indent = " " * (items[0][0].origin.column - 1 if items else 2 * (key.origin.column - 1))
    added = []
    for field, value in changes.items():
        for replaced in _INTERPRETERS if field == "python" else ():
            if replaced != field and replaced in line_of:
                lines[line_of[replaced]] = None
        if field not in line_of:
            added += [] if value is None else [indent + _as_line(field, value)]
        elif value is None:
            lines[line_of[field]] = None
        elif match := _SIMPLE.fullmatch(lines[line_of[field]] or ""):
            lines[line_of[field]] = indent + _as_line(field, value) + (match[3] or "")
    start = key.origin.line
    new = [line for line in (*lines[:start], *added, *lines[start:]) if line is not None]
    end = "\r\n" if "\r\n" in text else "\n"
    return end.join(new) + end


def _as_line(key: str, value: str) -> str:
    """Return `key: value` as with_entry writes it, quoted where YAML needs it."""
    return with_entry("", "", "x", {key: value}).splitlines()[-1].strip()


def entry(root: Node, name: str) -> tuple[Node, Node]:
    """Return key and value of a host that is in the file."""
    entries = root.get("hosts")
    pairs: tuple[tuple[Node, Node], ...] = entries.items if entries is not None else ()
    return next(pair for pair in pairs if pair[0].text == name)


def plain(node: Node) -> Any:
    """Return a node as plain data, without origins."""
    if node.kind == "map":
        return {key.text: plain(value) for key, value in node.items}
    if node.kind == "list":
        return [plain(value) for value in node.items]
    return node.text
