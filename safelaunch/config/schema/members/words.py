"""Words in braces for values that are known late, and the keys in which they are replaced."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config.schema.text_checks import shorten
from safelaunch.config.yaml_io.node import leaves
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.config.yaml_io.node import Node

# a value of `vars`; `${vars.x}` is OmegaConf's
VARIABLE = re.compile(r"(?<!\$)\{vars\.([^{}]*)\}")
# read elsewhere: blocks of jobs of their own, and lines of the user's shell
WITHOUT_VARIABLES = ("vars", "extends", "smoke", "steps", "services", "setup")
REPLACED_KEYS = ("args", "launcher_args", "command", "env", "recovery.resume_args")


class LateWord(NamedTuple):
    """A word in braces: the key that it stands in, the value around it, and its match."""

    key: str
    node: Node
    match: re.Match[str]


def readable(tree: Node) -> Node:
    """Return the keys of a job without those whose values are known only with its variables."""
    items = tuple(
        (key, value)
        for key, value in tree.items
        if key.text in WITHOUT_VARIABLES
        or not any(VARIABLE.search(leaf.text) for leaf in leaves(value))
    )
    return replace(tree, items=items)


def check_quotes(node: Node, block: str) -> None:
    """Refuse a mapping that is `{vars.model}` without quotes; `block` is `vars`.

    Raises ConfigError.
    """
    key, value = node.items[0] if len(node.items) == 1 else (node, node)
    is_word = re.fullmatch(rf"{block}\.[^{{}}]*", key.text)
    if is_word and value.is_null and not value.text:
        raise ConfigError(
            f"`{{{shorten(key.text)}}}` without quotes is a mapping in YAML",
            where=node.origin,
            hint=f'write "{{{shorten(key.text)}}}"',
        )


def late_words(tree: Node, pattern: re.Pattern[str]) -> Iterator[LateWord]:
    """Yield the words of a job that match. Raises ConfigError in a key where none is replaced."""
    for word in _words(tree, pattern):
        if word.key not in REPLACED_KEYS:
            raise ConfigError(
                f"`{word.match[0]}` in `{word.key}` is not replaced",
                where=word.node.origin,
                hint=f"only in {', '.join(REPLACED_KEYS)}",
            )
        yield word


def _words(tree: Node, pattern: re.Pattern[str], block: str = "") -> Iterator[LateWord]:
    for key, value in tree.items:
        name = block + key.text
        if name == "recovery" and value.kind == "map":
            yield from _words(value, pattern, "recovery.")
        elif name not in ("smoke", "services"):  # which are read as jobs of their own
            for node in leaves(value):
                yield from (LateWord(name, node, match) for match in pattern.finditer(node.text))
