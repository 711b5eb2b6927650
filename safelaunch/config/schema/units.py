"""Value types of what a run is watched with: switches, times, sizes, patterns and globs."""

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
# no job runs for a year, and no disk holds a log of 1 PiB: beyond it the unit is a slip
_LONGEST = 365 * 86400
_LARGEST = 1 << 50


class Bool:
    """`true` or `false`, plain."""

    wants = "true or false"

    def read(self, node: Node) -> bool:
        """Return the switch."""
        if node.kind != "scalar" or not node.plain or node.text not in ("true", "false"):
            raise wrong(node, self.wants)
        return node.text == "true"

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return {"type": "boolean"}


class Duration:
    """A time with its unit: `90s`, `10m`, `2h`, `1d12h`; seconds. `zero` allows none at all."""

    wants = "a duration such as 90s, 10m, 2h or 1d12h"

    def __init__(self, *, zero: bool = False) -> None:
        self.zero = zero

    def read(self, node: Node) -> float:
        """Return the seconds; a whole number where it is one."""
        found = _DURATION.fullmatch(node.text) if node.kind == "scalar" else None
        if found is None:
            error = wrong(node, self.wants)
            if node.kind == "scalar" and _NUMBER.fullmatch(node.text):
                short = shorten(node.text, 12)
                error.hint = f"with its unit: `{short}s`, `{short}m` or `{short}h`"
            raise error
        parts = zip(found.groups(), SECONDS.values(), strict=True)
        seconds = sum(float(number) * unit for number, unit in parts if number is not None)
        if seconds > _LONGEST:
            raise ConfigError(f"`{shorten(node.text)}` is more than a year", where=node.origin)
        if not seconds and not self.zero:
            raise ConfigError(f"`{shorten(node.text)}` is no time at all", where=node.origin)
        return int(seconds) if seconds == int(seconds) else seconds

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return json_types.text(_DURATION.pattern, f"expected {self.wants}")


class Size:
    """A size in binary units, of at least `least` bytes."""

    def __init__(self, least: int) -> None:
        self.least = least
        self.wants = f"a size of at least {least >> 20}MiB, such as 512MiB or 4GiB"

    def read(self, node: Node) -> int:
        """Return the bytes."""
        found = _SIZE.fullmatch(node.text) if node.kind == "scalar" else None
        if found is None:
            error = wrong(node, self.wants)
            number = re.match(_NUMBER, node.text) if node.kind == "scalar" else None
            if number is not None:
                error.hint = f"units are KiB, MiB, GiB, TiB: `{shorten(number[0], 12)}GiB`"
            raise error
        size = float(found[1]) * BYTES[found[2]]
        if size > _LARGEST:
            raise ConfigError(f"`{shorten(node.text)}` is more than 1024TiB", where=node.origin)
        if size < self.least:
            raise wrong(node, self.wants)
        return int(size)

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return json_types.text(_SIZE.pattern, f"expected {self.wants}")


class Pattern:
    """A regular expression in Python's notation; of named groups only `groups`, at least one."""

    wants = "a regular expression"

    def __init__(self, groups: tuple[str, ...] = ()) -> None:
        self.groups = groups

    def read(self, node: Node) -> str:
        """Return the expression as written."""
        text = read_words(node)
        if not text:
            raise ConfigError("an empty pattern matches everything", where=node.origin)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a later Python; this one takes it
            try:
                named = re.compile(text).groupindex
            except (re.error, RecursionError, OverflowError) as e:
                raise ConfigError(
                    f"`{shorten(text)}` is no regular expression: {e}",
                    where=node.origin,
                    hint=r"a literal bracket or star is written \( or \*",
                ) from None
        if self.groups:
            self._check_groups(tuple(named), node)
        return text

    def schema(self) -> Shape:
        """Return the shape for editors."""
        if not self.groups:
            return {**json_types.text(), "minLength": 1}
        return {"type": "string", "pattern": rf"\(\?P<({'|'.join(self.groups)})>"}

    def _check_groups(self, named: tuple[str, ...], node: Node) -> None:
        known = ", ".join(self.groups)
        for name in named:
            if name not in self.groups:
                raise ConfigError(
                    f"unknown group `{shorten(name)}` in the pattern",
                    where=node.origin,
                    hint=f"known: {known}",
                )
        if not named:
            raise ConfigError(
                "the pattern has no named group",
                where=node.origin,
                hint=rf"name what it finds ({known}), such as step (?P<step>\d+)",
            )


class Glob:
    """A glob of files. `inside` refuses what cannot be relative to the working directory."""

    wants = "a glob such as checkpoints/*/model.safetensors"

    def __init__(self, *, inside: bool = False) -> None:
        self.inside = inside

    def read(self, node: Node) -> str:
        """Return the glob as written."""
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
        """Return the shape for editors."""
        first = "[~/]" if self.inside else "~"
        return json_types.text(rf"(?!{first}|[A-Za-z]:[\\/]|\\\\)[^\n]+", f"expected {self.wants}")
