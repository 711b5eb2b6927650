"""Writes what was found on a host into the `facts:` of its entry, which gates are judged on."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from safelaunch.config.hosts_file.add_entry import flow, with_entry
from safelaunch.config.hosts_file.edit_entry import plain
from safelaunch.config.yaml_io.reader import parse
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.yaml_io.node import Node

# a version in a line of its own, and the comment behind it
_LINE = re.compile(r"""(\s*[\w-]+\s*:\s*)("[^"\\]*"|'[^']*'|[^\s#'"\[{&*!|>][^#]*?)(\s+\#.*|\s*)""")


def save(text: str, shown: str, name: str, facts: Mapping[str, str]) -> str:
    """Return the text of a hosts file with these facts in a host's entry; all else stays.

    Facts that are there and not among these stay too. An entry that is missing is added. `shown`
    names the file in messages. Raises ConfigError where the file is written in a way that only its
    author should change.
    """
    found = _entry(text, shown, name)
    if not facts:
        return text
    if found is None:
        return with_entry(text, shown, name, {"facts": facts})
    root, key, values = found
    wanted = plain(root)
    entry = wanted["hosts"][name] = {} if values.is_null else wanted["hosts"][name]
    before = {} if not isinstance(entry, dict) else entry.get("facts") or {}
    after = {**before, **facts} if isinstance(before, dict) else {}
    if after == before:
        return text
    with contextlib.suppress(ConfigError, IndexError, TypeError):
        entry["facts"] = after
        new = _changed(text, key, values, after)
        if plain(parse(new, shown)) == wanted:
            return new
    raise ConfigError(
        f"the facts of `{name}` cannot be changed as it is written there",
        where=key.origin,
        hint=f"write them by hand: facts: {flow({**facts})}",
    )


def _entry(text: str, shown: str, name: str) -> tuple[Node, Node, Node] | None:
    """Return the file, and key and value of a host's entry; None where it has none."""
    if not any(line.split("#")[0].strip() for line in text.splitlines()):
        return None
    root = parse(text, shown)
    entries = root.get("hosts")
    for key, value in entries.items if entries is not None and entries.kind == "map" else ():
        if key.text == name:
            return root, key, value
    return None


def _changed(text: str, key: Node, values: Node, facts: Mapping[str, str]) -> str:
    """Return the text with these facts where the entry says its own, or in a new line of it."""
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines()
    said = next((pair for pair in values.items if pair[0].text == "facts"), None)
    if said is not None and not said[1].is_null:
        node = said[1]
        if _opens(lines, node):
            at = node.origin.line - 1
            lines[at] = _spliced(lines[at], node.origin.column - 1, flow(facts))
        else:
            lines = _block(lines, node, facts)
    elif said is not None:
        at = said[0].origin.line - 1
        head, _, comment = lines[at].partition("#")
        lines[at] = f"{head.rstrip()} {flow(facts)}" + (f"  #{comment}" if comment else "")
    elif values.kind == "map" and values.items and _opens(lines, values):
        at, begin = values.origin.line - 1, values.origin.column - 1
        close = _closing(lines[at], begin)
        lines[at] = f"{lines[at][:close].rstrip()}, facts: {flow(facts)}{lines[at][close:]}"
    else:
        column = values.items[0][0].origin.column - 1 if values.items else None
        indent = " " * (column if column is not None else 2 * (key.origin.column - 1))
        lines.insert(key.origin.line, f"{indent}facts: {flow(facts)}")
    return end.join(lines) + end


def _block(lines: list[str], node: Node, facts: Mapping[str, str]) -> list[str]:
    """Return the lines with versions changed, and new ones behind the last of the mapping."""
    new = [*lines]
    there = {key.text: (key, value) for key, value in node.items}
    first = node.items[0][0].origin.column - 1
    for name, version in facts.items():
        if name not in there or there[name][1].text == version:
            continue
        at = there[name][0].origin.line - 1
        found = _LINE.fullmatch(new[at])
        if found is not None:
            new[at] = f'{found[1]}"{version}"{found[3].rstrip()}'
    added = [f'{" " * first}{n}: "{v}"' for n, v in facts.items() if n not in there]
    behind = max(value.origin.line for _, value in node.items)
    return [*new[:behind], *added, *new[behind:]]


def _opens(lines: list[str], node: Node) -> bool:
    return lines[node.origin.line - 1][node.origin.column - 1 :].startswith("{")


def _spliced(line: str, begin: int, text: str) -> str:
    return line[:begin] + text + line[_closing(line, begin) + 1 :]


def _closing(line: str, begin: int) -> int:
    """Return where the bracket that opens at `begin` closes. Raises IndexError."""
    depth, quote = 0, ""
    for at in range(begin, len(line)):
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
    raise IndexError(begin)
