"""Paths in a job that runs on a host: refuses those that cannot be valid there.

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

_IN_JOB_DIR = ("workdir", "pythonpath", "python", "venv", "conda_root")  # relative to their file
_IN_WORKDIR = ("script", "log")
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")  # C:\x, c:/x, \\server\share


def check(tree: Node, paths: Paths) -> None:
    """Refuse paths of a job that cannot be valid on a host. Raises ConfigError."""
    for key in (*_IN_JOB_DIR, *_IN_WORKDIR):
        for node in _values(tree, key):
            _check_form(key, node)
            if key in _IN_JOB_DIR:
                _check_inside(key, node, paths.real(node.text, node.origin), paths)
    workdir = [paths.real(node.text, node.origin) for node in _values(tree, "workdir")]
    base = workdir[0] if workdir else paths.job_dir
    for node in _values(tree, "script") if paths.is_inside(base) else ():
        _check_inside("script", node, os.path.normpath(os.path.join(base, node.text)), paths)
    for key, node in _files_of_parts(tree):
        _check_form(key, node)
        if node.text.startswith("/") and paths.is_inside(os.path.normpath(node.text)):
            raise ConfigError(
                f"`{node.text}` in `{key}` is a path of this machine; the job runs on a host",
                where=node.origin,
                hint="write it relative to `workdir`",
            )
        if paths.is_inside(base):
            _check_inside(key, node, os.path.normpath(os.path.join(base, node.text)), paths)


def _files_of_parts(tree: Node) -> Iterator[tuple[str, Node]]:
    """Yield the file that is divided among parts, and the one that their outputs are merged in."""
    shards = tree.get("shards")
    block = shards if shards is not None and shards.kind == "map" else None
    merge = None if block is None else block.get("merge")
    output = merge.get("output") if merge is not None and merge.kind == "map" else merge
    over = None if block is None else block.get("over")
    for key, node in (("shards.over", over), ("shards.merge", output)):
        if node is not None and not node.is_null:
            yield key, node


def _values(tree: Node, key: str) -> tuple[Node, ...]:
    node = tree.get(key)
    if node is None or node.is_null:
        return ()
    return node.items if node.kind == "list" else (node,)


def _check_form(key: str, node: Node) -> None:
    path = node.text
    if _WINDOWS.match(path):
        raise ConfigError(
            f"`{path}` in `{key}` is a Windows path; the job runs on a host",
            where=node.origin,
            hint="write it relative to this file, such as `src/lib`, or as it is on the host",
        )
    if "\\" in path:
        raise ConfigError(
            f"`{path}` in `{key}` has a backslash; hosts separate folders by `/`",
            where=node.origin,
            hint="write `{}`: that works on every machine".format(path.replace("\\", "/")),
        )


def _check_inside(key: str, node: Node, real: str, paths: Paths) -> None:
    if not node.text.startswith("/") and not paths.is_inside(real):
        raise ConfigError(
            f"`{node.text}` in `{key}` leads out of the project {paths.root}; only that is synced",
            where=node.origin,
            hint="an empty pyproject.toml in a folder above makes that folder the project; or "
            "write the path as it is on the host",
        )


def is_host_path(path: str, paths: Paths) -> bool:
    """Whether a path of a job is the host's own, and cannot be checked on this machine."""
    return path.startswith("/") and not paths.is_inside(os.path.normpath(path))
