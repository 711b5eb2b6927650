"""Resolves names and literal values in Python files, for the option readers."""

from __future__ import annotations

import ast
import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from safelaunch.analysis.python.module_search import find_module
from safelaunch.analysis.python.trees import SourceLine, Trees, Unclear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.analysis.python.cpu_budget import CpuBudget

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
_MAX_REEXPORTS = 6  # re-exports to follow, such as `from .args import parse` in an `__init__.py`


class UnknownValue:
    """A value that cannot be read from the text."""


UNKNOWN = UnknownValue()


class Definition(NamedTuple):
    """A function or class, and the module that defines it."""

    module: Module
    node: Function | ast.ClassDef


class Module:
    """The names of a file. A name with two meanings is left out.

    `is_shallow`: what expressions consist of is left out, which is most of a class of settings.
    """

    def __init__(self, path: str, tree: ast.Module, *, is_shallow: bool = False) -> None:
        self.path = path
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = [tree]
        self._scopes: dict[ast.AST, Scope] = {tree: tree}
        self.names_by_id: dict[str, list[ast.Name]] = {}
        self._scope_nodes: dict[Scope, list[ast.AST]] = {}
        self._class_body: set[ast.AST] = set()  # what it binds are not names of the module
        for node in self.nodes:  # grows while it is walked
            inner = node if isinstance(node, Function) else self._scopes[node]
            is_class = isinstance(node, ast.ClassDef) or (
                node in self._class_body and not isinstance(node, Function)
            )
            for child in ast.iter_child_nodes(node):
                if not child._fields:  # an operator or context, shared by the whole tree
                    continue
                if is_shallow and isinstance(child, ast.expr) and not _is_target(child):
                    continue
                self.parents[child] = node
                self._scopes[child] = inner
                self.nodes.append(child)
                if isinstance(child, ast.Name):
                    self.names_by_id.setdefault(child.id, []).append(child)
                if is_class:
                    self._class_body.add(child)
                else:
                    self._scope_nodes.setdefault(inner, []).append(child)
        self._locals: dict[ast.AST, frozenset[str]] = {}
        self.shared = {
            name
            for node in self.nodes
            if isinstance(node, ast.Global | ast.Nonlocal)
            for name in node.names
        }
        self.bindings = self._count_bindings()
        self.imports = self._read_imports()

    def location(self, node: ast.AST) -> SourceLine:
        """Return the file and line of a node."""
        return SourceLine(self.path, getattr(node, "lineno", 1))

    def scope(self, node: ast.AST) -> Scope:
        """Return the function around a node, or the module."""
        # a type annotation in quotes is not a node of the file
        return self._scopes.get(node, self.tree)

    def dotted(self, node: ast.AST) -> str:
        """Return the full name of `a.b.c` with its import resolved, or an empty string."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join((self.imports.get(node.id, node.id), *reversed(parts)))

    def top_level(self, name: str) -> Function | ast.ClassDef | None:
        """Return the only function or class of that name at module level, or None."""
        if self.bindings.get(name) != 1:
            return None
        definitions = (n for n in self.tree.body if isinstance(n, Function | ast.ClassDef))
        return next((node for node in definitions if node.name == name), None)

    def literal(self, node: ast.AST | None) -> Any:
        """Return the value of a literal, or of a name assigned to one; else UNKNOWN."""
        if isinstance(node, ast.Name) and self.bindings.get(node.id) == 1:
            assignment = next((n for n in self.tree.body if _assigns(n, node.id)), None)
            node = getattr(assignment, "value", None)
        if node is None:
            return UNKNOWN
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return UNKNOWN

    def is_local(self, name: ast.Name) -> bool:
        """Whether a name is local to an enclosing function."""
        return self.owner(name) is not self.tree and name.id not in self.imports

    def owner(self, name: ast.Name) -> Scope:
        """Return the scope that a name belongs to: an enclosing function, or the module."""
        scope = self.scope(name)
        while not isinstance(scope, ast.Module):
            if name.id in self.locals(scope):
                return scope
            scope = self.scope(scope)
        return scope

    def locals(self, scope: Function) -> frozenset[str]:
        """Return the parameters and variables of a function."""
        if scope not in self._locals:
            nodes = self._scope_nodes.get(scope, [])
            stores = (
                n for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
            )
            names = {node.id for node in stores}
            names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
            names |= {node.name for node in nodes if isinstance(node, Function | ast.ClassDef)}
            shared = {n for node in nodes if isinstance(node, ast.Global) for n in node.names}
            self._locals[scope] = frozenset(names - shared)
        return self._locals[scope]

    def _count_bindings(self) -> dict[str, int]:
        """Return how often each name is bound at module level."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            names = []
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                names = [node.id]
            elif isinstance(node, Function | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.alias):
                names = [node.asname or node.name.partition(".")[0]]
            elif isinstance(node, ast.Global):
                names = node.names * 2  # assigned in a function: its value is not certain
            is_top = self.scope(node) is self.tree and node not in self._class_body
            if names and (is_top or isinstance(node, ast.Global)):
                for name in names:
                    counts[name] = counts.get(name, 0) + 1
        return counts

    def _read_imports(self) -> dict[str, str]:
        imports: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    self._bind(imports, bound, alias.name if alias.asname else bound)
            elif isinstance(node, ast.ImportFrom):
                start = "." * node.level + (node.module or "")
                dot = "" if start.endswith(".") else "."
                for alias in node.names:
                    self._bind(imports, alias.asname or alias.name, f"{start}{dot}{alias.name}")
        return imports

    def _bind(self, imports: dict[str, str], name: str, full: str) -> None:
        imports[name] = full if imports.get(name, full) == full else f"?.{name}"


def _is_target(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def _assigns(node: ast.stmt, name: str) -> bool:
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return isinstance(node, ast.Assign | ast.AnnAssign) and any(
        isinstance(target, ast.Name) and target.id == name for target in targets
    )


class InstalledClasses(Protocol):
    """Classes and text of the packages of the job's interpreter (libraries.py)."""

    def owns(self, module: Module) -> bool:
        """Whether a module is one of them."""

    def resolve(self, module: Module, node: ast.AST) -> Definition | None:
        """Return the class that a name in a module refers to."""

    def text(self, dotted: str) -> str:
        """Return the text of an installed module; empty where there is none."""

    def has_package(self, name: str) -> bool:
        """Whether a top-level package is installed."""

    def folders(self) -> Sequence[str]:
        """Return the folders of installed packages."""


class Modules:
    """Loads the modules of a project by file path or by import name."""

    def __init__(
        self,
        trees: Trees,
        folders: Sequence[str],
        budget: CpuBudget,
        libraries: InstalledClasses | None = None,
        *,
        is_single: bool = False,
    ) -> None:
        self.trees = trees
        self.folders = folders
        self.budget = budget
        self.libraries = libraries
        self.is_single = is_single  # a file of a library: what it imports is not followed
        self._modules: dict[str, Module | None] = {}

    def load(self, path: str) -> Module | None:
        """Return the module of a file, or None where it cannot be read.

        Raise Unclear once the budget is spent; the first file is always read.
        """
        if path not in self._modules:
            if self._modules and self.budget.is_spent:
                why = "the time limit was reached before all files were read"
                raise Unclear(why, SourceLine(path, 1))
            self._modules[path] = None
            tree = self.trees.tree(path)
            with contextlib.suppress(RecursionError):
                self._modules[path] = None if tree is None else Module(path, tree)
        return self._modules[path]

    def resolve(self, module: Module, node: ast.AST) -> Definition | None:
        """Return the function or class of the project that a name or `a.b` refers to."""
        base = node
        while isinstance(base, ast.Attribute):
            base = base.value
        if not isinstance(base, ast.Name) or module.is_local(base):
            return None
        if base.id not in module.imports:
            definition = module.top_level(base.id) if base is node else None
            return None if definition is None else Definition(module, definition)
        if module.bindings.get(base.id, 0) > 1:
            return None
        return self._by_name(module, module.dotted(node), _MAX_REEXPORTS)

    def resolve_class(self, module: Module, node: ast.AST) -> Definition | None:
        """Return the class of the project or of an installed package that a name refers to."""
        if self.libraries is not None and self.libraries.owns(module):
            return self.libraries.resolve(module, node)
        definition = self.resolve(module, node)
        if definition is not None or self.libraries is None:
            return definition
        base = node
        while isinstance(base, ast.Attribute):
            base = base.value
        if not isinstance(base, ast.Name) or module.is_local(base):
            return None
        if base.id not in module.imports or module.bindings.get(base.id, 0) > 1:
            return None
        return self.libraries.resolve(module, node)

    def has_package(self, name: str) -> bool:
        """Whether a top-level package is in the project or installed."""
        is_own = not self.is_single and find_module(name, self.folders) is not None
        return is_own or (self.libraries is not None and self.libraries.has_package(name))

    def library_folders(self) -> Sequence[str] | None:
        """Return the folders of installed packages; None where they are not known."""
        return None if self.libraries is None else self.libraries.folders()

    def text(self, dotted: str) -> str:
        """Return the text of a module of the project or of a library; empty where it has none."""
        folders: Sequence[str] = () if self.is_single else self.folders
        path = None
        for part in dotted.split("."):
            package = find_module(part, folders)
            if package is None:
                return "" if self.libraries is None else self.libraries.text(dotted)
            folders, path = package.folders, package.path
        return "" if path is None else self.trees.text(path)

    def imported(self, module: Module, node: ast.Import | ast.ImportFrom) -> list[Module]:
        """Return the project's modules that an import statement runs, packages first."""
        modules: list[Module | None] = []
        for alias in node.names:
            level = node.level if isinstance(node, ast.ImportFrom) else 0
            base = alias.name if isinstance(node, ast.Import) else node.module or ""
            parts = base.split(".") if base else []
            ends = range(1, len(parts) + 1)
            modules += [self._file(module, ".".join(parts[:end]), level) for end in ends]
            if isinstance(node, ast.ImportFrom):
                modules.append(self._file(module, ".".join([*parts, alias.name]), level))
        return list(dict.fromkeys(imported for imported in modules if imported is not None))

    def _by_name(self, module: Module, dotted: str, max_reexports: int) -> Definition | None:
        """Return the definition that a dotted name refers to, following re-exports."""
        path, _, name = dotted.rpartition(".")
        level = len(dotted) - len(dotted.lstrip("."))
        if (not path.strip(".") and not level) or not max_reexports:
            return None
        target = self._file(module, path.strip(".") if not level else path[level:], level)
        if target is None:
            return None
        definition = target.top_level(name)
        if definition is not None:
            return Definition(target, definition)
        reexport = target.imports.get(name)
        return self._by_name(target, reexport, max_reexports - 1) if reexport else None

    def _file(self, module: Module, name: str, level: int) -> Module | None:
        if self.is_single:
            return None
        folders: Sequence[str] = self.folders
        if level:
            folder = module.path
            for _ in range(level):
                folder = os.path.dirname(folder)
            folders = (folder,)
            if not name:
                return self.load(os.path.join(folder, "__init__.py"))
        path = None
        for part in name.split("."):
            package = find_module(part, folders)
            if package is None:
                return None
            folders, path = package.folders, package.path
        return None if path is None else self.load(path)
