"""Locates imported modules in the project by the rules of Python's path finder.

The first folder that has a package with `__init__`, or a module, wins; a folder without `__init__`
(a namespace package) counts only if no folder has either, and an installed package of that name
takes precedence over it.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COMPILED_SUFFIXES = (".so", ".pyd", ".pyx", ".pyc", ".dll")
_MAX_ENTRIES = 5000  # names read from one folder: a data folder may hold millions


class ModuleLocation(NamedTuple):
    """A module or package: its file (`path`, None for a namespace) and its submodule `folders`."""

    name: str
    path: str | None
    folders: tuple[str, ...] = ()

    @property
    def is_namespace(self) -> bool:
        """Whether it is a namespace package: a folder without `__init__`."""
        return self.path is None and bool(self.folders)


def find_module(
    name: str, folders: Iterable[str], full: str | None = None
) -> ModuleLocation | None:
    """Return what `import NAME` would load from these folders, or None.

    `full` is its dotted name, if that is longer.
    """
    full = full or name
    portions = []
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            init = os.path.join(path, "__init__.py")
            if os.path.isfile(init):
                return ModuleLocation(full, init, (path,))
            portions.append(path)
        if os.path.isfile(path + ".py"):
            return ModuleLocation(full, path + ".py")
    return ModuleLocation(full, None, tuple(portions)) if portions else None


def is_compiled(name: str, folders: Iterable[str]) -> bool:
    """Whether the folders contain a compiled module of that name, or its Cython source."""
    return any(
        entry.split(".", 1)[0] == name and entry.endswith(_COMPILED_SUFFIXES)
        for folder in folders
        for entry in _entry_names(folder)
    )


def contains_python(folders: Iterable[str]) -> bool:
    """Whether these folders contain a Python file, at most one level further down."""
    for folder in folders:
        names = _entry_names(folder)
        if any(name.endswith((".py", *_COMPILED_SUFFIXES)) for name in names):
            return True
        subfolders = (os.path.join(folder, name) for name in names[:50] if not name.startswith("."))
        entries = (
            name for path in filter(os.path.isdir, subfolders) for name in _entry_names(path)
        )
        if any(name.endswith(".py") for name in entries):
            return True
    return False


def has_exact_case(path: str) -> bool:
    """Whether a path has exactly this case: some file systems open `Queue.py` as `queue.py`."""
    folder, name = os.path.split(path)
    if name == "__init__.py":
        folder, name = os.path.split(folder)
    return name in _entry_names(folder)


def _entry_names(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, _MAX_ENTRIES)]
    except (OSError, ValueError):
        return []


def search_path(script: str, roots: Sequence[str], *, is_module: bool) -> tuple[str, ...]:
    """Return the folders that Python searches for a script's imports, the script's folder first.

    With `-m` (`is_module`) Python does not add the script's folder.
    """
    script_folder = () if is_module else (os.path.dirname(os.path.abspath(script)),)
    absolute = (os.path.abspath(root) for root in roots if "\0" not in root)
    return tuple(dict.fromkeys((*script_folder, *absolute)))
