"""Finds the modules that a script imports by following its import statements from file to file."""

from __future__ import annotations

import gc
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.imports import shadowing, stdlib, sys_path
from safelaunch.analysis.python import statements
from safelaunch.analysis.python.cpu_budget import CpuBudget
from safelaunch.analysis.python.module_search import (
    ModuleLocation,
    contains_python,
    find_module,
    is_compiled,
    search_path,
)
from safelaunch.analysis.python.statements import REQUIRED, TYPING, ImportStatement, less_certain
from safelaunch.analysis.python.trees import SourceLine, Trees, UnreadFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.analysis.imports.shadowing import Shadow

MAX_FILES = 2000
TIME_LIMIT = 0.06  # CPU seconds, of the 0.1 s that a start may spend on checks


class ImportedModule(NamedTuple):
    """An imported module, the location of its first import, and that import's condition.

    `kind` is `required`, or the reason why the import may not run or may fail without harm:
    `function`, `try`, `conditional`, `dynamic`, `typing`.
    """

    name: str
    location: SourceLine
    kind: str

    @property
    def is_required(self) -> bool:
        """Whether the script cannot start without this module."""
        return self.kind == REQUIRED


class Imports(NamedTuple):
    """What a script imports, as far as its text shows.

    `third_party` are top-level modules of neither the project nor the standard library. `standard`
    are modules of the standard library that not every Python since 3.8 has (`stdlib.REMOVED` and
    `stdlib.ADDED`). `missing_submodules` are dotted names in a package of the project that lacks
    the module. `no_packages` are the paths of files of which submodules are imported: a file is
    found in place of a package. `relative_import` is the first relative import of a script that
    does not run as a module. `path_changed` is where `sys.path` gets a folder that cannot be
    determined: any module may be found there; `path_prepended` is the first such folder that comes
    before others. `is_complete`: no file was left out because of the limits.
    """

    third_party: tuple[ImportedModule, ...] = ()
    standard: tuple[ImportedModule, ...] = ()
    missing_submodules: tuple[ImportedModule, ...] = ()
    no_packages: tuple[ImportedModule, ...] = ()
    shadows: tuple[Shadow, ...] = ()
    relative_import: SourceLine | None = None
    path_changed: SourceLine | None = None
    path_prepended: SourceLine | None = None
    unread: tuple[UnreadFile, ...] = ()
    files: Mapping[str, str] = MappingProxyType({})  # path -> kind of its import
    is_complete: bool = True


def read_imports(
    script: str | os.PathLike[str],
    roots: Sequence[str | os.PathLike[str]],
    *,
    trees: Trees | None = None,
    cwd: str | None = None,
    is_module: bool = False,
    seconds: float | None = TIME_LIMIT,
    max_files: int = MAX_FILES,
) -> Imports:
    """Return what a script imports, directly and through the project's own modules.

    `roots` are the folders of PYTHONPATH; the script's folder comes first unless it runs as a
    module. `cwd` is the job's working folder, for relative additions to `sys.path`. Stops after
    `seconds` of CPU time or `max_files`; the script itself is always read. `trees` shares parsed
    files with other callers.
    """
    path = os.path.abspath(os.fspath(script))
    folders = search_path(path, [os.fspath(root) for root in roots], is_module=is_module)
    walk = _ImportWalk(trees or Trees(), folders, cwd, CpuBudget(seconds), max_files)
    was_on = gc.isenabled()
    gc.disable()  # syntax trees have no garbage, and collection takes a third of the time
    try:
        walk.run(path, is_module=is_module)
    finally:
        if was_on:
            gc.enable()
    return walk.result(is_module=is_module)


class _PendingFile(NamedTuple):
    """A file to read, with the package that it is imported as and the kind of the import."""

    path: str
    package: str  # the package that one leading dot refers to
    folders: tuple[str, ...]  # the folders of that package
    kind: str


class _ImportWalk:
    def __init__(
        self,
        trees: Trees,
        folders: tuple[str, ...],
        cwd: str | None,
        budget: CpuBudget,
        max_files: int,
    ) -> None:
        self.trees = trees
        self.folders = list(folders)
        self.cwd = cwd
        self.budget = budget
        self.max_files = max_files
        self.main = ""
        self.files: dict[str, str] = {}
        self.queue: list[_PendingFile] = []
        self.optional_queue: list[_PendingFile] = []  # conditional imports: read after the required
        self.names: dict[tuple[str, str], ImportedModule] = {}  # (table, name)
        self.project_imports: list[tuple[str, ImportStatement]] = []  # (file, import)
        self.relative_import: SourceLine | None = None
        self.path_changed: SourceLine | None = None
        self.path_prepended: SourceLine | None = None
        self.is_complete = True

    def run(self, script: str, *, is_module: bool) -> None:
        """Read the script, then its imports, breadth first."""
        self.main = script
        self._script_package(script, is_module=is_module)
        while self.queue or self.optional_queue:
            is_over = len(self.files) >= self.max_files or self.budget.is_spent
            if self.files and is_over:
                self.is_complete = False
                return
            file = (self.queue or self.optional_queue).pop(0)
            if file.path not in self.files:
                self.files[file.path] = file.kind
                self._read(file)

    def _script_package(self, script: str, *, is_module: bool) -> None:
        folder = os.path.dirname(script)
        package = ""
        if is_module:  # its package is its path below the root
            roots = [root for root in self.folders if folder.startswith(root + os.sep)]
            if roots:
                package = os.path.relpath(folder, max(roots, key=len)).replace(os.sep, ".")
        self.queue.append(_PendingFile(script, package, (folder,), REQUIRED))

    def _read(self, file: _PendingFile) -> None:
        data = self.trees.data(file.path) or b""
        is_main = file.path == self.main
        if not is_main and b"import" not in data:
            return
        # the script is parsed in full: its options are read too, and any syntax error in it matters
        tree = self.trees.tree(file.path) if is_main else self.trees.outline(file.path)
        if tree is None:
            return
        has_mark = any(mark in data for mark in sys_path.MARKS)
        for addition in sys_path.additions(tree, file.path, self.cwd) if has_mark else ():
            if addition.folder is None:
                place = SourceLine(file.path, addition.line)
                self.path_changed = self.path_changed or place
                if not addition.is_last:
                    self.path_prepended = self.path_prepended or place
            elif addition.folder not in self.folders:
                self.folders.append(addition.folder)
        has_dynamic = b"import_module" in data or b"__import__" in data
        imports = statements.import_statements(tree, is_main=is_main, has_dynamic=has_dynamic)
        for statement in imports:
            self._process(file, statement._replace(kind=less_certain(file.kind, statement.kind)))

    def _process(self, file: _PendingFile, statement: ImportStatement) -> None:
        """Follow one import statement into the project, or record the module as external."""
        if statement.level:
            self._process_relative(file, statement)
            return
        first, *submodules = statement.module.split(".")
        top = find_module(first, self.folders)
        if top is None or not self._is_project_module(top, submodules, statement):
            if top is None and is_compiled(first, self.folders):
                return
            if first in stdlib.REMOVED or first in stdlib.ADDED:
                self._record("standard", first, file, statement)
            elif first and first not in stdlib.NAMES:
                self._record("needed", first, file, statement)
            return
        self.project_imports.append((file.path, statement))
        self._follow(top, statement)
        self._descend(file, top, submodules, statement)

    def _is_project_module(
        self, top: ModuleLocation, submodules: list[str], statement: ImportStatement
    ) -> bool:
        """Whether a name refers to the project. A namespace package yields to an installed one."""
        if top.name in stdlib.PRELOADED or (top.name in stdlib.NAMES and top.is_namespace):
            return False
        if not top.is_namespace:
            return True
        names = submodules[:1] or [name for name in statement.names if name != "*"]
        if not names:
            return contains_python(top.folders)
        return any(find_module(n, top.folders) or is_compiled(n, top.folders) for n in names)

    def _record(
        self, table: str, name: str, file: _PendingFile, statement: ImportStatement
    ) -> None:
        previous = self.names.get((table, name))
        if previous is None or (statement.kind == REQUIRED and not previous.is_required):
            place = SourceLine(file.path, statement.line)
            self.names[table, name] = ImportedModule(name, place, statement.kind)

    def _process_relative(self, file: _PendingFile, statement: ImportStatement) -> None:
        if file.path == self.main and not file.package:
            if statement.kind == REQUIRED:
                self.relative_import = self.relative_import or SourceLine(file.path, statement.line)
            return
        folders, package = file.folders, file.package
        for _ in range(statement.level - 1):
            folders = tuple(os.path.dirname(folder) for folder in folders)
            package = package.rpartition(".")[0]
        inits = (os.path.join(folder, "__init__.py") for folder in folders)
        base = ModuleLocation(package, next(filter(os.path.isfile, inits), None), folders)
        submodules = statement.module.split(".") if statement.module else []
        if submodules:
            self._follow(base, statement)
        self._descend(file, base, submodules, statement)

    def _descend(
        self,
        file: _PendingFile,
        top: ModuleLocation,
        submodules: list[str],
        statement: ImportStatement,
    ) -> None:
        """Follow a dotted name from its top-level package down, and the submodules it imports."""
        for name in submodules:
            module = find_module(name, top.folders, f"{top.name}.{name}".lstrip("."))
            if module is None:
                self._record_missing(file, top, name, statement)
                return
            top = module
            self._follow(top, statement)
        for name in statement.names:
            module = find_module(name, top.folders, f"{top.name}.{name}".lstrip("."))
            if module is not None:
                self._follow(module, statement)

    def _follow(self, module: ModuleLocation, statement: ImportStatement) -> None:
        if module.path is None or statement.kind == TYPING:
            return
        package = module.name if module.folders else module.name.rpartition(".")[0]
        folders = module.folders or (os.path.dirname(module.path),)
        file = _PendingFile(module.path, package, folders, statement.kind)
        (self.queue if statement.kind == REQUIRED else self.optional_queue).append(file)

    def _record_missing(
        self, file: _PendingFile, package: ModuleLocation, name: str, statement: ImportStatement
    ) -> None:
        """Record a module that a package lacks, unless it may come from elsewhere."""
        if is_compiled(name, package.folders) or self.path_changed:
            return
        if package.path is not None and not package.folders and "." not in package.name:
            self._record("no_package", package.path, file, statement)
            return
        init = b"" if package.path is None else self.trees.data(package.path) or b""
        if not (b"__path__" in init or b"sys.modules" in init or package.is_namespace):
            self._record("absent", f"{package.name}.{name}", file, statement)

    def result(self, *, is_module: bool) -> Imports:
        """Return the collected imports."""
        tables: dict[str, list[ImportedModule]] = {"needed": [], "standard": [], "absent": []}
        tables["no_package"] = []
        for (table, _), module in self.names.items():
            tables[table].append(module)
        unread = self.trees.unread
        return Imports(
            third_party=tuple(tables["needed"]),
            standard=tuple(tables["standard"]),
            missing_submodules=tuple(tables["absent"]),
            no_packages=tuple(tables["no_package"]),
            shadows=shadowing.find_shadows(self.trees, self.folders, self.project_imports),
            relative_import=None if is_module else self.relative_import,
            path_changed=self.path_changed,
            path_prepended=self.path_prepended,
            unread=tuple(unread[path] for path in self.files if path in unread),
            files=dict(self.files),
            is_complete=self.is_complete,
        )
