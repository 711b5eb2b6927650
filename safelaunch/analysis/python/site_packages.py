"""Finds the folders that an interpreter imports installed packages from, without running it."""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_BYTES = 1 << 20  # of a .pth file or an editable finder
_BASE = re.compile(r"(?m)^home\s*=\s*(.+?)\s*$")
_SYSTEM = re.compile(r"(?mi)^include-system-site-packages\s*=\s*true\s*$")
# setuptools, command/editable_wheel.py: the finder of an editable installation
_MAPPING = re.compile(r"(?m)^MAPPING\b[^=\n]*=\s*(\{.*\})\s*$")


def site_folders(python: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders that an interpreter searches for packages, in its order.

    Empty where that cannot be told from the files around it, as for a shim. `environ` has the
    user's home folder.
    """
    path = os.path.abspath(python)
    prefix = os.path.dirname(os.path.dirname(path))
    config = _text(os.path.join(prefix, "pyvenv.cfg"))
    if not config:
        real = os.path.realpath(path)
        folders = [*_user(real, environ), *_installed(os.path.dirname(os.path.dirname(real)))]
    else:
        folders = list(_installed(prefix))
        base = _BASE.search(config)
        if base is not None and _SYSTEM.search(config):
            folders += [*_user(path, environ), *_installed(os.path.dirname(base[1]))]
    added = [path for folder in folders for path in _added(folder)]
    return tuple(dict.fromkeys((*folders, *added)))


def editable_folders(folders: tuple[str, ...]) -> dict[str, str]:
    """Return {package: its folder} of the editable installations that have a finder of their own.

    Python asks these finders only for what the folders themselves lack.
    """
    packages: dict[str, str] = {}
    for folder in folders:
        for name in _names(folder):
            if not name.startswith("__editable__") or not name.endswith("_finder.py"):
                continue
            match = _MAPPING.search(_text(os.path.join(folder, name)))
            try:
                mapping = ast.literal_eval(match[1]) if match else {}
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            for package, path in mapping.items() if isinstance(mapping, dict) else ():
                if isinstance(package, str) and isinstance(path, str):
                    packages.setdefault(package, path)
    return packages


def _installed(prefix: str) -> Iterator[str]:
    """Yield the package folders of an installation or a virtual environment; Debian has more."""
    versions = [name for name in _names(os.path.join(prefix, "lib")) if _is_version(name)]
    for version in versions if len(versions) == 1 else ():
        for below in (
            ("local", "lib", version, "dist-packages"),
            ("lib", version, "site-packages"),
        ):
            folder = os.path.join(prefix, *below)
            if os.path.isdir(folder):
                yield folder
    if os.path.isdir(os.path.join(prefix, "lib", "python3", "dist-packages")):
        yield os.path.join(prefix, "lib", "python3", "dist-packages")


def _user(python: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the user's own package folder of an interpreter outside of virtual environments."""
    home = environ.get("PYTHONUSERBASE") or os.path.join(environ.get("HOME") or "/", ".local")
    version = os.path.basename(python)
    folder = os.path.join(home, "lib", version, "site-packages")
    if _is_version(version) and not environ.get("PYTHONNOUSERSITE") and os.path.isdir(folder):
        yield folder


def _added(folder: str) -> Iterator[str]:
    """Yield the folders that the .pth files of a folder add."""
    for name in _names(folder):
        if name.endswith(".pth") and not name.startswith("."):
            for line in _text(os.path.join(folder, name)).splitlines():
                path = os.path.join(folder, line.strip())
                is_path = line.strip() and not line.startswith(("#", "import ", "import\t"))
                if is_path and "\0" not in path and os.path.isdir(path):
                    yield os.path.normpath(path)


def _is_version(name: str) -> bool:
    return re.fullmatch(r"python3\.\d+", name) is not None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: str) -> str:
    if not os.path.isfile(path):  # a pipe would block
        return ""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return ""
