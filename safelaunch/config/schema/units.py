"""Value types of how a run is watched: switches, times, sizes, patterns and globs."""
# ruff: noqa: D102 - types.Type describes `read` and `schema`

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

from safelaunch.config.schema import json_types
from safelaunch.config.schema.text_checks import read_words, shorten, wrong
from safelaunch.errors import ConfigError
from safelaunch.runtime.units import BYTES, SECONDS

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node

_DURATION = re.compile(r"(?=.)" + "".join(rf"(?:([0-9]+(?:\.[0-9]+)?){u})?" for u in SECONDS))
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(KiB|MiB|GiB|TiB)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
# no job runs for a year, and no disk holds a log of 1 PiB: more than that is a wrong unit
_MAX_SECONDS = 365 * 86400
_MAX_BYTES = 1 << 50


class Bool:
    """`true` or `false`, plain."""

    wants = "true or false"

    def read(self, node: Node) -> bool:
        if node.kind != "scalar" or not node.plain or node.text not in ("true", "false"):
            raise wrong(node, self.wants)
        return node.text == "true"

    def schema(self) -> Shape:
        return {"type": "boolean"}


class Duration:
    """A time with its unit: `90s`, `10m`, `2h`, `1d12h`. `zero` accepts 0."""

    wants = "a duration such as 90s, 10m, 2h or 1d12h"

    def __init__(self, *, zero: bool = False) -> None:
        self.zero = zero

    def read(self, node: Node) -> float:
        """Return the seconds; a whole number where it is one."""
        match = _DURATION.fullmatch(node.text) if node.kind == "scalar" else None
        if match is None:
            error = wrong(node, self.wants)
            if node.kind == "scalar" and _NUMBER.fullmatch(node.text):
                short = shorten(node.text, 12)
                error.hint = f"with its unit: `{short}s`, `{short}m` or `{short}h`"
            raise error
        parts = zip(match.groups(), SECONDS.values(), strict=True)
        seconds = sum(float(number) * unit for number, unit in parts if number is not None)
        if seconds > _MAX_SECONDS:
            raise ConfigError(f"`{shorten(node.text)}` is more than a year", where=node.origin)
        if not seconds and not self.zero:
            raise ConfigError(f"`{shorten(node.text)}` is no time at all", where=node.origin)
        return int(seconds) if seconds == int(seconds) else seconds

    def schema(self) -> Shape:
        return json_types.text(_DURATION.pattern, f"expected {self.wants}")


class Size:
    """A size in binary units, of at least `least` bytes; reads as bytes."""

    def __init__(self, least: int) -> None:
        self.least = least
        self.wants = f"a size of at least {least >> 20}MiB, such as 512MiB or 4GiB"

    def read(self, node: Node) -> int:
        match = _SIZE.fullmatch(node.text) if node.kind == "scalar" else None
        if match is None:
            error = wrong(node, self.wants)
            number = re.match(_NUMBER, node.text) if node.kind == "scalar" else None
            if number is not None:
                error.hint = f"units are KiB, MiB, GiB, TiB: `{shorten(number[0], 12)}GiB`"
            raise error
        size = float(match[1]) * BYTES[match[2]]
        if size > _MAX_BYTES:
            raise ConfigError(f"`{shorten(node.text)}` is more than 1024TiB", where=node.origin)
        if size < self.least:
            raise wrong(node, self.wants)
        return int(size)

    def schema(self) -> Shape:
        return json_types.text(_SIZE.pattern, f"expected {self.wants}")


class Pattern:
    """A regular expression of Python; it has at least one of the named `groups`."""

    wants = "a regular expression"

    def __init__(self, groups: tuple[str, ...] = ()) -> None:
        self.groups = groups

    def read(self, node: Node) -> str:
        text = read_words(node)
        if not text:
            raise ConfigError("an empty pattern matches everything", where=node.origin)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about later versions of Python; this one accepts it
            try:
                named = re.compile(text).groupindex
            except (re.error, RecursionError, OverflowError) as e:
                raise ConfigError(
                    f"`{shorten(text)}` is no regular expression: {e}",
                    where=node.origin,
                    hint=r"a literal bracket or star is written \( or \*",
                ) from None
        unknown = [name for name in named if name not in self.groups]
        if self.groups and unknown:
            raise ConfigError(
                f"unknown group `{shorten(unknown[0])}` in the pattern",
                where=node.origin,
                hint=f"known: {', '.join(self.groups)}",
            )
        if self.groups and not named:
            raise ConfigError(
                "the pattern has no named group",
                where=node.origin,
                hint=f"name what it finds ({', '.join(self.groups)}), such as "
                r"step (?P<step>\d+)",
            )
        return text

    def schema(self) -> Shape:
        if not self.groups:
            return {**json_types.text(), "minLength": 1}
        return {"type": "string", "pattern": rf"\(\?P<({'|'.join(self.groups)})>"}


class Glob:
    """A glob of files. `inside` refuses what cannot be relative to the working directory."""

    wants = "a glob such as checkpoints/*/model.safetensors"

    def __init__(self, *, inside: bool = False) -> None:
        self.inside = inside

    def read(self, node: Node) -> str:
        text = read_words(node)
        if node.is_null or not text or "\n" in text:
            raise wrong(node, self.wants)
        shown = shorten(text)
        if text.startswith("~"):
            raise ConfigError(f"`{shown}`: `~` is never expanded", where=node.origin)
        if re.match(r"[A-Za-z]:[\\/]|\\\\", text):
            raise ConfigError(f"`{shown}` is a Windows path; jobs run on Linux", where=node.origin)
        if self.inside and text.startswith("/"):
            raise ConfigError(
                f"`{shown}` is absolute",
                where=node.origin,
                hint="write it relative to the working directory, inside the project",
            )
        return text

    def schema(self) -> Shape:
        first = "[~/]" if self.inside else "~"
        return json_types.text(rf"(?!{first}|[A-Za-z]:[\\/]|\\\\)[^\n]+", f"expected {self.wants}")
