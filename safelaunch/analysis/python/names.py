"""One file as the readers of options see it: what its names mean, and literal values."""

from __future__ import annotations

import ast
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.analysis.python.module_search import find
from safelaunch.analysis.python.trees import Place, Trees, Unclear

if TYPE_CHECKING:
    from collections.abc import Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
_HOPS = 6  # re-exports that are followed: `from .args import parse` in an `__init__.py`


class Unknown:
    """A value that the text does not give."""


UNKNOWN = Unknown()


class Defined(NamedTuple):
    """A function or class, and the module that it stands in."""

    module: Module
    node: Function | ast.ClassDef


class Module:
    """A file's names. A name that means two things is left out."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path = path
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = [tree]
        self._scopes: dict[ast.AST, Scope] = {tree: tree}
        self.named: dict[str, list[ast.Name]] = {}
        self._own: dict[Scope, list[ast.AST]] = {}
        self._of_class: set[ast.AST] = set()  # what a class body binds is no name of the file
        for node in self.nodes:  # grows while it is walked
            inner = node if isinstance(node, Function) else self._scopes[node]
            is_class = isinstance(node, ast.ClassDef) or (
                node in self._of_class and not isinstance(node, Function)
            )
            for child in ast.iter_child_nodes(node):
                if not child._fields:  # an operator or context, shared by the whole tree
                    continue
                self.parents[child] = node
                self._scopes[child] = inner
                self.nodes.append(child)
                if isinstance(child, ast.Name):
                    self.named.setdefault(child.id, []).append(child)
                if is_class:
                    self._of_class.add(child)
                else:
                    self._own.setdefault(inner, []).append(child)
        self._locals: dict[ast.AST, frozenset[str]] = {}
        self.shared = {
            name
            for node in self.nodes
            if isinstance(node, ast.Global | ast.Nonlocal)
            for name in node.names
        }
        self.bindings = self._count_bindings()
        self.imports = self._read_imports()

    def place(self, node: ast.AST) -> Place:
        """Return where a node stands."""
        return Place(self.path, getattr(node, "lineno", 1))

    def scope(self, node: ast.AST) -> Scope:
        """Return the function around a node, or the module."""
        return self._scopes.get(node, self.tree)  # a type written as text is no node of the file

    def dotted(self, node: ast.AST) -> str:
        """Return the full name of `a.b.c` with its import resolved, or nothing."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join((self.imports.get(node.id, node.id), *reversed(parts)))

    def top(self, name: str) -> Function | ast.ClassDef | None:
        """Return the only function or class of that name at the top of the file."""
        if self.bindings.get(name) != 1:
            return None
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        found = (n for n in self.tree.body if isinstance(n, kinds) and n.name == name)
        return next(found, None)

    def literal(self, node: ast.AST | None) -> Any:
        """Return the value of a literal, or of a name that is one; else UNKNOWN."""
        if isinstance(node, ast.Name) and self.bindings.get(node.id) == 1:
            above = next((n for n in self.tree.body if _assigns(n, node.id)), None)
            node = getattr(above, "value", None)
        if node is None:
            return UNKNOWN
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return UNKNOWN

    def is_local(self, name: ast.Name) -> bool:
        """Whether a name belongs to a function around it, not to the file."""
        return self.owner(name) is not self.tree and name.id not in self.imports

    def owner(self, name: ast.Name) -> Scope:
        """Return the function that a name is a variable or parameter of, or the module."""
        scope = self.scope(name)
        while not isinstance(scope, ast.Module):
            if name.id in self.locals(scope):
                return scope
            scope = self.scope(scope)
        return scope

    def locals(self, scope: Function) -> frozenset[str]:
        """Return the parameters and variables of a function."""
        if scope not in self._locals:
            own = self._own.get(scope, [])
            names = {node.arg for node in own if isinstance(node, ast.arg)}
            names |= {
                node.id
                for node in own
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
            }
            names |= {node.name for node in own if isinstance(node, Function | ast.ClassDef)}
            shared = {n for node in own if isinstance(node, ast.Global) for n in node.names}
            self._locals[scope] = frozenset(names - shared)
        return self._locals[scope]

    def _count_bindings(self) -> dict[str, int]:
        """Return how often each name gets a value at the top of the file."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            names: list[str] = []
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                names = [node.id]
            elif isinstance(node, Function | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.alias):
                names = [node.asname or node.name.partition(".")[0]]
            elif isinstance(node, ast.Global):
                names = node.names * 2  # changed from a function: not to be trusted
            is_top = self.scope(node) is self.tree and node not in self._of_class
            if names and (is_top or isinstance(node, ast.Global)):
                for name in names:
                    counts[name] = counts.get(name, 0) + 1
        return counts

    def _read_imports(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    self._bind(found, bound, alias.name if alias.asname else bound)
            elif isinstance(node, ast.ImportFrom):
                start = "." * node.level + (node.module or "")
                dot = "" if start.endswith(".") else "."
                for alias in node.names:
                    self._bind(found, alias.asname or alias.name, f"{start}{dot}{alias.name}")
        return found

    def _bind(self, found: dict[str, str], name: str, full: str) -> None:
        found[name] = full if found.get(name, full) == full else f"?.{name}"


def _assigns(node: ast.stmt, name: str) -> bool:
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return isinstance(node, ast.Assign | ast.AnnAssign) and any(
        isinstance(target, ast.Name) and target.id == name for target in targets
    )


class Modules:
    """The files of a project, found by the names under which they are imported."""

    def __init__(self, trees: Trees, folders: Sequence[str], until: float) -> None:
        self.trees = trees
        self.folders = folders
        self.until = until  # by time.monotonic()
        self._modules: dict[str, Module | None] = {}

    def at(self, path: str) -> Module | None:
        """Return the module of a file, or None where it cannot be read.

        Raise Unclear once the time is over; the first file is read whatever it takes.
        """
        if path not in self._modules:
            if self._modules and time.monotonic() > self.until:
                raise Unclear("there was no time to read it all", Place(path, 1))
            tree = self.trees.tree(path)
            try:
                self._modules[path] = None if tree is None else Module(path, tree)
            except RecursionError:
                self._modules[path] = None
        return self._modules[path]

    def resolve(self, module: Module, node: ast.AST) -> Defined | None:
        """Return the function or class of the project that a name or `a.b` stands for."""
        base = node
        while isinstance(base, ast.Attribute):
            base = base.value
        if not isinstance(base, ast.Name) or module.is_local(base):
            return None
        if base.id not in module.imports:
            own = module.top(base.id) if base is node else None
            return None if own is None else Defined(module, own)
        if module.bindings.get(base.id, 0) > 1:
            return None
        return self._by_name(module, module.dotted(node), _HOPS)

    def imported(self, module: Module, node: ast.Import | ast.ImportFrom) -> list[Module]:
        """Return the project's files that an import statement runs, packages first."""
        found: list[Module | None] = []
        for alias in node.names:
            level = node.level if isinstance(node, ast.ImportFrom) else 0
            base = alias.name if isinstance(node, ast.Import) else node.module or ""
            parts = base.split(".") if base else []
            ends = range(1, len(parts) + 1)
            found += [self._file(module, ".".join(parts[:end]), level) for end in ends]
            if isinstance(node, ast.ImportFrom):
                found.append(self._file(module, ".".join([*parts, alias.name]), level))
        return list(dict.fromkeys(m for m in found if m is not None))

    def _by_name(self, module: Module, dotted: str, hops: int) -> Defined | None:
        """Return what a dotted name stands for, following re-exports."""
        path, _, name = dotted.rpartition(".")
        level = len(dotted) - len(dotted.lstrip("."))
        if (not path.strip(".") and not level) or not hops:
            return None
        target = self._file(module, path.strip(".") if not level else path[level:], level)
        if target is None:
            return None
        found = target.top(name)
        if found is not None:
            return Defined(target, found)
        again = target.imports.get(name)
        return self._by_name(target, again, hops - 1) if again else None

    def _file(self, module: Module, name: str, level: int) -> Module | None:
        folders: Sequence[str] = self.folders
        if level:
            folder = os.path.dirname(module.path)
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            folders = (folder,)
            if not name:
                return self.at(os.path.join(folder, "__init__.py"))
        path = None
        for part in name.split("."):
            found = find(part, folders)
            if found is None:
                return None
            folders, path = found.folders, found.path
        return None if path is None else self.at(path)
