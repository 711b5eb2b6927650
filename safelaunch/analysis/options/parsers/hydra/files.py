"""Reads the configuration files of a Hydra program from the folders of its search path."""

# ruff: noqa: PLC0415 - yaml is imported only for a program that has such files

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.analysis.options.parsers.hydra.tree import Node, from_yaml
from safelaunch.analysis.python.trees import SourceLine, Unclear

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADER = re.compile(r"\s*#\s*@(\S+)\s+(\S+)\s*$")
_MAX_BYTES = 1 << 20
_MAX_OPTIONS = 500


class Default(NamedTuple):
    """An item of a defaults list: a group with its option, or a config by its path.

    `options`: several where the item is a list. A config has its path as `group` and no option.
    """

    group: str
    options: tuple[str, ...] | None
    package: str | None = None
    is_optional: bool = False
    is_override: bool = False

    @property
    def is_group(self) -> bool:
        """Whether it selects an option of a group."""
        return self.options is not None

    @property
    def is_self(self) -> bool:
        """Whether it stands for the keys of the file itself."""
        return not self.is_group and self.group == "_self_"


class HydraConfig(NamedTuple):
    """A configuration file: its path, package header, defaults list and keys."""

    path: str
    header: str | None
    defaults: tuple[Default, ...]
    node: Node
    search_path: tuple[str, ...] = ()  # `hydra.searchpath`
    sets_mode: bool = False  # it may set `hydra.mode`


class ConfigFiles:
    """The folders that Hydra searches, in its order. `uses_yml`: `.yml` is an ending too."""

    def __init__(self, folders: Sequence[str], *, uses_yml: bool) -> None:
        self.folders = list(folders)
        self.endings = (".yaml", ".yml") if uses_yml else (".yaml",)
        self._files: dict[str, HydraConfig | None] = {}

    def add(self, folder: str) -> None:
        """Append a folder to the search path; files that were read keep their place."""
        self.folders.append(folder)
        self._files = {path: file for path, file in self._files.items() if file is not None}

    def is_group(self, name: str) -> bool:
        """Whether any folder has a group of that name."""
        return any(os.path.isdir(os.path.join(folder, name)) for folder in self.folders)

    def options(self, group: str) -> list[str]:
        """Return the options of a group."""
        names: set[str] = set()
        for folder in self.folders:
            try:
                entries = sorted(os.listdir(os.path.join(folder, group)))[:_MAX_OPTIONS]
            except OSError:
                continue
            names.update(name.rpartition(".")[0] for name in entries if name.endswith(".yaml"))
        return sorted(names)

    def load(self, name: str) -> HydraConfig | None:
        """Return a configuration by its path below the search path, or None.

        Raise Unclear where it exists and cannot be read.
        """
        if name not in self._files:
            file = name if name.endswith(self.endings) else f"{name}.yaml"
            paths = (os.path.join(folder, file) for folder in self.folders)
            path = next((path for path in paths if os.path.isfile(path)), None)
            self._files[name] = None if path is None else _read(path)
        return self._files[name]


def _read(path: str) -> HydraConfig:
    """Return a file's content; raise Unclear where Hydra's reading of it is not certain."""
    import yaml

    try:
        with open(path, "rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
        text = data.decode()
        content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are the safe one
    # a parser for whatever a file may contain; a recursive anchor
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise Unclear("a configuration cannot be read", SourceLine(path, 1)) from error
    if len(data) > _MAX_BYTES or not isinstance(content, dict | None):
        raise Unclear("a configuration is no mapping", SourceLine(path, 1))
    content = dict(content or {})
    raw = content.pop("defaults", [])
    if not isinstance(raw, list):
        raise Unclear("its `defaults` are no list", SourceLine(path, 1))
    hydra = content.get("hydra")
    hydra = hydra if isinstance(hydra, dict) else {}
    searched = hydra.get("searchpath") or []
    if not isinstance(searched, list) or not all(isinstance(p, str) for p in searched):
        raise Unclear("`hydra.searchpath` is no list", SourceLine(path, 1))
    return HydraConfig(
        path,
        _package_header(text, path),
        tuple(_default(item, path) for item in raw),
        from_yaml(content),
        tuple(searched),
        "mode" in hydra,
    )


def _package_header(text: str, path: str) -> str | None:
    """Return the package of a line such as `# @package _global_` above the first key."""
    package = None
    for line in text.splitlines():
        if not line.strip():
            continue
        if not re.match(r"\s*#\s*@", line):
            break
        match = _HEADER.match(line)
        if match is None:
            raise Unclear("its package header is not understood", SourceLine(path, 1))
        if match[1] == "package":
            package = match[2]
    return package


def _default(item: Any, path: str) -> Default:
    """Return an item of a defaults list; raise Unclear for a form that is not certain."""
    place = SourceLine(path, 1)
    if isinstance(item, str):
        name, _, package = item.partition("@")
        return Default(name, None, package if "@" in item else None)
    if not isinstance(item, dict) or len(item) != 1:
        raise Unclear("an item of its `defaults` has several keys", place)
    ((key, value),) = item.items()
    if not isinstance(key, str):
        raise Unclear("an item of its `defaults` is not understood", place)
    group, at, package = key.partition("@")
    *keywords, group = group.split(" ")
    options = [value] if isinstance(value, str) else value
    if value is None:
        options = []
    if ":" in package or not isinstance(options, list):
        raise Unclear("an item of its `defaults` is not understood", place)
    if not all(isinstance(option, str) for option in options) or not group:
        raise Unclear("an item of its `defaults` is not understood", place)
    return Default(
        group,
        tuple(options),
        package if at else None,
        "optional" in keywords,
        "override" in keywords,
    )
