"""The value types of a schema. Each reads one node, and says in `wants` what it expects."""
# ruff: noqa: D102 - Type describes `read` and `schema`

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from safelaunch.config.schema import json_types
from safelaunch.config.schema.text_checks import (
    INT,
    check_kind,
    check_secret,
    check_text,
    read_command_words,
    read_words,
    shorten,
    wrong,
)
from safelaunch.config.yaml_io.node import Node
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import Args

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.config.schema.json_types import Shape

_GPU = r"0|[1-9][0-9]*|(GPU|MIG)-[A-Za-z0-9/-]+"
_OPTION = r"^[^-\s=][^\s=]*$"
_ASSIGNED = r"\b([A-Za-z_][A-Za-z0-9_]*)=([^\s;&|]+)"


class Type(Protocol):
    """How a node becomes a value. `wants` completes the sentence "expected ..."."""

    wants: str

    def read(self, node: Node) -> Any:
        """Return the value of a node. Raises ConfigError."""
        ...

    def schema(self) -> Shape:
        """Return the JSON Schema of what `read` accepts, for editors."""
        ...


class Text:
    """A single value as text, in the file's own spelling; `check` refuses more than the pattern."""

    def __init__(
        self,
        wants: str = "text",
        pattern: str | None = None,
        rule: str = "",
        check: Callable[[Node], None] | None = None,
    ) -> None:
        self.wants = wants
        self.pattern = pattern
        self.rule = rule
        self.check = check

    def read(self, node: Node) -> str:
        if node.kind != "scalar" or node.is_null:
            raise wrong(node, self.wants)
        if self.check is not None:
            self.check(node)
        check_text(node)
        if self.pattern and not re.fullmatch(self.pattern, node.text):
            raise ConfigError(f"`{shorten(node.text)}` {self.rule}", where=node.origin)
        return node.text

    def schema(self) -> Shape:
        return json_types.text(self.pattern, f"this {self.rule}")


class PathText(Text):
    """A path as text; one line, not empty."""

    def __init__(self) -> None:
        super().__init__("a path")

    def read(self, node: Node) -> str:
        path = super().read(node)
        if not path:
            raise ConfigError("an empty path", where=node.origin)
        if "\n" in path:
            raise ConfigError("a line break in a path", where=node.origin)
        return path

    def schema(self) -> Shape:
        return json_types.text(r"[^\n]+", f"expected {self.wants}")


class Count:
    """A whole number of at least `least`."""

    def __init__(self, least: int = 1) -> None:
        self.least = least
        self.wants = f"a whole number of at least {least}"

    def read(self, node: Node) -> int:
        if node.kind != "scalar" or not node.plain or not INT.fullmatch(node.text):
            raise wrong(node, self.wants)
        if len(node.text) > 9 or int(node.text) < self.least:  # noqa: PLR2004 - no such machine
            raise wrong(node, self.wants)
        return int(node.text)

    def schema(self) -> Shape:
        return {"type": "integer", "minimum": self.least}


class Choice:
    """One of a few words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words
        self.wants = "one of " + ", ".join(words)

    def read(self, node: Node) -> str:
        if node.kind != "scalar" or node.text not in self.words:
            error = wrong(node, self.wants)
            error.hint = did_you_mean(node.text, self.words) if node.kind == "scalar" else None
            raise error
        return node.text

    def schema(self) -> Shape:
        return json_types.words(*self.words)


class ListOf:
    """A list of values of one type; `single` accepts one value for a list of one."""

    def __init__(self, item: Type, what: str, *, single: bool = False) -> None:
        self.item = item
        self.single = single
        self.wants = f"a list of {what}"

    def read(self, node: Node) -> tuple[Any, ...]:
        if node.kind == "scalar" and self.single and not node.is_null:
            return (self.item.read(node),)
        check_kind(node, "list", self.wants)
        return tuple(self.item.read(item) for item in node.items)

    def schema(self) -> Shape:
        item = self.item.schema()
        items = json_types.listed(item)
        return json_types.either(items, item) if self.single else items


class WordsType:
    """The words of a command, as a list."""

    wants = "a list of words"

    def read(self, node: Node) -> tuple[str, ...]:
        check_kind(node, "list", self.wants)
        return read_command_words(node)

    def schema(self) -> Shape:
        return json_types.listed(json_types.text())


class SetupType(ListOf):
    """Shell lines, taken verbatim. A secret that one assigns literally is refused."""

    def __init__(self) -> None:
        super().__init__(Text(), "shell lines", single=True)

    def read(self, node: Node) -> tuple[str, ...]:
        lines = super().read(node)
        for line, item in zip(lines, node.items or (node,), strict=False):
            for name, value in re.findall(_ASSIGNED, line) if "=" in line else ():
                literal = value.strip("\"'")
                if not literal.startswith("`"):
                    check_secret(name, Node("scalar", item.origin, text=literal))
        return lines


class MapOf:
    """A map from names to values of one type; nulls are left out."""

    def __init__(self, value: Type, what: str) -> None:
        self.value = value
        self.wants = f"a mapping of {what}"

    def read(self, node: Node) -> dict[str, Any]:
        check_kind(node, "map", self.wants)
        return {key.text: self.value.read(value) for key, value in node.items if not value.is_null}

    def schema(self) -> Shape:
        return json_types.mapped(json_types.nullable(self.value.schema()))


class WordOrList:
    """One of a few fixed words, or a list."""

    def __init__(self, words: tuple[str, ...], other: ListOf) -> None:
        self.words = words
        self.other = other
        self.wants = " or ".join((*(f"`{w}`" for w in words), other.wants))

    def read(self, node: Node) -> Any:
        if node.kind != "scalar":
            return self.other.read(node)
        if node.text not in self.words:
            raise wrong(node, self.wants)
        return node.text

    def schema(self) -> Shape:
        other = json_types.listed(self.other.item.schema())
        return json_types.either(json_types.words(*self.words), other)


class GpuSet:
    """`auto`, a count (the first n), or a list of indices or UUIDs without repeats.

    Reads as GPU names; ("auto",) for all that the machine shows.
    """

    wants = "`auto`, a number (the first n GPUs) or a list such as [0, 1]"

    def read(self, node: Node) -> tuple[str, ...]:
        if node.kind == "scalar":
            if node.text == "auto":
                return ("auto",)
            if not node.plain or not re.fullmatch(r"[1-9][0-9]{0,2}", node.text):
                raise wrong(node, self.wants)
            return tuple(str(i) for i in range(int(node.text)))
        if node.kind != "list" or not node.items:
            raise wrong(node, self.wants)
        names: list[str] = []
        for item in node.items:
            name = read_words(item)
            if not re.fullmatch(_GPU, name):
                raise wrong(item, "a GPU index or UUID")
            if name in names:
                raise ConfigError(f"GPU {name} is listed twice", where=item.origin)
            names.append(name)
        return tuple(names)

    def schema(self) -> Shape:
        first = {"type": "integer", "minimum": 1, "maximum": 999}
        gpu = json_types.text(_GPU, "expected a GPU index or UUID")
        gpus = json_types.listed(gpu, minItems=1, uniqueItems=True)
        return json_types.either(json_types.words("auto"), first, gpus)


class ArgsType:
    """Arguments: a list of words, or a mapping of options."""

    wants = "a mapping of options or a list of words"

    def read(self, node: Node) -> Args:
        """Return the arguments in file order.

        `k: v` -> `--k v`; true -> `--k`; false or null -> nothing; a list -> `--k a b`; a value
        that begins with `-` -> `--k=v`.
        """
        if node.kind == "list":
            return Args(words=read_command_words(node))
        check_kind(node, "map", self.wants)
        read = ((key.text, self._option(key, value)) for key, value in node.items)
        options = tuple((key, option) for key, option in read if option is not None)
        words = tuple(word for key, values in options for word in expand_option(key, values))
        return Args(options, words, is_mapping=True)

    def _option(self, key: Node, value: Node) -> tuple[str, ...] | bool | None:
        if not key.text or key.text.startswith("-") or re.search(r"[\s=]", key.text):
            hint = "leave the dashes out" if key.text.startswith("-") else None
            shown = shorten(key.text)
            raise ConfigError(f"`{shown}` is no option name", where=key.origin, hint=hint)
        check_text(key)
        check_secret(key.text, value)
        if value.kind == "map":
            error = wrong(value, "a single value or a list")
            if len(value.items) == 1 and value.items[0][1].is_null:
                name = shorten(value.items[0][0].text)
                error.hint = f'write "{{{name}}}" in quotes: it is a mapping without them'
            raise error
        if value.kind == "list":
            return read_command_words(value)
        if value.is_null:
            return None
        if value.plain and value.text in ("true", "false"):
            return value.text == "true"
        return (read_words(value),)

    def schema(self) -> Shape:
        words = json_types.listed(json_types.text())
        value = json_types.either(json_types.nullable(json_types.text()), words)
        return json_types.either(json_types.mapped(value, {"pattern": _OPTION}), words)


def expand_option(key: str, values: tuple[str, ...] | bool) -> tuple[str, ...]:
    """Return the words of one option: `--k`, `--k v`, `--k a b`, `--k=-v`, or none."""
    if isinstance(values, bool):
        return (f"--{key}",) if values else ()
    if len(values) == 1 and values[0].startswith("-"):
        return (f"--{key}={values[0]}",)
    return (f"--{key}", *values)
