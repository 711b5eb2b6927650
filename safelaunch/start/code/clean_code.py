"""Removes what `rerun` and starts have left on this machine, and no run needs any more.

Copies of projects below `trees` (rerun_code.py), and packs of contents below `code`.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.runs import store
from safelaunch.runtime.code import manifest
from safelaunch.runtime.code.store import ContentStore
from safelaunch.runtime.records import CodeRecord, RunRecord
from safelaunch.runtime.transfer import living_runs
from safelaunch.start.code import rerun_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.runs.store import Run
    from safelaunch.runtime.code.manifest import CodeFile

# of a copy: the project's name, digits of the manifest's hash, a number; and the pid that makes it
_NAME = re.compile(rf".+-([0-9a-f]{{{rerun_code.DIGITS}}})(-[0-9]+)?(\.[0-9]+)?")
_ABANDONED = 3600.0  # seconds after which nobody makes a copy any more
_SHOWN = 20  # files by name


class _Use(NamedTuple):
    """A recorded run whose code is in a copy."""

    run: str
    may_resume: bool


def clean_trees(
    home: str, *, remove_all: bool, force: bool, is_dry: bool
) -> Iterator[dict[str, Any]]:
    """Remove the copies that `rerun` made below `home`; yield each, with why it was kept, or "".

    `remove_all` removes also those that a resume may need, `force` those with files that are
    nowhere else.
    """
    folder = os.path.join(home, rerun_code.FOLDER)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    uses, contents = _uses(home), ContentStore(home)
    for name in names:
        tree, match = os.path.join(folder, name), _NAME.fullmatch(name)
        if match is None or os.path.islink(tree) or not os.path.isdir(tree):
            continue
        is_part = match[3] is not None
        runs = uses.get(os.path.realpath(tree), [])
        files = [] if is_part else _own_files(tree, match[1], contents)
        why = ""
        if _is_used(tree, is_part=is_part):
            why = "living"
        elif files and not force:
            why = "files"
        elif any(use.may_resume for use in runs) and not remove_all:
            why = "resume"
        size = _size(tree)
        if not why and not is_dry:
            try:
                shutil.rmtree(tree)
            except OSError as e:
                why = f"cannot be removed: {e.strerror}"
        yield {
            "tree": tree,
            "run": runs[-1].run if runs else "",
            "size": size,
            "kept": why,
            "files": files[:_SHOWN],
            "more_files": max(0, len(files) - _SHOWN),
        }


def clean_contents(home: str, *, is_dry: bool) -> tuple[int, int]:
    """Remove the packs of contents that no recorded run has; return their number and bytes."""
    contents = ContentStore(home)
    needed: set[str] = set()
    for _, record in _records(home):
        if record.manifest and record.manifest not in needed:
            needed.add(record.manifest)
            needed.update(file.content for file in _files(contents, record.manifest))
    sizes = list(contents.sweep(needed, is_dry=is_dry))
    return len(sizes), sum(sizes)


def _records(home: str) -> Iterator[tuple[Run, CodeRecord]]:
    for run in store.all_runs(home):
        for number in store.node_numbers(run):
            record = CodeRecord.read(store.node_dir(run, number))
            if record is not None:
                yield run, record


def _uses(home: str) -> dict[str, list[_Use]]:
    """Return the recorded runs by the copy that has their code, the newest last."""
    uses: dict[str, list[_Use]] = {}
    for run, record in _records(home):
        if record.project is None:
            continue
        status, before = store.last_status(run), RunRecord.read(run.node_dir)
        recovers = before is not None and bool(before.recovery)
        use = _Use(run.id, recovers and status.state != "succeeded")
        uses.setdefault(os.path.realpath(record.root), []).append(use)
    return uses


def _is_used(tree: str, *, is_part: bool) -> bool:
    """Whether a run lives in a copy, or a `rerun` makes it or has taken it."""
    if living_runs.in_folder(os.path.realpath(os.fsencode(tree))):
        return True
    return is_part and time.time() - os.stat(tree).st_mtime < _ABANDONED


def _files(contents: ContentStore, digest: str) -> list[CodeFile]:
    try:
        return manifest.from_bytes(contents.get(digest) or b"[]")
    except (ValueError, TypeError):
        return []


def _own_files(tree: str, digits: str, contents: ContentStore) -> list[str]:
    """Return the files of a copy that are not the recorded ones; bytecode does not count."""
    recorded = {
        file.path: file.content
        for digest in contents.matching(digits)
        for file in _files(contents, digest)
    }
    own = []
    for folder, folders, names in os.walk(tree):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        for each in sorted(names):
            path = os.path.join(folder, each)
            shown = os.path.relpath(path, tree).replace(os.sep, "/")
            if os.path.islink(path):
                continue  # to the project, or recorded
            if not _has_content(path, recorded.get(shown)):
                own.append(shown)
    return own


def _has_content(path: str, content: str | None) -> bool:
    try:
        with open(path, "rb") as file:
            return content is not None and manifest.digest(file.read()) == content
    except OSError:
        return False


def _size(tree: str) -> int:
    return sum(
        os.lstat(os.path.join(folder, name)).st_size
        for folder, _, names in os.walk(tree)
        for name in names
        if os.path.isfile(os.path.join(folder, name))
    )
