"""Composes a configuration from files by their defaults lists, as Hydra does.

Source: hydra/_internal/defaults_list.py and core/default_element.py of hydra-core 1.3.8. Groups
below `hydra/` configure Hydra itself and are left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.options.parsers.hydra import tree
from safelaunch.analysis.options.parsers.hydra.files import Default
from safelaunch.analysis.options.parsers.hydra.tree import Leaf, Node, Tree
from safelaunch.analysis.python.trees import SourceLine, Unclear

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.analysis.options.parsers.hydra.files import ConfigFiles, HydraConfig

_GLOBAL = "_global_"
_SELF = Default("_self_", None)
_MAX_DEPTH = 40
_CHOICE = re.compile(r"\$\{([^{}]+)\}")
_Parts = list[tuple[str, Node]]  # packages, and the keys to merge into them


class MissingOption(Exception):  # noqa: N818 - an answer about a choice of the command line
    """A group without an option (`option` is `???`), or with one that has no file."""

    def __init__(self, key: str, group: str, option: str) -> None:
        super().__init__(key)
        self.key = key
        self.group = group
        self.option = option


class GroupChoices(NamedTuple):
    """The groups that the command line selects, by `group` or `group@package`.

    `appended`: those with `+`. `deleted`: those with `~`, each with the only option to delete.
    """

    selected: Mapping[str, str]
    appended: Sequence[Default] = ()
    deleted: Mapping[str, str | None] = {}


class _Parent(NamedTuple):
    """The file that has a defaults list: its folder below the search path, its package."""

    folder: str = ""
    package: str = ""


class Composition:
    """The configuration that the choices of a command line lead to.

    `has_code_configs`: the program may add configurations in code, by a ConfigStore.
    """

    def __init__(
        self, files: ConfigFiles, choices: GroupChoices, *, has_code_configs: bool
    ) -> None:
        self.files = files
        self.external = choices
        self.choices: dict[str, tuple[str, ...]] = {k: (v,) for k, v in choices.selected.items()}
        self.has_code_configs = has_code_configs
        self.used: set[str] = set()
        self.group_keys: set[str] = set()  # of all groups of the defaults lists
        self.selected: dict[str, str] = {}
        self.sets_mode = False
        self.is_open = False  # a configuration from code may have a defaults list of its own

    def compose(self, name: str | None) -> Tree:
        """Return the keys of the primary configuration and of all that its defaults select.

        Raise Unclear where that is not certain, MissingOption where an option has no file.
        """
        if name is None:
            parts = [part for item in self.external.appended for part in self.item(item, _ROOT, 1)]
        else:
            package = name.rpartition("/")[0].replace("/", ".")
            parts = self.config(name, None, package, _ROOT, depth=0)
        result: Tree = {}
        for package, node in parts:
            merged = tree.merge(result, tree.embed(node, package))
            if not isinstance(merged, dict):
                raise Unclear("a configuration in code has all keys", SourceLine(name or "", 1))
            result = merged
        return result

    def config(
        self, path: str, package: str | None, relative: str, parent: _Parent, *, depth: int
    ) -> _Parts:
        """Return the parts of a file and of its defaults, in the order of the merge.

        `package`: of the item that selects the file; `relative`: of the item's folder.
        """
        file = self.files.load(path)
        if file is None or depth > _MAX_DEPTH:
            raise Unclear(f"`{path}` is not in the project", SourceLine(path, 1))
        self.sets_mode |= file.sets_mode
        own = _package(file, package, relative, parent)
        inside = _Parent(path.rpartition("/")[0], own)
        defaults = list(file.defaults)
        has_self = any(default.is_self for default in defaults)
        defaults += [] if has_self else [_SELF]
        if not depth:
            defaults += self.external.appended
        elif file.search_path:
            raise Unclear("`hydra.searchpath` is set twice", SourceLine(file.path, 1))
        for default in defaults:
            if default.is_override and not _is_hydra(default, inside):
                self.choices.setdefault(override_key(default, inside), default.options or ())
        plain = [default for default in defaults if not default.is_override]
        parts: list[_Parts] = [[] for _ in plain]
        late: list[int] = []
        # the last first: its overrides come before those of an earlier item
        for index in reversed(range(len(plain))):
            default = plain[index]
            if default.is_self:
                parts[index] = [(own, file.node)]
            elif any("${" in text for text in (default.group, *(default.options or ()))):
                late.append(index)
            else:
                parts[index] = self.item(default, inside, depth + 1)
        for index in late:
            default = self.resolved(plain[index], inside, file)
            parts[index] = self.item(default, inside, depth + 1)
        return [part for item in parts for part in item]

    def item(self, default: Default, parent: _Parent, depth: int) -> _Parts:
        """Return the parts of one item of a defaults list."""
        package = default.package
        if package is not None and ("_name_" in package or "_group_" in package):
            raise Unclear("an item has a deprecated package", SourceLine(default.group, 1))
        if _is_hydra(default, parent):
            return []
        group, relative = join(parent.folder, default.group), default.group.lstrip("/")
        if not default.is_group:
            return self.file(default, group, _folder(relative), parent, depth)
        key, options = override_key(default, parent), default.options or ()
        self.group_keys.add(key)
        if key in self.choices:
            self.used.add(key)
            options = self.choices[key]
        if key in self.external.deleted and self.external.deleted[key] in (None, *options[:1]):
            self.used.add(key)
            return []
        parts: _Parts = []
        for option in options:
            if "${" in option:
                raise Unclear("a group is selected by an interpolation", SourceLine(group, 1))
            if len(options) == 1 and self.selected.setdefault(key, option) != option:
                raise Unclear(f"`{key}` is selected twice", SourceLine(group, 1))
            name = f"{group}/{option}"
            is_external = key in self.external.selected or default in self.external.appended
            is_missing = self.files.load(name) is None and not default.is_optional
            if option == "???" or (is_missing and is_external and not self.has_code_configs):
                raise MissingOption(key, group, option)
            is_list = len(options) > 1  # then each is an item with a path
            below = _folder(f"{relative}/{option}") if is_list else relative
            parts += self.file(default, name, below, parent, depth)
        return parts

    def file(
        self, default: Default, path: str, relative: str, parent: _Parent, depth: int
    ) -> _Parts:
        """Return the parts of a selected file; an open one where it may come from code."""
        package = "" if default.package == "_here_" else default.package
        relative = relative.replace("/", ".")
        if self.files.load(path) is not None:
            return self.config(path, package, relative, parent, depth=depth)
        if self.has_code_configs:
            self.is_open = True
            name = package_in(parent.package, relative if package is None else package)
            return [(name, Leaf.OPEN)]
        if default.is_optional:
            return []
        raise Unclear(f"`{path}` is not in the project", SourceLine(path, 1))

    def resolved(self, default: Default, parent: _Parent, file: HydraConfig) -> Default:
        """Return an item with its interpolations of other choices resolved."""

        def choice(match: re.Match[str]) -> str:
            if match[1] not in self.selected:
                raise Unclear("an item of `defaults` is computed", SourceLine(file.path, 1))
            return self.selected[match[1]]

        if default.is_group and override_key(default, parent) in self.choices:
            return default
        options = default.options
        if options is not None:
            options = tuple(_CHOICE.sub(choice, option) for option in options)
        return default._replace(group=_CHOICE.sub(choice, default.group), options=options)


_ROOT = _Parent()


def override_key(default: Default, parent: _Parent) -> str:
    """Return the name by which an override selects another option of a group."""
    group = join(parent.folder, default.group)
    package = "" if default.package == "_here_" else default.package
    relative = default.group.lstrip("/").replace("/", ".")
    final = package_in(parent.package, relative if package is None else package)
    return group if final == group.replace("/", ".") else f"{group}@{final or _GLOBAL}"


def join(folder: str, path: str) -> str:
    """Return the path of an item below the search path."""
    return path[1:] if path.startswith("/") else f"{folder}/{path}" if folder else path


def package_in(parent: str, package: str) -> str:
    """Return a package below that of the parent; `_global_` starts anew."""
    name = ".".join(filter(None, (parent, package)))
    start = name.rfind(_GLOBAL)
    return name if start < 0 else name[start + len(_GLOBAL) + 1 :]


def _package(file: HydraConfig, package: str | None, relative: str, parent: _Parent) -> str:
    """Return where the keys of a file go: as its item says, its header, or its folder."""
    if package is not None:
        return package_in(parent.package, package)
    if file.header is None:
        return package_in(parent.package, relative)
    if "_group_" in file.header or "_name_" in file.header:
        raise Unclear("its package header is deprecated", SourceLine(file.path, 1))
    return package_in("", f"{_GLOBAL}.{file.header}")


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _is_hydra(default: Default, parent: _Parent) -> bool:
    """Whether an item configures Hydra itself."""
    return f"{join(parent.folder, default.group)}/".startswith("hydra/")
