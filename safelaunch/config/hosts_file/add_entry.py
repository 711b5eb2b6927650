"""Adds an entry to a hosts file as a person would: at the end of `hosts:`, the rest untouched."""

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

    `shown` names the file in messages. Raises ConfigError where the entry is there already, or
    where the file is written in a way that only its author should change.
    """
    if not any(line.split("#")[0].strip() for line in text.splitlines()):
        return _joined(text, "hosts:\n" + "".join(_entry(name, fields, "  ")))
    root = parse(text, shown)
    entries = root.get("hosts")
    if entries is None:
        return _joined(text, "hosts:\n" + "".join(_entry(name, fields, "  ")))
    for key, _ in entries.items if entries.kind == "map" else ():
        if key.text == name:
            raise ConfigError(f"`{name}` is there already", where=key.origin)
    indent = _indent(entries, text)
    if indent is None:
        line = ", ".join(f"{key}: {_value(said)}" for key, said in fields.items())
        raise ConfigError(
            f"`{name}` cannot be added to `hosts` as it is written there",
            where=entries.origin,
            hint=f"add it by hand: {_scalar(name)}: {{{line}}}",
        )
    added = _entry(name, fields, indent)
    lines = text.splitlines(keepends=True)
    at = _end(root, entries, lines)
    new = _joined("".join(lines[:at]), "".join(added)) + "".join(lines[at:])
    return new.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in text else new


def _entry(name: str, fields: Mapping[str, Value], indent: str) -> list[str]:
    first = f"{indent}{_scalar(name)}:\n"
    return [first, *(f"{indent}{indent}{key}: {_value(said)}\n" for key, said in fields.items())]


def _value(said: Value) -> str:
    if isinstance(said, str):
        return _scalar(said)
    if isinstance(said, Mapping):
        return flow(said)
    return "[" + ", ".join(_scalar(item) for item in said) + "]"


def flow(versions: Mapping[str, str]) -> str:
    """Return a mapping of versions in one line; quoted, for no reader takes 12.10 for a number."""
    return "{" + ", ".join(f'{key}: "{version}"' for key, version in versions.items()) + "}"


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and text not in _NULLS:
        return text
    return "'" + text.replace("'", "''") + "'"


def _indent(entries: Node, text: str) -> str | None:
    """Return what the entries begin with, or None where they are not one to a line."""
    if entries.is_null:
        return "  "
    if entries.kind != "map" or not entries.items:
        return None
    before = text.splitlines()[entries.items[0][0].origin.line - 1]
    indent = before[: entries.items[0][0].origin.column - 1]
    return indent if indent and not indent.strip(" ") else None


def _end(root: Node, entries: Node, lines: list[str]) -> int:
    """Return the line behind the last one of `hosts`, less blank lines and comments."""
    begins = [key.origin.line - 1 for key, _ in root.items]
    own = next(key.origin.line - 1 for key, value in root.items if value is entries)
    at = min((line for line in begins if line > own), default=len(lines))
    while at > own + 1 and not lines[at - 1].split("#")[0].strip():
        at -= 1
    return at


def _joined(before: str, after: str) -> str:
    return before + ("\n" if before and not before.endswith("\n") else "") + after
