"""The key `vars`: variables of a job, with or without a default."""
# ruff: noqa: D102 - types.Type describes `read` and `schema`

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config.schema import json_types
from safelaunch.config.schema.keys import Key, Schema
from safelaunch.config.schema.text_checks import check_kind, check_text, shorten, wrong
from safelaunch.config.schema.types import Choice, Text
from safelaunch.config.yaml_io.node import Node
from safelaunch.errors import ConfigError
from safelaunch.secrets_in_text import is_secret_name

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape

NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,40}"
TYPES = ("text", "nonempty", "word")
# what a shell would split, or match with files, where a variable stands without quotes
_SPLIT = re.compile(r"[\s*?\[\\]")
_FIELDS = Schema(
    "variable",
    (
        Key("default", Text(), "its value where none is given; a list: words, each as it is"),
        Key("type", Choice(TYPES), "text, nonempty, or word: no blanks and no patterns of files"),
        Key("help", Text(), "what it is"),
    ),
)


class Declaration(NamedTuple):
    """A variable: the node that declares it, its value, and what it may be."""

    node: Node
    value: Node | None  # None: it must be given
    type: str = "text"
    help: str = ""


class VarsType:
    """Names and values: `{model: Qwen/Qwen2.5-7B, output: null, args: []}`."""

    wants = "a mapping of names to values, such as {model: Qwen/Qwen2.5-7B, output: null}"

    def read(self, node: Node) -> dict[str, Declaration]:
        check_kind(node, "map", self.wants)
        return {key.text: _declaration(key, value) for key, value in node.items}

    def schema(self) -> Shape:
        value = json_types.either(json_types.text(), json_types.listed(json_types.text()))
        fields = {key.name: key.type.schema() for key in _FIELDS.keys}
        whole = json_types.record({**fields, "default": json_types.nullable(value)})
        shape = json_types.nullable(json_types.either(*value["anyOf"], whole))
        return json_types.mapped(shape, {"pattern": f"^(?:{NAME})$"})


def _declaration(key: Node, node: Node) -> Declaration:
    name = key.text
    if not re.fullmatch(NAME, name):
        raise ConfigError(
            f"`{shorten(name)}` is no name of a variable",
            where=key.origin,
            hint="letters, digits, `_` and `-`, at most 41, beginning with a letter or `_`",
        )
    if is_secret_name(name):
        raise ConfigError(
            f"`{name}`: a secret is no variable of a job, whose values are shown and written",
            where=key.origin,
            hint="export it, and name it under `env_from:`",
        )
    # what `--set` or a file that builds on it replaces keeps its type
    whole = next((item for item in (node, *node.beats) if item.kind == "map"), None)
    fields: dict[str, str] = {}
    if whole is not None:
        own = Node(
            "map", whole.origin, items=tuple(i for i in whole.items if i[0].text != "default")
        )
        _FIELDS.check_keys(whole)
        fields = _FIELDS.read(own)[0]
    value = whole.get("default") if whole is not None and whole is node else node
    if value is None or value.is_null:
        return Declaration(node, None, **fields)
    for item in value.items if value.kind == "list" else (value,):
        if item.kind != "scalar" or (value.kind == "list" and item.is_null):
            raise wrong(item, "a word")
        check_text(item)
        _check(item, name, fields.get("type", "text"))
    return Declaration(node, value, **fields)


def _check(item: Node, name: str, kind: str) -> None:
    """Refuse a value that the type of its variable forbids."""
    if kind != "text" and not item.text:
        raise ConfigError(f"`vars.{name}` is empty, and has `type: {kind}`", where=item.origin)
    if kind == "word" and _SPLIT.search(item.text):
        raise ConfigError(
            f"`vars.{name}` has `type: word`: no blanks, `*`, `?`, `[` and `\\`, "
            f"got `{shorten(item.text)}`",
            where=item.origin,
            hint="a shell would split it, or match files with it, where it stands without quotes; "
            "where that is not meant, take the type out",
        )
