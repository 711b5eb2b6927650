"""Hashes of the files that a run is made of: what a commit does not show, or where there is none.

The script, the job file, the configuration files that the arguments name, and the Python files
below the folders of the user's own code. Environments, run directories and hidden folders are none
of it.
"""

from __future__ import annotations

import os
import re
import time

from safelaunch.runtime import PLACE
from safelaunch.runtime.code import manifest
from safelaunch.runtime.code.manifest import CodeFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from safelaunch.runtime.records import RunRecord

MAX_FILES = 2000
MAX_BYTES = 1 << 25  # of all files: 0.1 s of a core
MAX_SIZE = 1 << 20  # of one file: a larger one is data
MAX_DEPTH, MAX_FOLDERS = 2, 100  # of a search for a module
_CONFIG = (".py", ".sh", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".conf")
# a program may also write the .json that an option names: these options name one that it reads
_READS_JSON = re.compile(r"conf|cfg|deepspeed|ds_|recipe|template|param|setting", re.IGNORECASE)
_NOT_OWN = frozenset(
    {"site-packages", "dist-packages", "node_modules", "__pycache__", "venv", "env", "wandb"}
)


def recorded(
    run: RunRecord, argv: Iterable[str], since: float | None = None
) -> tuple[dict[str, str], int]:
    """Return {path: SHA-256} of a run's files, from its working directory on, and how many more.

    A file that was changed `since` then has the hash of no file: what it was before is not known.
    """
    hashes: dict[str, str] = {}
    size, more = 0, 0
    for path in _paths(run, argv):
        name = _below(path, run.cwd)
        if name in hashes:
            continue
        if len(hashes) >= MAX_FILES or size >= MAX_BYTES:
            more += 1
            continue
        data = _read(path)
        if data is not None:
            size += len(data)
            if since is not None and _is_newer(path, since):
                data = f"{name} as it was at {since}".encode()
            hashes[name] = manifest.digest(data)
    return hashes, more


def _is_newer(path: str, since: float) -> bool:
    """Whether a file was changed after a time, by the clock of this machine.

    A file server's clock may be ahead: what seems to come from later than now says nothing.
    """
    try:
        return since < os.stat(path).st_ctime <= time.time()
    except OSError:
        return True


def imported(node_dir: str, files: Iterable[str], cwd: str) -> list[str] | None:
    """Return which of the recorded files ranks have imported; None where no rank has said.

    Each writes them down when it imports them (runtime/site/safelaunch_rank.py).
    """
    folder = os.path.join(node_dir, "records")
    paths: set[str] = set()
    try:
        for name in os.listdir(folder):
            if name.endswith(".imports"):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    paths.update(map(os.path.realpath, file.read().splitlines()))
    except OSError:
        return None
    if not paths:
        return None
    return [name for name in files if os.path.realpath(os.path.join(cwd, name)) in paths]


def used(files: Mapping[str, str], imported: Iterable[str] | None) -> dict[str, str]:
    """Return the recorded files without the Python files that no rank has imported."""
    if imported is None:
        return dict(files)
    names = set(imported)
    return {
        name: content
        for name, content in files.items()
        if name in names or not name.endswith(".py")
    }


def changed(files: Mapping[str, str], cwd: str) -> list[str]:
    """Return which of the recorded files have another content now, or are gone."""
    names = []
    for name, before in files.items():
        data = _read(os.path.join(cwd, name))
        if data is None or not manifest.digest(data).startswith(before):
            names.append(name)
    return names


def module_folder(name: str, roots: Iterable[str]) -> str | None:
    """Return the folder below the user's own that holds a module; None where none does."""
    for root in roots:
        for folder, folders, names in os.walk(root):
            depth = os.path.relpath(folder, root).count(os.sep)
            if f"{name}.py" in names or os.path.isfile(os.path.join(folder, name, "__init__.py")):
                return folder
            inside = sorted(f for f in folders if not _is_foreign(folder, f))
            folders[:] = inside[:MAX_FOLDERS] if depth < MAX_DEPTH else []
    return None


def project_files(
    run: RunRecord, hashes: Mapping[str, str], checkout: str | None
) -> tuple[str, list[CodeFile]]:
    """Return the root of a run's project, and those of its recorded files that lie below it.

    The root has the working directory and the other folders of the user's own code, but for those
    outside of the git `checkout`, or of a folder of everything.
    """
    root, home = run.cwd, os.path.expanduser("~")
    for folder in run.roots:
        common = os.path.commonpath([root, folder])
        is_project = os.path.commonpath([common, home]) != common
        if is_project if checkout is None else os.path.commonpath([common, checkout]) == checkout:
            root = common
    files = []
    for name, content in hashes.items():
        path = os.path.join(run.cwd, name)
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue
        below = _below(path, root)
        if not os.path.isabs(below):
            files.append(CodeFile(below, mode, content))
    return root, files


def _paths(run: RunRecord, argv: Iterable[str]) -> Iterator[str]:
    if run.job_file:
        yield run.job_file
    option = ""
    for word in argv:
        name, equals, value = word.partition("=")
        path, role = (value, name) if equals else (word, option)
        if path.endswith(_CONFIG) or (path.endswith(".json") and _READS_JSON.search(role)):
            yield os.path.normpath(os.path.join(run.cwd, path))
        option = word if word.startswith("-") else ""
    for root in run.roots:
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(f for f in folders if not _is_foreign(folder, f))
            yield from (os.path.join(folder, n) for n in sorted(names) if n.endswith(".py"))


def _is_foreign(parent: str, name: str) -> bool:
    path = os.path.join(parent, name)
    return (
        name.startswith(".")
        or name in _NOT_OWN
        or os.path.isfile(os.path.join(path, "pyvenv.cfg"))
        or os.path.isdir(os.path.join(path, "conda-meta"))
        or os.path.isdir(os.path.join(path, PLACE))  # SAFELAUNCH_HOME may lie in the project
    )


def _read(path: str) -> bytes | None:
    """Return the content of a file; None where it is none, or too large to be code."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MAX_SIZE:
            return None
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _below(path: str, cwd: str) -> str:
    inside = path[len(cwd) + 1 :]
    is_plain = not inside.startswith("..") and os.path.normpath(inside) == inside
    if cwd and is_plain and path.startswith(f"{cwd}/"):
        return inside  # what follows would say the same, in fifty times the time
    below = os.path.relpath(path, cwd or "/")
    return path if below.startswith("..") else below
