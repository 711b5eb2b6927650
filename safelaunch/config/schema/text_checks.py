"""Checks of a word: a command line and a script can carry it, and it holds no secret."""

from __future__ import annotations

import itertools
import re

from safelaunch.config.yaml_io.node import Node
from safelaunch.errors import ConfigError
from safelaunch.runtime.plain_text import printable
from safelaunch.secrets_in_text import PASSWORD_IN_ADDRESS, is_secret_name, tokens

# Linux: MAX_ARG_STRLEN, the longest single argument or NAME=value that execve takes, less the NUL
# (include/uapi/linux/binfmts.h: 32 pages)
MAX_WORD = 128 * 1024 - 1

_PLACEHOLDERS = frozenset(
    ("", "EMPTY", "empty", "dummy", "none", "None", "null", "True", "true", "False", "false")
)
# what examples write in place of a secret: `<your-token>`, `xxxx`, `YOUR_WANDB_API_KEY_HERE`,
# `Enter your OpenAI API`
_EXAMPLE = (
    r"(?i)<[^<>]*>|x{3,}|\*{3,}|\.{3,}|(insert|put|your|my)[-_ ].*(key|token|secret)([-_ ]here)?"
    r"|((add|enter|input|insert|paste|put|use) )?your( [a-z]+)+"
)
_COUNT = r"-?\d{1,7}(\.\d{1,3})?"  # of a tokenizer's tokens
INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")


def wrong(node: Node, wants: str) -> ConfigError:
    """Return the error for a node of the wrong type."""
    if node.kind == "scalar":
        got = "nothing" if node.is_null else f"`{shorten(node.text)}`"
    else:
        kind = "mapping" if node.kind == "map" else "list"
        got = f"a {kind}" if node.items else f"an empty {kind}"
    quoted = "number" in wants and node.kind == "scalar" and not node.plain
    hint = "without the quotes" if quoted and INT.fullmatch(node.text) else None
    named = f"`{node.origin.option}`: " if node.origin.option else ""
    return ConfigError(f"{named}expected {wants}, got {got}", where=node.origin, hint=hint)


def check_kind(node: Node, kind: str, wants: str) -> None:
    """Refuse a node that is no `scalar`, `list` or `map`. Raises ConfigError."""
    if node.kind != kind:
        raise wrong(node, wants)


def shorten(text: str, length: int = 40) -> str:
    """Return the text for a message: one line of at most `length` characters."""
    line = printable(text)
    return line if len(line) <= length else line[: length - 3] + "..."


def read_words(node: Node) -> str:
    """Return a scalar as it will stand on a command line or in the environment."""
    check_kind(node, "scalar", "a single value")
    check_text(node)
    return node.text


def check_text(node: Node) -> None:
    """Refuse what a command line or a script cannot carry, and secrets."""
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
            hint="export it as the variable that the program or a library of it reads, such as "
            "HF_TOKEN, and name that under `env_from:`",
        )


def _is_utf8(text: str) -> bool:
    """Whether the text can be written: a command line's stray bytes arrive as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_secret(key: str, node: Node) -> None:
    """Refuse a password, token or key that a file holds under such a name."""
    if is_secret(key, node):
        name = re.sub(r"[^A-Z0-9]+", "_", re.sub(r"^export\s+", "", key).upper())
        raise ConfigError(
            f"`{key}`: a secret does not belong in a file",
            where=node.origin,
            hint=f"write `env_from: [{name}]`; its value is taken from your environment at the "
            "start",
        )


def is_secret(name: str, node: Node) -> bool:
    """Whether a value under a name is a password, token or key; 8 of `--lowres_token 8` is none."""
    if not is_secret_name(name):
        return False
    value = node.items[0] if node.kind == "list" and len(node.items) == 1 else node
    is_count = value.kind == "scalar" and re.fullmatch(_COUNT, value.text)
    return not (is_count and name.endswith("token")) and _holds_secret(node)


def _holds_secret(node: Node) -> bool:
    """Whether a value under the name of a secret is one; `$NAME`, `EMPTY`, `<token>` are not."""
    if node.kind == "list":
        # an example without quotes is several words
        is_example = re.fullmatch(_EXAMPLE, " ".join(item.text for item in node.items))
        return not is_example and any(_holds_secret(item) for item in node.items)
    if node.kind == "map" or node.is_null:
        return False
    text = node.text
    is_empty = text in _PLACEHOLDERS or text.startswith("$")
    return not is_empty and not re.fullmatch(_EXAMPLE, text)


def read_command_words(node: Node) -> tuple[str, ...]:
    """Return the words of a list form. Refuses empty items, and secrets in any usual spelling."""
    words = []
    for item in node.items:
        if item.is_null:
            hint = 'quote it: "", "null"'
            raise ConfigError("expected a word, got nothing", where=item.origin, hint=hint)
        words.append(read_words(item))
    for at, item in enumerate(node.items):
        after = node.items[at + 1 : at + 2]
        name, equals, value = item.text.lstrip("-").partition("=")  # --key=v, a.key=v
        if equals:
            check_secret(name, Node("scalar", item.origin, text=value))
        elif item.text.startswith("-") and after and not after[0].text.startswith("--"):
            more = itertools.takewhile(lambda n: not n.text.startswith("-"), node.items[at + 2 :])
            values = (after[0], *more) if is_secret_name(name) else after
            check_secret(name, Node("list", after[0].origin, items=values))  # --key v
    return tuple(words)
