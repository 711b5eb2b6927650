"""Writes the facts of a host into the `facts:` of its entry; gates are evaluated on them."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from safelaunch.config.hosts_file.add_entry import flow, with_entry
from safelaunch.config.hosts_file.edit_entry import entry as entry_nodes
from safelaunch.config.hosts_file.edit_entry import plain
from safelaunch.config.yaml_io.node import Node
from safelaunch.config.yaml_io.reader import parse
from safelaunch.errors import ConfigError
from safelaunch.model import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

# a version in a line of its own, and the comment after it
_LINE = re.compile(r"""(\s*[\w-]+\s*:\s*)("[^"\\]*"|'[^']*'|[^\s#'"\[{&*!|>][^#]*?)(\s+\#.*|\s*)""")


def save(text: str, shown: str, name: str, facts: Mapping[str, str]) -> str:
    """Return the text of a hosts file with these facts in a host's entry; all else stays.

    Other facts of the entry stay too. A missing entry is added. `shown` names the file in messages.
    Raises ConfigError where the file is written in a way that only its author should change.
    """
    is_blank = not any(line.split("#")[0].strip() for line in text.splitlines())
    root = Node("map", Origin(shown)) if is_blank else parse(text, shown)
    entries = root.get("hosts")
    items = entries.items if entries is not None and entries.kind == "map" else ()
    if not facts:
        return text
    if name not in [key.text for key, _ in items]:
        return with_entry(text, shown, name, {"facts": facts})
    key, values = entry_nodes(root, name)
    expected = plain(root)
    entry = expected["hosts"][name] = {} if values.is_null else expected["hosts"][name]
    before = {} if not isinstance(entry, dict) else entry.get("facts") or {}
    after = {**before, **facts} if isinstance(before, dict) else {}
    if after == before:
        return text
    with contextlib.suppress(ConfigError, IndexError, TypeError):
        entry["facts"] = after
        new = _edit(text, key, values, after)
        if plain(parse(new, shown)) == expected:
            return new
    raise ConfigError(
        f"the facts of `{name}` cannot be changed as it is written there",
        where=key.origin,
        hint=f"write them by hand: facts: {flow({**facts})}",
    )


def _edit(text: str, key: Node, values: Node, facts: Mapping[str, str]) -> str:
    """Return the text with these facts in place of the entry's own, or in a new line of it."""
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines()
    facts_key, node = next((i for i in values.items if i[0].text == "facts"), (None, values))
    if facts_key is not None and not node.is_null:
        at, start = node.origin.line - 1, node.origin.column - 1
        if _is_flow(lines, node):
            end = _closing_bracket(lines[at], start) + 1
            lines[at] = lines[at][:start] + flow(facts) + lines[at][end:]
        else:
            lines = _edit_block(lines, node, facts)
    elif facts_key is not None:
        at = facts_key.origin.line - 1
        head, _, comment = lines[at].partition("#")
        lines[at] = f"{head.rstrip()} {flow(facts)}" + (f"  #{comment}" if comment else "")
    elif values.kind == "map" and values.items and _is_flow(lines, values):
        at = values.origin.line - 1
        end = _closing_bracket(lines[at], values.origin.column - 1)
        lines[at] = f"{lines[at][:end].rstrip()}, facts: {flow(facts)}{lines[at][end:]}"
    else:
        first = values.items[0][0].origin if values.items else None
        indent = " " * (first.column - 1 if first else 2 * (key.origin.column - 1))
        lines.insert(key.origin.line, f"{indent}facts: {flow(facts)}")
    return line_end.join(lines) + line_end


def _edit_block(lines: list[str], node: Node, facts: Mapping[str, str]) -> list[str]:
    """Return the lines with versions changed, and new ones after the last of the mapping."""
    new = [*lines]
    declared = {key.text: (key.origin.line - 1, value.text) for key, value in node.items}
    for name, (at, version) in declared.items():
        match = _LINE.fullmatch(new[at])
        if match is not None and facts[name] != version:
            new[at] = f'{match[1]}"{facts[name]}"{match[3].rstrip()}'
    indent = " " * (node.items[0][0].origin.column - 1)
    added = [f'{indent}{n}: "{v}"' for n, v in facts.items() if n not in declared]
    end = max(value.origin.line for _, value in node.items)
    return [*new[:end], *added, *new[end:]]


def _is_flow(lines: list[str], node: Node) -> bool:
    return lines[node.origin.line - 1][node.origin.column - 1 :].startswith("{")


def _closing_bracket(line: str, start: int) -> int:
    """Return where the bracket that opens at `start` closes. Raises IndexError."""
    depth, quote = 0, ""
    for at in range(start, len(line)):
        character = line[at]
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            if not depth:
                return at
    raise IndexError(start)
