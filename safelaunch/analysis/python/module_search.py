"""Where a name that is imported lies in the project: the search of Python's path finder, by hand.

The first folder that has a package with `__init__`, or a module, wins; a folder without `__init__`
counts only where no folder has more, and an installed package of that name beats it.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_BUILT = (".so", ".pyd", ".pyx", ".pyc", ".dll")
_LISTED = 5000  # names of a folder that are looked at: a data folder may hold millions


class Found(NamedTuple):
    """What a name is: `path` the file to read, or None; `folders` where its own modules lie."""

    name: str
    path: str | None
    folders: tuple[str, ...] = ()

    @property
    def is_namespace(self) -> bool:
        """Whether it is a folder without `__init__`."""
        return self.path is None and bool(self.folders)


def find(name: str, folders: Iterable[str], full: str | None = None) -> Found | None:
    """Return what `import NAME` would take from these folders, or None.

    `full` is the dotted name that it is known by, where that is longer.
    """
    full = full or name
    portions = []
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            init = os.path.join(path, "__init__.py")
            if os.path.isfile(init):
                return Found(full, init, (path,))
            portions.append(path)
        if os.path.isfile(path + ".py"):
            return Found(full, path + ".py")
    return Found(full, None, tuple(portions)) if portions else None


def is_built(name: str, folders: Iterable[str]) -> bool:
    """Whether the folders hold a compiled module of that name, or the source of one."""
    return any(
        listed.split(".", 1)[0] == name and listed.endswith(_BUILT)
        for folder in folders
        for listed in _listing(folder)
    )


def holds_python(folders: Iterable[str]) -> bool:
    """Whether there is a Python file or a folder with one in these folders, two levels deep."""
    for folder in folders:
        names = _listing(folder)
        if any(name.endswith((".py", *_BUILT)) for name in names):
            return True
        below = (os.path.join(folder, name) for name in names[:50] if not name.startswith("."))
        if any(n.endswith(".py") for path in below if os.path.isdir(path) for n in _listing(path)):
            return True
    return False


def is_spelled_so(path: str) -> bool:
    """Whether a path has this case: some file systems find `Queue.py` as `queue.py`."""
    folder, name = os.path.split(path)
    if name == "__init__.py":
        folder, name = os.path.split(folder)
    return name in _listing(folder)


def _listing(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, _LISTED)]
    except (OSError, ValueError):
        return []


def search_path(script: str, roots: Sequence[str], *, is_module: bool) -> tuple[str, ...]:
    """Return the folders that a script's imports are looked for in, first the script's own.

    With `-m` Python does not add it.
    """
    own = () if is_module else (os.path.dirname(os.path.abspath(script)),)
    absolute = (os.path.abspath(root) for root in roots if "\0" not in root)
    return tuple(dict.fromkeys((*own, *absolute)))
