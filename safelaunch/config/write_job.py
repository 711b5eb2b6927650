"""Writes a job as YAML that reads back to the same words."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING

from safelaunch.config.schema.files import JOB
from safelaunch.config.schema.members.words import VARIABLE, readable
from safelaunch.config.schema.types import ArgsType
from safelaunch.config.yaml_io.node import mapping, overlay, scalar
from safelaunch.config.yaml_io.reader import parse
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from safelaunch.config.yaml_io.node import Node

_ORDER = (
    "name", "vars", "profile", "prefix", "launcher", "version", "script", "module", "command",
    "args", "processes", "gpus", "queue", "nodes", "node_rank", "mixed_precision", "launcher_args",
    "python", "venv",
    "conda", "conda_root", "python_options", "workdir", "max_duration", "setup", "log", "env",
    "env_from",
)  # fmt: skip
_SAFE = re.compile(r"[A-Za-z0-9_./+-][A-Za-z0-9_./+=@%:-]*")


def relocated(tree: Node, cwd: str, folder: str) -> Node:
    """Return the keys of a line of a shell in `cwd`, for a job file in a folder."""
    back = os.path.relpath(cwd, folder).replace(os.sep, "/")
    if back == os.curdir:
        return tree
    paths = {"workdir": scalar(back, tree.origin)}
    for key in ("workdir", "python", "venv"):
        path = tree.get(key)
        if path is not None:
            moved = os.path.join(back, path.text).replace(os.sep, "/")
            paths[key] = scalar(moved, tree.origin)
    return overlay(tree, mapping(paths, tree.origin))


def job_yaml(tree: Node, profile: str | None) -> str:
    """Return the text of a job file with the keys of a tree.

    `args` become a mapping where that gives the identical words back, else they stay a list.
    A secret is refused.
    """
    JOB.check_keys(tree)
    JOB.read(readable(tree))
    keys = {key.text: value for key, value in tree.items}
    lines = [f"profile: {_scalar(profile)}"] if profile else []
    for key in _ORDER:
        if key not in keys or (key == "profile" and profile):
            continue
        node = keys[key]
        if key == "vars":
            lines += ["vars:", *(f"  {k.text}: {_variable(v)}" for k, v in node.items)]
        elif key == "env":
            lines += ["env:"] if node.items else []
            lines += [f"  {k.text}: {_value(v)}" for k, v in node.items]
        elif key in ("args", "launcher_args"):
            lines += _args(key, node)
        elif node.kind == "list":
            lines.append(f"{key}: [" + ", ".join(_scalar(item.text) for item in node.items) + "]")
        else:
            lines.append(f"{key}: {_value(node)}")
    return "\n".join(lines) + "\n"


def _args(key: str, node: Node) -> list[str]:
    words = tuple(item.text for item in node.items)
    # in a mapping a value that begins with `-` is joined to its option
    lines = None if any(map(VARIABLE.search, words)) else _as_mapping(words)
    if lines is not None:
        with contextlib.suppress(ConfigError):  # a word that a mapping cannot hold
            inner = parse("\n".join(["args:", *lines]), "init").get("args")
            if inner is not None and ArgsType().read(inner).words == words:
                return [f"{key}:", *lines]
    return [f"{key}:", *(f"  - {_scalar(word, bare_numbers=True)}" for word in words)]


def _as_mapping(words: tuple[str, ...]) -> list[str] | None:
    """Return `key: value` lines, or None where the words are no plain options."""
    options: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--") and len(word) > 2 and "=" not in word:  # noqa: PLR2004
            options.append((word[2:], []))
        elif not options:
            return None
        else:
            options[-1][1].append(word)
    if len({key for key, _ in options}) != len(options):
        return None
    lines = []
    for key, values in options:
        shown = [_scalar(value, bare_numbers=True) for value in values]
        value = "true" if not shown else shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"
        lines.append(f"  {_scalar(key)}: {value}")
    return lines


def _variable(node: Node) -> str:
    """Return a variable: its default, or a mapping in braces."""
    if node.kind == "map":
        return "{" + ", ".join(f"{k.text}: {_variable(v)}" for k, v in node.items) + "}"
    if node.kind == "list":
        return "[" + ", ".join(_scalar(item.text) for item in node.items) + "]"
    return _value(node)


def _value(node: Node) -> str:
    if node.kind == "map":  # `{prepend: /x}` of a variable
        return "{" + ", ".join(f"{k.text}: {_scalar(v.text)}" for k, v in node.items) + "}"
    return "null" if node.is_null else _scalar(node.text, bare_numbers=True)


def _scalar(text: str, *, bare_numbers: bool = False) -> str:
    """Return a YAML scalar that reads back as exactly this text."""
    if bare_numbers and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", text):
        return text
    is_typed = text.lower() in ("null", "~", "true", "false", "yes", "no", "on", "off")
    if _SAFE.fullmatch(text) and not is_typed and text[0] != "-" and text[-1] != ":":
        return text
    if text.isprintable() and "'" not in text and text == text.strip() and text:
        return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else _escape(c) for c in escaped) + '"'


def _escape(char: str) -> str:
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    code = ord(char)
    return short.get(char) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")  # noqa: PLR2004
