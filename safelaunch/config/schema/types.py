"""The value types of a schema. Each reads one node and says in a word what it wants."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from safelaunch.config.schema import json_types
from safelaunch.config.schema.text_checks import (
    INT,
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
    from safelaunch.config.schema.json_types import Shape

_GPU = r"0|[1-9][0-9]*|(GPU|MIG)-[A-Za-z0-9/-]+"
_OPTION = r"^[^-\s=][^\s=]*$"
_ASSIGNED = r"\b([A-Za-z_][A-Za-z0-9_]*)=([^\s;&|]+)"


class Type(Protocol):
    """How a node becomes a value. `wants` completes the sentence "expected ..."."""

    wants: str

    def read(self, node: Node) -> Any: ...  # noqa: D102

    def schema(self) -> Shape: ...  # noqa: D102


class Text:
    """A single value as text, in the file's own spelling."""

    def __init__(self, wants: str = "text", pattern: str | None = None, rule: str = "") -> None:
        self.wants = wants
        self.pattern = pattern
        self.rule = rule

    def read(self, node: Node) -> str:
        """Return the text."""
        if node.kind != "scalar" or node.is_null:
            raise wrong(node, self.wants)
        check_text(node)
        if self.pattern and not re.fullmatch(self.pattern, node.text):
            raise ConfigError(f"`{shorten(node.text)}` {self.rule}", where=node.origin)
        return node.text

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return json_types.text(self.pattern, f"this {self.rule}")


class PathText(Text):
    """A path as text; one line, not empty."""

    def __init__(self) -> None:
        super().__init__("a path")

    def read(self, node: Node) -> str:
        """Return the path as written."""
        path = super().read(node)
        if not path:
            raise ConfigError("an empty path", where=node.origin)
        if "\n" in path:
            raise ConfigError("a line break in a path", where=node.origin)
        return path

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return json_types.text(r"[^\n]+", f"expected {self.wants}")


class Count:
    """A whole number of at least `least`."""

    def __init__(self, least: int = 1) -> None:
        self.least = least
        self.wants = f"a whole number of at least {least}"

    def read(self, node: Node) -> int:
        """Return the number."""
        if node.kind != "scalar" or not node.plain or not INT.fullmatch(node.text):
            raise wrong(node, self.wants)
        if len(node.text) > 9 or int(node.text) < self.least:  # noqa: PLR2004 - no such machine
            raise wrong(node, self.wants)
        return int(node.text)

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return {"type": "integer", "minimum": self.least}


class Choice:
    """One of a few words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words
        self.wants = "one of " + ", ".join(words)

    def read(self, node: Node) -> str:
        """Return the word."""
        if node.kind != "scalar" or node.text not in self.words:
            error = wrong(node, self.wants)
            error.hint = did_you_mean(node.text, self.words) if node.kind == "scalar" else None
            raise error
        return node.text

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return json_types.words(*self.words)


class ListOf:
    """A list of values of one type; `single` accepts one value for a list of one."""

    def __init__(self, item: Type, what: str, *, single: bool = False) -> None:
        self.item = item
        self.single = single
        self.wants = f"a list of {what}"

    def read(self, node: Node) -> tuple[Any, ...]:
        """Return the items."""
        if node.kind == "scalar" and self.single and not node.is_null:
            return (self.item.read(node),)
        if node.kind != "list":
            raise wrong(node, self.wants)
        return tuple(self.item.read(item) for item in node.items)

    def schema(self) -> Shape:
        """Return the shape for editors."""
        item = self.item.schema()
        items = json_types.listed(item)
        return json_types.either(items, item) if self.single else items


class WordsType:
    """The words of a command, as a list."""

    wants = "a list of words"

    def read(self, node: Node) -> tuple[str, ...]:
        """Return the words."""
        if node.kind != "list":
            raise wrong(node, self.wants)
        return read_command_words(node)

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return json_types.listed(json_types.text())


class SetupType:
    """Shell lines, taken verbatim."""

    wants = "a list of shell lines"

    def read(self, node: Node) -> tuple[str, ...]:
        """Return the lines; a secret that one assigns literally is refused."""
        lines: tuple[str, ...] = ListOf(Text(), "shell lines", single=True).read(node)
        for line, item in zip(lines, node.items or (node,), strict=False):
            for name, value in re.findall(_ASSIGNED, line) if "=" in line else ():
                said = value.strip("\"'")
                if not said.startswith("`"):
                    check_secret(name, Node("scalar", item.origin, text=said))
        return lines

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return ListOf(Text(), "shell lines", single=True).schema()


class MapOf:
    """A map from names to values of one type."""

    def __init__(self, value: Type, what: str) -> None:
        self.value = value
        self.wants = f"a mapping of {what}"

    def read(self, node: Node) -> dict[str, Any]:
        """Return the entries; nulls are left out."""
        if node.kind != "map":
            raise wrong(node, self.wants)
        return {key.text: self.value.read(value) for key, value in node.items if not value.is_null}

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return json_types.mapped(json_types.nullable(self.value.schema()))


class WordOrList:
    """One of a few fixed words, or a list."""

    def __init__(self, words: tuple[str, ...], other: ListOf) -> None:
        self.words = words
        self.other = other
        self.wants = " or ".join((*(f"`{w}`" for w in words), other.wants))

    def read(self, node: Node) -> Any:
        """Return the word, or what the list type reads."""
        if node.kind == "scalar" and node.text in self.words:
            return node.text
        if node.kind == "scalar":
            raise wrong(node, self.wants)
        return self.other.read(node)

    def schema(self) -> Shape:
        """Return the shape for editors."""
        other = json_types.listed(self.other.item.schema())
        return json_types.either(json_types.words(*self.words), other)


class GpuSet:
    """`auto`, a count (the first n), or a list of indices or UUIDs without repeats."""

    wants = "`auto`, a number (the first n GPUs) or a list such as [0, 1]"

    def read(self, node: Node) -> tuple[str, ...]:
        """Return the GPUs by name; ("auto",) for all that the machine shows."""
        if node.kind == "scalar" and node.text == "auto":
            return ("auto",)
        if node.kind == "scalar":
            if not node.plain or not re.fullmatch(r"[1-9][0-9]{0,2}", node.text):
                raise wrong(node, self.wants)
            return tuple(str(i) for i in range(int(node.text)))
        if node.kind != "list" or not node.items:
            raise wrong(node, self.wants)
        seen: dict[str, int] = {}
        for item in node.items:
            name = read_words(item)
            if not re.fullmatch(_GPU, name):
                raise wrong(item, "a GPU index or UUID")
            if name in seen:
                raise ConfigError(f"GPU {name} is listed twice", where=item.origin)
            seen[name] = 1
        return tuple(seen)

    def schema(self) -> Shape:
        """Return the shape for editors."""
        first = {"type": "integer", "minimum": 1, "maximum": 999}
        each = json_types.listed(
            json_types.text(_GPU, "expected a GPU index or UUID"), minItems=1, uniqueItems=True
        )
        return json_types.either(json_types.words("auto"), first, each)


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
        if node.kind != "map":
            raise wrong(node, self.wants)
        options = []
        for key, value in node.items:
            option = self._option(key, value)
            if option is not None:
                options.append((key.text, option))
        words = tuple(word for key, values in options for word in expand_option(key, values))
        return Args(options=tuple(options), words=words, is_mapping=True)

    def _option(self, key: Node, value: Node) -> tuple[str, ...] | bool | None:
        if not key.text or key.text.startswith("-") or re.search(r"[\s=]", key.text):
            hint = "leave the dashes out" if key.text.startswith("-") else None
            raise ConfigError(
                f"`{shorten(key.text)}` is no option name", where=key.origin, hint=hint
            )
        check_text(key)
        check_secret(key.text, value)
        if value.kind == "map":
            raise wrong(value, "a single value or a list")
        if value.kind == "list":
            return read_command_words(value)
        if value.is_null:
            return None
        if value.plain and value.text in ("true", "false"):
            return value.text == "true"
        return (read_words(value),)

    def schema(self) -> Shape:
        """Return the shape for editors."""
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
