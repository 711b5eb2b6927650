"""The keys of a job that say what travels to its hosts: `sync` and `assets`."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

from safelaunch.config.schema import json_types
from safelaunch.config.schema.keys import Block, Key, Schema
from safelaunch.config.schema.text_checks import read_words, shorten, wrong
from safelaunch.config.schema.types import ListOf, PathText
from safelaunch.errors import ConfigError
from safelaunch.model import Asset, Sync

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")


class IgnorePattern:
    """A pattern as in a `.gitignore`, without negation: the two lists say what is meant."""

    wants = "a pattern as in a .gitignore, such as data/*.bin"

    def read(self, node: Node) -> str:
        """Return the pattern."""
        text = read_words(node)
        if node.is_null or not text.strip() or "\n" in text:
            raise wrong(node, self.wants)
        shown = shorten(text)
        if text.startswith("!"):
            raise ConfigError(
                f"`{shown}`: no negation here",
                where=node.origin,
                hint=f"write `{shorten(text[1:])}` under the other of `include` and `exclude`",
            )
        if text.startswith("#"):
            raise ConfigError(
                f"`{shown}` would be a comment in a .gitignore",
                where=node.origin,
                hint=rf"a name that begins with # is written \{shown}",
            )
        if _DRIVE.match(text) or text.startswith("~") or ".." in text.split("/"):
            raise ConfigError(
                f"`{shown}` cannot be below the project",
                where=node.origin,
                hint="write it relative to the project, with `/`",
            )
        return text

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return json_types.text(r"(?![!#~]|[A-Za-z]:[\\/]|\\\\)[^\n]+", f"expected {self.wants}")


_PATTERNS = ListOf(IgnorePattern(), "patterns", single=True)
SYNC = Schema(
    "sync",
    (
        Key("include", _PATTERNS, "files that travel although a rule skips them"),
        Key("exclude", _PATTERNS, "files that stay here, beyond .gitignore and .safelaunchignore"),
    ),
)
_ASSET = Schema(
    "asset",
    (
        Key("path", PathText(), "the file or folder here, relative to this file"),
        Key("to", PathText(), "its path on the host; default: a place that safelaunch chooses"),
    ),
)


class SyncType(Block):
    """The block `sync`."""

    def __init__(self) -> None:
        super().__init__(SYNC, "what of the project travels")

    def read(self, node: Node) -> Sync:  # type: ignore[override]
        """Return what it says."""
        return Sync(**super().read(node))


class AssetsType:
    """Names and paths: `{base: models/Qwen2-7B, data: {path: /data/c4.bin, to: /data/c4.bin}}`."""

    wants = "a mapping of names to paths, such as {base: models/Qwen2-7B}"

    def read(self, node: Node) -> tuple[Asset, ...]:
        """Return the assets in file order; a null takes an inherited one away."""
        if node.kind != "map":
            error = wrong(node, self.wants)
            if node.kind in ("list", "scalar"):
                error.hint = "a name for each lets `args` and `env` say where it is on the host"
            raise error
        return tuple(_asset(key, value) for key, value in node.items if not value.is_null)

    def schema(self) -> Shape:
        """Return the shape for editors."""
        path = json_types.text(r"[^~\n][^\n]*", "expected a path; `~` is never expanded")
        asset = json_types.nullable(json_types.either(path, _ASSET.schema()))
        return json_types.mapped(asset, {"pattern": f"^{_NAME.pattern}$"})


def _asset(key: Node, value: Node) -> Asset:
    if not _NAME.fullmatch(key.text):
        raise ConfigError(
            f"`{shorten(key.text)}` is no name of an asset",
            where=key.origin,
            hint="letters, digits, `_` and `-`, at most 41, beginning with a letter",
        )
    known: dict[str, Any]
    origin = value.origin
    if value.kind == "map":
        known, _ = _ASSET.read(value)
        if "path" not in known:
            raise ConfigError(
                f"the asset `{key.text}` has no path",
                where=value.origin,
                hint=f"{key.text}: {{path: models/base, to: /data/base}}; a path that stood alone "
                "before is replaced, not kept",
            )
        path = value.get("path")
        origin = path.origin if path is not None else origin  # the file that says it
    else:
        known = {"path": PathText().read(value)}
    if known["path"].startswith("~"):
        raise ConfigError(
            f"`{shorten(known['path'])}`: `~` is never expanded",
            where=origin,
            hint="write it absolute, or relative to this file",
        )
    to = value.get("to") if value.kind == "map" else None
    if to is not None and not to.is_null:
        _check_place(to, known["path"])
    return Asset(key.text, known["path"], known.get("to"), origin)


def _check_place(node: Node, path: str) -> None:
    shown = shorten(node.text)
    if _DRIVE.match(node.text):
        raise ConfigError(f"`{shown}` is a Windows path; jobs run on Linux", where=node.origin)
    if node.text.startswith("~"):
        raise ConfigError(
            f"`{shown}`: `~` is never expanded",
            where=node.origin,
            hint="write it relative to the working directory, or absolute",
        )
    if ".." in node.text.split("/"):
        raise ConfigError(f"`{shown}`: `..` in a path on the host", where=node.origin)
    if "\\" in node.text:
        raise ConfigError(
            f"`{shown}` has a backslash; hosts separate folders by `/`", where=node.origin
        )
    if node.text.endswith("/") or node.text.split("/")[-1] == ".":
        name = re.split(r"[\\/]", path.rstrip("\\/"))[-1]
        whole = posixpath.normpath(posixpath.join(node.text, name))
        raise ConfigError(
            f"`{shown}`: the folder for it, or its own path?",
            where=node.origin,
            hint=f"`to` is its own path there: `{whole}`",
        )
