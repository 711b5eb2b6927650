"""Finds classes in installed packages by their text, through re-exports; nothing is imported.

Of a file only what its classes declare is parsed, which takes a tenth of the time of the whole.
"""

from __future__ import annotations

import contextlib
import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.python.module_search import find_module
from safelaunch.analysis.python.names import Definition, Function, Module
from safelaunch.analysis.python.site_packages import editable_folders
from safelaunch.analysis.python.trees import SourceLine, Unclear

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from safelaunch.analysis.python.cpu_budget import CpuBudget
    from safelaunch.analysis.python.trees import Trees

_MAX_REEXPORTS = 8  # transformers and trl need three
_MAX_FILES = 200
_FROM = re.compile(
    rb"^[ \t]*from[ \t]+([.\w]+)[ \t]+import[ \t]*"
    rb"(?:\(((?:[^()#]|#[^\n]*\n)*)\)|((?:[^\n(\\]|\\\r?\n)*))",
    re.MULTILINE,
)
_CLASS = re.compile(rb"^[ \t]*class[ \t]+(\w+)", re.MULTILINE)
_COMMENT = re.compile(rb"#[^\n]*")


class LibraryPaths(NamedTuple):
    """Where installed packages are: the folders in Python's order, and exceptions by name.

    `packages` has what the interpreter itself answered: {package: its parent folder}.
    """

    folders: tuple[str, ...] = ()
    packages: Mapping[str, str] = {}

    def parents(self, package: str) -> Sequence[str]:
        """Return the folders to search for a top-level package."""
        if package in self.packages:
            return (self.packages[package],)
        if any(find_module(package, (folder,)) for folder in self.folders):
            return self.folders
        editable = editable_folders(self.folders).get(package)
        return () if editable is None else (os.path.dirname(editable),)


class Libraries:
    """Resolves names to classes of installed packages."""

    def __init__(self, trees: Trees, paths: Callable[[], LibraryPaths], budget: CpuBudget) -> None:
        self._trees = trees
        self._find_paths = paths
        self._budget = budget
        self._modules: dict[str, Module | None] = {}
        self._definitions: dict[tuple[str, str], Definition | None] = {}

    @cached_property
    def _paths(self) -> LibraryPaths:
        return self._find_paths()  # only programs with classes of packages need them

    def owns(self, module: Module) -> bool:
        """Whether a module is one that was found here."""
        return self._modules.get(module.path) is module

    def file(self, dotted: str) -> str | None:
        """Return the file of an installed module, or None."""
        return library_file(dotted, self._paths) if dotted else None

    def text(self, dotted: str) -> str:
        """Return the text of an installed module; empty where there is none."""
        path = self.file(dotted)
        return "" if path is None else self._trees.text(path)

    def has_package(self, name: str) -> bool:
        """Return whether a top-level package is installed."""
        return bool(name) and find_module(name, self._paths.parents(name)) is not None

    def folders(self) -> Sequence[str]:
        """Return the folders of installed packages."""
        return self._paths.folders

    def resolve(self, module: Module, node: ast.AST) -> Definition | None:
        """Return the class that a name in a module of the project or of a library refers to."""
        dotted = module.dotted(node)
        if not dotted or dotted.startswith("?"):
            return None
        if "." not in dotted:
            definition = module.top_level(dotted)
            return None if definition is None else Definition(module, definition)
        return self._by_name(module.path, dotted, _MAX_REEXPORTS)

    def _by_name(self, path: str, dotted: str, depth: int) -> Definition | None:
        """Return what a dotted name in a file refers to; leading dots are relative to the file."""
        source, _, name = dotted.rpartition(".")
        level = len(dotted) - len(dotted.lstrip("."))
        if not depth or not name or not (source or level):
            return None
        if not level:
            target = self.file(source)
        else:
            folder = path
            for _ in range(level):
                folder = os.path.dirname(folder)
            below = source[level:] if source.strip(".") else ""
            init = os.path.join(folder, "__init__.py")
            target = _file(below, (folder,)) if below else init
        return None if target is None else self._in_file(target, name, depth)

    def _in_file(self, path: str, name: str, depth: int) -> Definition | None:
        if (path, name) not in self._definitions:
            self._definitions[path, name] = None
            self._definitions[path, name] = self._search(path, name, depth)
        return self._definitions[path, name]

    def _search(self, path: str, name: str, depth: int) -> Definition | None:
        data = self._trees.data(path)
        word = name.encode()
        if data is None or word not in data:
            return None
        if any(match[1] == word for match in _CLASS.finditer(data)):
            module = self.module(path)
            definition = None if module is None else module.top_level(name)
            if module is None or definition is None or isinstance(definition, Function):
                return None
            return Definition(module, definition)
        sources = set(_reexports(data, name))
        definitions = {self._by_name(path, source, depth - 1) for source in sources}
        return definitions.pop() if len(definitions) == 1 else None

    def module(self, path: str) -> Module | None:
        """Return the classes of a file. Raises Unclear once the budget is spent."""
        if path not in self._modules:
            if self._budget.is_spent or len(self._modules) >= _MAX_FILES:
                why = "the time limit was reached before all files were read"
                raise Unclear(why, SourceLine(path, 1))
            tree = self._trees.declarations(path)
            self._modules[path] = None
            with contextlib.suppress(RecursionError):
                self._modules[path] = None if tree is None else Module(path, tree, is_shallow=True)
        return self._modules[path]


def library_file(dotted: str, paths: LibraryPaths) -> str | None:
    """Return the file of an installed module, or None."""
    return _file(dotted, paths.parents(dotted.partition(".")[0]))


def _reexports(data: bytes, name: str) -> Iterator[str]:
    """Yield where a file imports a name from, at any depth: also `if TYPE_CHECKING:`."""
    word = name.encode()
    for match in _FROM.finditer(data):
        names = match[2] if match[2] is not None else match[3]
        if word not in names:
            continue
        for part in _COMMENT.sub(b"", names).replace(b"\\", b" ").split(b","):
            words = part.split()
            if words[-1:] == [word] and (len(words) == 1 or words[1:2] == [b"as"]):
                source = match[1].decode("ascii", "replace")
                dot = "" if source.endswith(".") else "."
                yield f"{source}{dot}{words[0].decode('ascii', 'replace')}"


def _file(dotted: str, folders: Sequence[str]) -> str | None:
    path = None
    for part in dotted.split("."):
        package = find_module(part, folders) if folders else None
        if package is None:
            return None
        folders, path = package.folders, package.path
    return path
