"""Paths in a job that runs on a host: what stands there must mean something there.

The host runs Linux, and has the project's own folder. A job file travels between machines, so what
only one laptop understands is refused even where that laptop could map it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.config.paths import Paths
    from safelaunch.config.yaml_io.node import Node

_PATHS = ("workdir", "pythonpath", "python", "venv", "conda_root")  # from the file that says them
_IN_WORKDIR = ("script", "log")
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")  # C:\x, c:/x, \\server\share


def check(tree: Node, paths: Paths) -> None:
    """Refuse paths of a job that cannot be meant on a host. Raises ConfigError."""
    for key in (*_PATHS, *_IN_WORKDIR):
        for node in _said(tree, key):
            _check_form(key, node)
            if key in _PATHS:
                _check_inside(key, node, paths.real(node.text, node.origin), paths)
    workdir = [paths.real(node.text, node.origin) for node in _said(tree, "workdir")]
    base = workdir[0] if workdir else paths.job_dir
    for node in _said(tree, "script") if paths.is_inside(base) else ():
        _check_inside("script", node, os.path.normpath(os.path.join(base, node.text)), paths)


def _said(tree: Node, key: str) -> Iterator[Node]:
    node = tree.get(key)
    if node is not None and not node.is_null:
        yield from node.items if node.kind == "list" else (node,)


def _check_form(key: str, node: Node) -> None:
    said = node.text
    if _WINDOWS.match(said):
        raise ConfigError(
            f"`{said}` in `{key}` is a path of a Windows machine; the job runs on a host",
            where=node.origin,
            hint="write it relative to this file, such as `src/lib`, or as it is on the host",
        )
    if "\\" in said:
        raise ConfigError(
            f"`{said}` in `{key}` has a backslash; hosts separate folders by `/`",
            where=node.origin,
            hint="write `{}`: that works on every machine".format(said.replace("\\", "/")),
        )


def _check_inside(key: str, node: Node, real: str, paths: Paths) -> None:
    if node.text.startswith("/") or paths.is_inside(real):
        return
    raise ConfigError(
        f"`{node.text}` in `{key}` leads out of the project {paths.root}; only that is synced",
        where=node.origin,
        hint="an empty pyproject.toml in a folder above makes that folder the project; or write "
        "the path as it is on the host",
    )


def is_hosts_own(path: str, paths: Paths) -> bool:
    """Whether a path of a job is the host's own: nothing can be said about it here."""
    return path.startswith("/") and not paths.is_inside(os.path.normpath(path))
