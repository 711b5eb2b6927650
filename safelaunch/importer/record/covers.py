"""The real programs of a machine that start jobs: a recording puts stubs over them."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from safelaunch.importer import activities
from safelaunch.importer.record.stubs import is_python, is_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.importer.state import ScriptCaller

_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_CONDA_ROOTS = ("~/miniconda3", "~/anaconda3", "~/miniforge3", "~/mambaforge", "/opt/conda")
_DEEPEST = 3  # folders below a project in which its environments are looked for
_MOST_FOLDERS = 2000
_MOST_ENVIRONMENTS = 50
_LEFT_OUT = frozenset((".git", "node_modules", "site-packages", "__pycache__"))


def programs_to_cover(text: str, caller: ScriptCaller) -> list[str]:
    """Return the real paths of launchers and Pythons that a script may start by a path.

    They are those of the system, of the environments in the project and the home, and of the
    folders that the script or an answer names.
    """
    launchers = activities.launcher_names()
    covered: dict[str, None] = {}
    for folder in dict.fromkeys(_folders(text, caller)):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in sorted(name for name in names if name in launchers or is_python(name)):
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                real = os.path.realpath(path)
                # one file for several programs, such as busybox, is left alone
                if os.path.isfile(real) and _is_own(os.path.basename(real), name):
                    covered[real] = None
    return list(covered)


def real_python(path: str) -> str:
    """Return the first Python of a search path that is no shell script, as shims are."""
    for folder in path.split(":"):
        program = os.path.join(folder, "python3")
        if folder and os.access(program, os.X_OK) and not is_script(program):
            return program
    return sys.executable


def _is_own(real: str, name: str) -> bool:
    return real == name or (is_python(real) and is_python(name))


def _folders(text: str, caller: ScriptCaller) -> Iterator[str]:
    home = caller.environ.get("HOME", "/")
    yield from _PATH
    yield from caller.environ.get("PATH", "").split(":")
    roots = [path.replace("~", home, 1) for path in _CONDA_ROOTS]
    roots.append(os.path.dirname(os.path.dirname(caller.environ.get("CONDA_EXE", ""))))
    for root in filter(None, roots):
        yield os.path.join(root, "bin")
        yield from _bins_below(os.path.join(root, "envs"), 1)
    for folder in {caller.folder, home}:
        yield from _bins_below(folder, _DEEPEST if folder != home else 2)
    for word in re.findall(r"[\w.~${}/+-]*/[\w./+-]+", "\n".join((text, *caller.answers.values()))):
        path = re.sub(r"^(\$\{?HOME\}?|~)(?=/)", lambda _: home, word)
        path = re.sub(r"^\$\{?PWD\}?(?=/)", lambda _: caller.folder, path)
        path = os.path.join(caller.folder, path)
        yield from (path, os.path.dirname(path), os.path.join(path, "bin"))


def _bins_below(folder: str, depth: int) -> Iterator[str]:
    """Yield the `bin` of each virtual environment below a folder."""
    left = _MOST_ENVIRONMENTS
    for count, (path, folders, names) in enumerate(os.walk(folder)):
        if "pyvenv.cfg" in names or "conda-meta" in folders:
            yield os.path.join(path, "bin")
            left -= 1
            folders.clear()
        level = os.path.relpath(path, folder).count(os.sep) + (path != folder)
        folders[:] = sorted(f for f in folders if f not in _LEFT_OUT) if level < depth else []
        if count > _MOST_FOLDERS or not left:
            return
