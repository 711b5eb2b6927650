"""What a script needs from outside its project: followed from file to file, without running any."""

from __future__ import annotations

import gc
import os
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.imports import shadowing, stdlib, sys_path
from safelaunch.analysis.python import statements
from safelaunch.analysis.python.module_search import (
    Found,
    find,
    holds_python,
    is_built,
    search_path,
)
from safelaunch.analysis.python.statements import REQUIRED, TYPING, Statement, weaker
from safelaunch.analysis.python.trees import Place, Trees, Unread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.analysis.imports.shadowing import Shadow

MAX_FILES = 400
SECONDS = 0.06  # of the 0.1 s that a start may spend on checks


class Needed(NamedTuple):
    """A name that something imports, where first, and what decides whether that happens.

    `kind` is `required`, or names why it may not happen or not matter: `function`, `try`,
    `conditional`, `dynamic`, `typing`.
    """

    name: str
    place: Place
    kind: str

    @property
    def is_required(self) -> bool:
        """Whether the script cannot start without it."""
        return self.kind == REQUIRED


class Imports(NamedTuple):
    """What a script imports, as far as its text says.

    `needed` are top-level names of neither the project nor the standard library. `standard` are
    modules of the standard library that not every Python since 3.8 has; `removed` and `added` of
    `standard.py` say which. `absent` are dotted names below a package of the project that has no
    such module. `relative` is the first relative import of a script that is no module.
    `path_changed` is where the search path gets a folder that is not known here: a name that is
    needed may lie there. `is_whole`: nothing was left out for want of time.
    """

    needed: tuple[Needed, ...] = ()
    standard: tuple[Needed, ...] = ()
    absent: tuple[Needed, ...] = ()
    shadows: tuple[Shadow, ...] = ()
    relative: Place | None = None
    path_changed: Place | None = None
    unread: tuple[Unread, ...] = ()
    files: Mapping[str, str] = MappingProxyType({})  # path -> kind of the import of it
    is_whole: bool = True


def needed(
    script: str | os.PathLike[str],
    roots: Sequence[str | os.PathLike[str]],
    *,
    trees: Trees | None = None,
    cwd: str | None = None,
    is_module: bool = False,
    seconds: float = SECONDS,
    most: int = MAX_FILES,
) -> Imports:
    """Return what the script needs.

    `roots` are the folders of PYTHONPATH; the script's own comes first unless it runs as a module.
    `cwd` is the job's working folder, for relative additions to `sys.path`. It stops after so many
    seconds or files, the script itself always read. `trees` shares what was read with others.
    """
    path = os.path.abspath(os.fspath(script))
    folders = search_path(path, [os.fspath(root) for root in roots], is_module=is_module)
    walk = _Walk(trees or Trees(), folders, cwd, time.monotonic() + seconds, most)
    was_on = gc.isenabled()
    gc.disable()  # trees have no garbage, and looking for it costs a third of the time
    try:
        walk.run(path, is_module=is_module)
    finally:
        if was_on:
            gc.enable()
    return walk.result(is_module=is_module)


class _File:
    """A file to be read: as what it is imported, and how surely."""

    def __init__(self, path: str, package: str, folders: tuple[str, ...], kind: str) -> None:
        self.path = path
        self.package = package  # dotted name that one leading dot means
        self.folders = folders  # where that package lies
        self.kind = kind


class _Walk:
    def __init__(
        self, trees: Trees, folders: tuple[str, ...], cwd: str | None, until: float, most: int
    ) -> None:
        self.trees = trees
        self.folders = list(folders)
        self.cwd = cwd
        self.until = until
        self.most = most
        self.main = ""
        self.files: dict[str, str] = {}
        self.queue: list[_File] = []
        self.later: list[_File] = []  # imported only perhaps: after all that is required
        self.names: dict[tuple[str, str], Needed] = {}  # (which table, name)
        self.used: list[tuple[str, Statement]] = []  # (file, import) of what the project has
        self.relative: Place | None = None
        self.path_changed: Place | None = None
        self.is_whole = True

    def run(self, script: str, *, is_module: bool) -> None:
        """Read the script, then what it imports, nearest first."""
        self.main = script
        self._script_package(script, is_module=is_module)
        while self.queue or self.later:
            if self.files and (len(self.files) >= self.most or time.monotonic() > self.until):
                self.is_whole = False
                return
            file = (self.queue or self.later).pop(0)
            if file.path not in self.files:
                self.files[file.path] = file.kind
                self._read(file)

    def _script_package(self, script: str, *, is_module: bool) -> None:
        folder = os.path.dirname(script)
        package = ""
        if is_module:  # the root above it tells its package
            above = [root for root in self.folders if folder.startswith(root + os.sep)]
            if above:
                package = os.path.relpath(folder, max(above, key=len)).replace(os.sep, ".")
        self.queue.append(_File(script, package, (folder,), REQUIRED))

    def _read(self, file: _File) -> None:
        data = self.trees.data(file.path) or b""
        is_main = file.path == self.main
        if not is_main and b"import" not in data:
            return
        # the script whole: its options are read too, and a syntax error anywhere in it matters
        tree = self.trees.tree(file.path) if is_main else self.trees.outline(file.path)
        if tree is None:
            return
        if any(mark in data for mark in sys_path.MARKS):
            self._extend(tree, file.path)
        has_dynamic = b"import_module" in data or b"__import__" in data
        for found in statements.imports(tree, is_main=is_main, has_dynamic=has_dynamic):
            self._take(file, found._replace(kind=weaker(file.kind, found.kind)))

    def _extend(self, tree: object, path: str) -> None:
        for addition in sys_path.additions(tree, path, self.cwd):  # type: ignore[arg-type]
            if addition.folder is None:
                self.path_changed = self.path_changed or Place(path, addition.line)
            elif addition.folder not in self.folders:
                self.folders.append(addition.folder)

    def _take(self, file: _File, found: Statement) -> None:
        """Take one import statement: follow it into the project, or note what it needs."""
        if found.level:
            self._take_relative(file, found)
            return
        first, *rest = found.module.split(".")
        top = find(first, self.folders)
        if top is None or not self._is_of_project(top, rest, found):
            if top is None and is_built(first, self.folders):
                return
            self._note_outside(file, first, found)
            return
        self.used.append((file.path, found))
        self._descend(file, top, rest, found)

    def _is_of_project(self, top: Found, rest: list[str], found: Statement) -> bool:
        """Whether a name is the project's. A folder without `__init__` gives way to a package."""
        if top.name in stdlib.LOADED or (top.name in stdlib.NAMES and top.is_namespace):
            return False
        if not top.is_namespace:
            return True
        below = rest[:1] or [name for name in found.names if name != "*"]
        if not below:
            return holds_python(top.folders)
        return any(find(name, top.folders) or is_built(name, top.folders) for name in below)

    def _note_outside(self, file: _File, name: str, found: Statement) -> None:
        if name in stdlib.REMOVED or name in stdlib.ADDED:
            self._note("standard", name, file, found)
        elif name and name not in stdlib.NAMES:
            self._note("needed", name, file, found)

    def _note(self, table: str, name: str, file: _File, found: Statement) -> None:
        old = self.names.get((table, name))
        if old is None or (found.kind == REQUIRED and not old.is_required):
            place = Place(file.path, found.line)
            self.names[table, name] = Needed(name, place, found.kind)

    def _take_relative(self, file: _File, found: Statement) -> None:
        if file.path == self.main and not file.package:
            if found.kind == REQUIRED:
                self.relative = self.relative or Place(file.path, found.line)
            return
        folders, package = file.folders, file.package
        for _ in range(found.level - 1):
            folders = tuple(os.path.dirname(folder) for folder in folders)
            package = package.rpartition(".")[0]
        inits = (os.path.join(folder, "__init__.py") for folder in folders)
        base = Found(package, next(filter(os.path.isfile, inits), None), folders)
        rest = found.module.split(".") if found.module else []
        self._descend(file, base, rest, found, is_read=not rest)

    def _descend(
        self, file: _File, top: Found, rest: list[str], found: Statement, *, is_read: bool = False
    ) -> None:
        """Follow a dotted name from its first package down, and the modules imported from it."""
        if not is_read:
            self._follow(top, found)
        for name in rest:
            below = find(name, top.folders, f"{top.name}.{name}".lstrip("."))
            if below is None:
                self._note_absent(file, top, name, found)
                return
            top = below
            self._follow(top, found)
        for name in found.names:
            below = find(name, top.folders, f"{top.name}.{name}".lstrip("."))
            if below is not None:
                self._follow(below, found)

    def _follow(self, found: Found, by: Statement) -> None:
        if found.path is None or by.kind == TYPING:
            return
        package = found.name if found.folders else found.name.rpartition(".")[0]
        folders = found.folders or (os.path.dirname(found.path),)
        file = _File(found.path, package, folders, by.kind)
        (self.queue if by.kind == REQUIRED else self.later).append(file)

    def _note_absent(self, file: _File, package: Found, name: str, found: Statement) -> None:
        """Note a module that a package lacks, unless it may come from elsewhere."""
        if is_built(name, package.folders) or self.path_changed:
            return
        init = b"" if package.path is None else self.trees.data(package.path) or b""
        if not package.folders and b"sys.modules" in init:
            return
        if b"__path__" in init or b"sys.modules" in init or package.is_namespace:
            return
        self._note("absent", f"{package.name}.{name}", file, found)

    def result(self, *, is_module: bool) -> Imports:
        """Return what was found."""
        return Imports(
            needed=tuple(self._table("needed")),
            standard=tuple(self._table("standard")),
            absent=tuple(self._table("absent")),
            shadows=shadowing.find_all(self.trees, self.folders, self.used),
            relative=None if is_module else self.relative,
            path_changed=self.path_changed,
            unread=tuple(
                self.trees.unread[path] for path in self.files if path in self.trees.unread
            ),
            files=dict(self.files),
            is_whole=self.is_whole,
        )

    def _table(self, table: str) -> Iterator[Needed]:
        return (found for (which, _), found in self.names.items() if which == table)
