"""The programs that a job or a shell script starts, and the variables that they read themselves.

A name that no library knows is none of a library where the program reads it.
"""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING

from safelaunch.analysis.imports.follow import read_imports
from safelaunch.analysis.python.environment import reads_variable
from safelaunch.analysis.python.trees import Trees

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from safelaunch.config.yaml_io.node import Node
    from safelaunch.lint.finding import LintFinding

_NAMES = frozenset(("env-never-existed", "env-unknown", "env-removed"))  # of the name alone
_SECONDS = 1.0  # of the processor, for one program
_MOST_PROGRAMS = 20  # of a script, which may start many
_ROOT_FILES = (".git", "pyproject.toml")
_PYTHON_FILE = re.compile(r"[\w./-]*\w\.py(?![\w.])")
_CD = re.compile(r"\bcd\s+[\"']?([\w./-]+)")
_MODULE = re.compile(r"\s(?:-m|--module)\s+([A-Za-z_]\w*(?:\.\w+)+)")


def without_own_variables(
    findings: Sequence[LintFinding], programs: Iterable[tuple[str, Sequence[str]]]
) -> list[LintFinding]:
    """Return findings without those about the names of variables that a program itself reads.

    `programs` are files, each with the folders that its imports are searched in.
    """
    names = {_name(finding) for finding in findings if finding.id in _NAMES}
    own = set[str]()
    for path, roots in programs if names else ():
        trees = Trees()
        files = read_imports(path, roots, trees=trees, seconds=_SECONDS).files
        own |= {name for name in names - own if reads_variable(name, files, trees)}
    return [f for f in findings if f.id not in _NAMES or _name(f) not in own]


def _name(finding: LintFinding) -> str:
    return finding.message.split("`")[1]


def of_job(tree: Node, folder: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the programs of a job, and of its steps, that are files of its project.

    `folder` is that of the job file.
    """
    steps = tree.get("steps")
    trees = [tree, *(step for _, step in steps.items)] if steps and steps.kind == "map" else [tree]
    for job in trees:
        nodes = {key: job.get(key) for key in ("workdir", "script", "module", "command")}
        texts = {key: node.text for key, node in nodes.items() if node and node.kind == "scalar"}
        workdir, command = nodes["workdir"], nodes["command"]
        place = folder
        if workdir is not None and workdir.kind == "scalar":
            place = os.path.join(os.path.dirname(workdir.origin.source), workdir.text)
        roots = (place, _project(folder))
        words = [] if command is None else [item.text for item in command.items if item.text]
        paths = [os.path.join(place, word) for word in words if word.endswith(".py")]
        if "script" in texts:
            paths.append(os.path.join(place, texts["script"]))
        if "module" in texts:
            paths += _of_module(texts["module"], roots)
        yield from _files(paths, roots)


def of_script(text: str, folder: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the programs that a shell script names, in its folder or one above it."""
    project = _project(folder)
    roots = [*_above(folder, project)]
    words = dict.fromkeys(_PYTHON_FILE.findall(text))
    folders = dict.fromkeys(("", *(target.lstrip("/") for target in _CD.findall(text))))
    places = [os.path.join(root, folder) for root in roots for folder in folders]
    paths = [os.path.join(place, word.lstrip("/")) for word in words for place in places]
    paths += [
        path for name in dict.fromkeys(_MODULE.findall(text)) for path in _of_module(name, roots)
    ]
    yield from itertools.islice(_files(paths, roots), _MOST_PROGRAMS)


def _files(paths: Iterable[str], roots: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    for path in dict.fromkeys(map(os.path.normpath, paths)):
        if "\0" not in path and os.path.isfile(path):
            yield path, roots


def _of_module(name: str, roots: Iterable[str]) -> list[str]:
    below = name.replace(".", "/")
    names = (f"{below}.py", f"{below}/__main__.py")
    return [os.path.join(root, file) for root in roots for file in names]


def _project(folder: str) -> str:
    """Return the folder of the project: the nearest with .git or pyproject.toml, else this one."""
    places = [*_above(folder, os.path.abspath(os.sep))]
    marked = (p for p in places if any(os.path.exists(os.path.join(p, n)) for n in _ROOT_FILES))
    return next(marked, places[0])


def _above(folder: str, top: str) -> Iterator[str]:
    """Yield a folder and those above it, to the top."""
    place = os.path.abspath(folder)
    while True:
        yield place
        parent = os.path.dirname(place)
        if place in (top, parent):
            return
        place = parent
