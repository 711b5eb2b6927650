"""The keys of a job that choose what is copied to its hosts: `sync` and `assets`."""
# ruff: noqa: D102 - types.Type describes `read` and `schema`

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from safelaunch.config.schema import json_types
from safelaunch.config.schema.keys import Key, Schema
from safelaunch.config.schema.text_checks import read_words, shorten, wrong
from safelaunch.config.schema.types import ListOf, PathText
from safelaunch.errors import ConfigError
from safelaunch.model import Asset

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node
    from safelaunch.model import Origin

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")


class IgnorePattern:
    """A pattern as in a `.gitignore`, without negation: there are two lists instead."""

    wants = "a pattern as in a .gitignore, such as data/*.bin"

    def read(self, node: Node) -> str:
        text = read_words(node)
        if node.is_null or not text.strip() or "\n" in text:
            raise wrong(node, self.wants)
        shown = shorten(text)
        if text.startswith("!"):
            raise ConfigError(
                f"`{shown}`: negation is not supported",
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
        return json_types.text(r"(?![!#~]|[A-Za-z]:[\\/]|\\\\)[^\n]+", f"expected {self.wants}")


_PATTERNS = ListOf(IgnorePattern(), "patterns", single=True)
SYNC = Schema(
    "sync",
    (
        Key("include", _PATTERNS, "files to copy although a rule ignores them"),
        Key("exclude", _PATTERNS, "files not to copy, beyond .gitignore and .safelaunchignore"),
    ),
)
_ASSET = Schema(
    "asset",
    (
        Key("path", PathText(), "the file or folder here, relative to this file"),
        Key("to", PathText(), "its path on the host; default: a place that safelaunch chooses"),
    ),
)


class AssetsType:
    """Names and paths: `{base: models/Qwen2-7B, data: {path: /data/c4.bin, to: /data/c4.bin}}`."""

    wants = "a mapping of names to paths, such as {base: models/Qwen2-7B}"

    def read(self, node: Node) -> tuple[Asset, ...]:
        """Return the assets in file order; a null removes an inherited one."""
        if node.kind != "map":
            error = wrong(node, self.wants)
            error.hint = "`args` and `env` refer to an asset by its name: `{assets.NAME}`"
            raise error
        return tuple(_asset(key, value) for key, value in node.items if not value.is_null)

    def schema(self) -> Shape:
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
    if value.kind == "map":
        fields, origins = _ASSET.read(value)
        if "path" not in fields:
            raise ConfigError(
                f"the asset `{key.text}` has no path",
                where=value.origin,
                hint=f"{key.text}: {{path: models/base, to: /data/base}}; a path that an extended "
                "file gives without `path:` is replaced, not kept",
            )
    else:
        fields, origins = {"path": PathText().read(value)}, {"path": value.origin}
    origin = origins["path"]  # of the file that sets it: the path is relative to that
    if fields["path"].startswith("~"):
        raise ConfigError(
            f"`{shorten(fields['path'])}`: `~` is never expanded",
            where=origin,
            hint="write it absolute, or relative to this file",
        )
    if "to" in fields:
        _check_host_path(fields["to"], fields["path"], origins["to"])
    return Asset(key.text, origin=origin, **fields)


def _check_host_path(to: str, path: str, where: Origin) -> None:
    shown = shorten(to)
    if _DRIVE.match(to):
        raise ConfigError(f"`{shown}` is a Windows path; jobs run on Linux", where=where)
    if to.startswith("~"):
        raise ConfigError(
            f"`{shown}`: `~` is never expanded",
            where=where,
            hint="write it relative to the working directory, or absolute",
        )
    if ".." in to.split("/"):
        raise ConfigError(f"`{shown}`: `..` in a path on the host", where=where)
    if "\\" in to:
        raise ConfigError(f"`{shown}` has a backslash; hosts separate folders by `/`", where=where)
    if to.endswith("/") or to.rsplit("/", maxsplit=1)[-1] == ".":
        name = re.split(r"[\\/]", path.rstrip("\\/"))[-1]
        whole = posixpath.normpath(posixpath.join(to, name))
        raise ConfigError(
            f"`{shown}` names a folder to put the asset in",
            where=where,
            hint=f"`to` is the asset's own path there: `{whole}`",
        )
