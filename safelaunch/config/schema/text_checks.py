"""What a word may hold: text that a command line and a script can carry, and no secret."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.config.yaml_io.node import Node
from safelaunch.errors import ConfigError
from safelaunch.runtime.plain_text import printable
from safelaunch.secrets_in_text import PASSWORD_IN_ADDRESS, is_secret_name, tokens

if TYPE_CHECKING:
    from safelaunch.model import Origin

# Linux: MAX_ARG_STRLEN, the longest single argument or NAME=value that execve takes, less the NUL
# (include/uapi/linux/binfmts.h: 32 pages)
MAX_WORD = 128 * 1024 - 1

_HARMLESS = frozenset(
    {"", "EMPTY", "empty", "dummy", "none", "None", "null"} | {"True", "true", "False", "false"}
)
INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")


def wrong(node: Node, wants: str) -> ConfigError:
    """Return the error for a node of the wrong type."""
    if node.kind == "scalar":
        got = "nothing" if node.is_null else f"`{shorten(node.text)}`"
    else:
        got = ("an empty " if not node.items else "a ") + {"map": "mapping", "list": "list"}[
            node.kind
        ]
    quoted = "number" in wants and node.kind == "scalar" and not node.plain
    hint = "without the quotes" if quoted and INT.fullmatch(node.text) else None
    return ConfigError(f"expected {wants}, got {got}", where=node.origin, hint=hint)


def shorten(text: str, most: int = 40) -> str:
    """Return the text for a message: one line, at most `most` characters."""
    line = printable(text)
    return line if len(line) <= most else line[: most - 3] + "..."


def read_words(node: Node) -> str:
    """Return a scalar as it will stand on a command line or in the environment."""
    if node.kind != "scalar":
        raise wrong(node, "a single value")
    check_text(node)
    return node.text


def check_text(node: Node) -> None:
    """Refuse what no command line or script can carry unharmed, and secrets."""
    text = node.text
    if "\0" in text:
        raise ConfigError("a NUL byte cannot be part of a value", where=node.origin)
    if "\r" in text:
        raise ConfigError(
            "a carriage return in a value (Windows line end?)",
            where=node.origin,
            hint="remove it: it would end up at the end of a path or a number",
        )
    if not text.isascii() and not _is_utf8(text):
        raise ConfigError(
            f"`{shorten(text)}` is not UTF-8",
            where=node.origin,
            hint="no launch script can hold it",
        )
    if len(text) > MAX_WORD // 4 and len(text.encode()) > MAX_WORD:
        raise ConfigError(
            f"a word of {len(text.encode()):,} bytes; Linux takes at most {MAX_WORD:,}",
            where=node.origin,
            hint="put it into a file and pass the file's name",
        )
    if any(tokens(text)) or ("://" in text and re.search(PASSWORD_IN_ADDRESS, text)):
        raise ConfigError(
            "this value looks like an access token or a private key",
            where=node.origin,
            hint="name the variable under `env_from:`; its value is taken from your environment",
        )


def _is_utf8(text: str) -> bool:
    """Whether the text can be written: a command line's stray bytes arrive as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_secret(key: str, node: Node) -> None:
    """Refuse a password, token or key written into a file under a name that says so."""
    if is_secret_name(key) and holds_secret(node):
        raise _secret(key, node.origin)


def holds_secret(node: Node) -> bool:
    """Whether a value would be a secret under a name that says so; `$NAME` and `EMPTY` are none."""
    if node.kind == "list":
        return any(holds_secret(item) for item in node.items)
    if node.kind == "map" or node.is_null:
        return False
    return node.text not in _HARMLESS and not node.text.startswith("$")


def _secret(key: str, where: Origin) -> ConfigError:
    name = re.sub(r"[^A-Z0-9]+", "_", key.upper())
    return ConfigError(
        f"`{key}`: a secret does not belong into a file",
        where=where,
        hint=f"write `env_from: [{name}]`; its value is taken from your environment at the start",
    )


def read_command_words(node: Node) -> tuple[str, ...]:
    """Return the words of a list form. Refuses empty items, and secrets in any usual spelling."""
    for item in node.items:
        if item.is_null:
            raise ConfigError(
                "expected a word, got nothing", where=item.origin, hint='quote it: "", "null"'
            )
    words = tuple(read_words(item) for item in node.items)
    for item, after in zip(node.items, (*node.items[1:], None), strict=False):
        name, equals, value = item.text.lstrip("-").partition("=")  # --key=v, a.key=v
        if equals:
            check_secret(name, Node("scalar", item.origin, text=value))
        elif item.text.startswith("-") and after is not None and not after.text.startswith("--"):
            check_secret(name, after)  # --key v
    return words
