"""Adds an entry at the end of `hosts:` in a hosts file; the rest of the text stays as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from safelaunch.config.yaml_io.reader import parse
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from safelaunch.config.yaml_io.node import Node

_PLAIN = re.compile(r"[A-Za-z0-9_./~][A-Za-z0-9_./~@:%-]*(?<!:)")
_NULLS = ("~", "null", "Null", "NULL")

Value = str | Sequence[str] | Mapping[str, str]


def with_entry(text: str, shown: str, name: str, fields: Mapping[str, Value]) -> str:
    """Return the text of a hosts file with one more entry; comments and order stay.

    `shown` names the file in messages. Raises ConfigError where the entry exists already, or
    where the file is written in a way that only its author should change.
    """
    is_blank = not any(line.split("#")[0].strip() for line in text.splitlines())
    root = None if is_blank else parse(text, shown)
    entries = None if root is None else root.get("hosts")
    if root is None or entries is None:
        return _join(text, "hosts:\n" + _entry(name, fields, "  "))
    for key, _ in entries.items if entries.kind == "map" else ():
        if key.text == name:
            raise ConfigError(f"`{name}` is there already", where=key.origin)
    indent = _indent(entries, text)
    if indent is None:
        line = ", ".join(f"{key}: {_value(value)}" for key, value in fields.items())
        raise ConfigError(
            f"`{name}` cannot be added to `hosts` as it is written there",
            where=entries.origin,
            hint=f"add it by hand: {_scalar(name)}: {{{line}}}",
        )
    lines = text.splitlines(keepends=True)
    end = _end(root, entries, lines)
    new = _join("".join(lines[:end]), _entry(name, fields, indent)) + "".join(lines[end:])
    return new.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in text else new


def _entry(name: str, fields: Mapping[str, Value], indent: str) -> str:
    lines = [f"{indent}{indent}{key}: {_value(value)}\n" for key, value in fields.items()]
    return f"{indent}{_scalar(name)}:\n" + "".join(lines)


def _value(value: Value) -> str:
    if isinstance(value, str):
        return _scalar(value)
    if isinstance(value, Mapping):
        return flow(value)
    return "[" + ", ".join(_scalar(item) for item in value) + "]"


def flow(versions: Mapping[str, str]) -> str:
    """Return a mapping of versions in one line; quoted, so that 12.10 is not read as a number."""
    return "{" + ", ".join(f'{key}: "{version}"' for key, version in versions.items()) + "}"


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and text not in _NULLS:
        return text
    return "'" + text.replace("'", "''") + "'"


def _indent(entries: Node, text: str) -> str | None:
    """Return the indentation of the entries, or None where they are not one to a line."""
    if entries.is_null:
        return "  "
    if entries.kind != "map" or not entries.items:
        return None
    first = entries.items[0][0].origin
    indent = text.splitlines()[first.line - 1][: first.column - 1]
    return indent if indent and not indent.strip(" ") else None


def _end(root: Node, entries: Node, lines: list[str]) -> int:
    """Return the index after the last line of `hosts`, without blank lines and comments."""
    starts = [key.origin.line - 1 for key, _ in root.items]
    start = next(key.origin.line - 1 for key, value in root.items if value is entries)
    end = min((line for line in starts if line > start), default=len(lines))
    while end > start + 1 and not lines[end - 1].split("#")[0].strip():
        end -= 1
    return end


def _join(before: str, after: str) -> str:
    return before + ("\n" if before and not before.endswith("\n") else "") + after
