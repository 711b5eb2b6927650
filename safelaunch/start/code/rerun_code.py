"""The code that `rerun` runs: the project where it is as it was, else a copy as it was.

In the copy only the recorded files are files. All else of the project is linked in, so that data,
outputs and checkpoints are where the job expects them; Python files that are new are left out.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import Refused, RunError
from safelaunch.plan.serialize import freeze, thaw
from safelaunch.runtime.code import git, manifest
from safelaunch.runtime.records import CodeRecord, PlanRecord, RunRecord
from safelaunch.runtime.start import code_files
from safelaunch.runtime.transfer import living_runs
from safelaunch.start.code.code_tree import RunCode, missing_text, run_code

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from safelaunch.model import Plan
    from safelaunch.runs.store import Run
    from safelaunch.runtime.code.manifest import CodeFile

FOLDER = "trees"  # below safelaunch's folder
DIGITS = 12  # of a manifest's hash in a folder's name
_NO_PATHS = ("origin", "why", "job_file", "note")  # keys of a plan that name no path of the job
_NEVER_LINKED = (".git", "__pycache__")  # the commit of today, and bytecode of other files


class RerunCode(NamedTuple):
    """A plan in the folders that have its code; `note` says which, `files` are its record."""

    plan: Plan
    note: str
    files: dict[str, bytes]


def code_of_today(plan: Plan, run: Run) -> RerunCode:
    """Return a recorded plan in the project as it is now."""
    record = CodeRecord.read(run.node_dir) or CodeRecord()
    if record.project is not None:
        plan = move_paths(plan, record.root, record.project)
    return RerunCode(plan, "runs the project as it is now", {})


def code_of_launch(plan: Plan, run: Run, home: str) -> RerunCode:
    """Return a recorded plan in a tree that is as at the launch of its run.

    `home` is safelaunch's folder. Raises Refused where the tree cannot be had, RunError.
    """
    try:
        code = run_code(run, home)
        files = code.files()
    except RunError as e:
        note = f"runs the project as it is now: {e.message}"
        return RerunCode(plan, note, {})
    if _is_unchanged(run, code.record):
        return RerunCode(plan, f"runs the code that {run.id} was launched with, unchanged", {})
    project = code.record.project or code.record.root
    tree = _tree(code, files, project)
    record = code.record.copy()
    record.root, record.project = tree, project
    launch_files = {CodeRecord.FILE: json.dumps(record.to_json(), indent=1).encode()}
    patch = os.path.join(run.node_dir, CodeRecord.PATCH)
    if record.patch and os.path.isfile(patch):
        with open(patch, "rb") as source:
            launch_files[CodeRecord.PATCH] = source.read()
    paths = _paths(files)
    if plan.log is not None:  # it stays in the project
        plan = replace(plan, log=os.path.join(str(plan.nodes[0].cwd), plan.log))
    moved = move_paths(plan, code.record.root, tree, lambda path: path in paths)
    note = f"runs the code that {run.id} was launched with, in a copy: {tree}"
    return RerunCode(moved, note, launch_files)


def _is_unchanged(run: Run, record: CodeRecord) -> bool:
    """Whether the files that a start would record now are those that were recorded."""
    before = RunRecord.read(run.node_dir) or RunRecord()
    plan = PlanRecord.read(run.node_dir) or PlanRecord()
    argv = plan.nodes[0].argv if plan.nodes else ()
    hashes, _ = code_files.recorded(before, argv)
    root, files = code_files.project_files(before, hashes, git.top(before.cwd))
    text = manifest.to_bytes(files)
    return (root, manifest.digest(text)) == (record.root, record.manifest)


def _tree(code: RunCode, files: Sequence[CodeFile], project: str) -> str:
    """Return a folder with exactly these files, and links to all else of the project."""
    name = f"{os.path.basename(project)}-{code.record.manifest[:DIGITS]}"
    base = os.path.join(code.home, FOLDER, name)
    for number in itertools.count(1):
        tree = base if number == 1 else f"{base}-{number}"
        if not os.path.lexists(tree):
            break
        if _has_files(tree, files):
            _reserve(tree)
            _link_others(project, tree, _paths(files))
            return tree
    part = f"{tree}.{os.getpid()}"
    try:
        os.makedirs(os.path.join(code.home, FOLDER), 0o700, exist_ok=True)
        missing = code.restore(part)
        if missing:
            hint = "`safelaunch rerun --current` runs the project as it is now"
            raise Refused(missing_text(missing, len(files)), hint=hint)
        _link_others(project, part, _paths(files))
        _reserve(tree)
        os.rename(part, tree)
    except OSError as e:
        raise RunError(f"cannot be written: {e.strerror}", where=tree) from e
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return tree


def _reserve(tree: str) -> None:
    """Let `clean` keep a copy until its run is recorded, or this process has ended."""
    living_runs.reserve(os.fsencode(tree), f"rerun-{os.getpid()}")


def _has_files(tree: str, files: Sequence[CodeFile]) -> bool:
    try:
        for file in files:
            path = os.path.join(tree, file.path)
            if file.mode == manifest.LINK:
                same = os.readlink(path) == file.content
            else:
                with open(path, "rb") as source:
                    same = manifest.digest(source.read()) == file.content
            if not same:
                return False
    except OSError:
        return False
    return True


def _paths(files: Sequence[CodeFile]) -> frozenset[str]:
    """Return the paths of files and of all folders above them, "" for the top."""
    paths = {""}
    for file in files:
        path = file.path
        while path:
            paths.add(path)
            path = os.path.dirname(path)
    return frozenset(paths)


def _link_others(project: str, tree: str, paths: Collection[str]) -> None:
    """Link what a project has beside these paths, by the top names; no Python file."""
    for path in paths:
        folder = os.path.join(project, path)
        if not os.path.isdir(os.path.join(tree, path)) or not os.path.isdir(folder):
            continue
        for name in os.listdir(folder):
            link = os.path.join(tree, path, name)
            if os.path.lexists(link) or name in _NEVER_LINKED or name.endswith(".py"):
                continue
            os.symlink(os.path.join(folder, name), link)


def move_paths(
    plan: Plan, source: str, target: str, has: Callable[[str], bool] = lambda _: True
) -> Plan:
    """Return a plan whose paths below `source` are below `target`, where `has` accepts them."""
    pattern = re.compile(rf"(?<![\w./-]){re.escape(source)}(/[^\s:=,;'\"]*)?(?![\w.-])")

    def moved(match: re.Match[str]) -> str:
        below = (match[1] or "").strip("/")
        return (
            target + (match[1] or "") if has(os.path.normpath(below) if below else "") else match[0]
        )

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(moved, value)
        if isinstance(value, list):
            return [walk(item) for item in value]
        if isinstance(value, dict):
            return {key: item if key in _NO_PATHS else walk(item) for key, item in value.items()}
        return value

    result: Plan = thaw(walk(freeze(plan)))
    return result
