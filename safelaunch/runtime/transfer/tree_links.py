"""What a tree of a run shares with its place: all that no sync has put there, and its outputs.

Data, outputs and checkpoints of the place are linked into the tree by their top names. What the run
makes under a new name moves into the place after its end, and leaves a link where it was. `base` is
the folder of safelaunch that has the manifests of both.
"""

from __future__ import annotations

import os
import stat

from safelaunch.runtime.transfer import manifest, safe_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

CACHES = (b"__pycache__",)  # Python writes them anew for each tree
OWN = b".safelaunch-"  # parts of files, markers


def link_unsynced(tree: bytes, base: str) -> None:
    """Link into a tree what its place has and no sync has put there, by the top names."""
    place = safe_paths.encode(manifest.load(base, tree).head.place)
    if place:
        entries = manifest.load(base, place).entries
        _link_folder(place, tree, b"", entries)


def _link_folder(place: bytes, tree: bytes, folder: bytes, entries: Mapping[str, Any]) -> None:
    for name in _names(os.path.join(place, folder)):
        path = os.path.join(folder, name)
        source, link = os.path.join(place, path), os.path.join(tree, path)
        entry = entries.get(safe_paths.decode(path))
        if name in CACHES or name.startswith(OWN):
            continue
        if not os.path.lexists(link):
            if entry is not None and entry.kind != "d":
                continue  # a file that the run was launched without
            if entry is None:
                os.symlink(source, link)
                continue
            os.mkdir(link)  # not synced any more, but for what else lies in it
        if _is_folder(source) and _is_folder(link):
            _link_folder(place, tree, path, entries)


def make_outputs(tree: bytes, base: str, paths: list[str]) -> None:
    """Make output folders of a run in the place, and link them into its tree."""
    place = safe_paths.encode(manifest.load(base, tree).head.place)
    for path in paths if place else ():
        folder = b""
        for name in safe_paths.split(path):
            folder = os.path.join(folder, name)
            link = os.path.join(tree, folder)
            if os.path.lexists(link):
                if _is_folder(link):
                    continue
                break  # linked already, or a file
            os.makedirs(os.path.join(place, folder), exist_ok=True)
            os.symlink(os.path.join(place, folder), link)
            break


def _names(folder: bytes) -> list[bytes]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _is_folder(path: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def settle(tree: bytes, base: str, *, dry_run: bool = False) -> list[str]:
    """Move what a run has made in its tree into the place; return files that could not be moved.

    They are files of a name that the place has too, and files of the project that were edited.
    `dry_run`: nothing is moved.
    """
    record = manifest.load(base, tree)
    place = safe_paths.encode(record.head.place)
    left: list[str] = []
    if place:
        move = _is_free if dry_run else _move
        _settle_folder(place, tree, b"", record.entries, left, move)
    return left


def _settle_folder(  # noqa: PLR0917 - the same for all folders below
    place: bytes,
    tree: bytes,
    folder: bytes,
    entries: Mapping[str, Any],
    left: list[str],
    move: Callable[[bytes, bytes], bool],
) -> None:
    for name in _names(os.path.join(tree, folder)):
        path = os.path.join(folder, name)
        source, target = os.path.join(tree, path), os.path.join(place, path)
        entry = entries.get(safe_paths.decode(path))
        if name in CACHES or name.startswith(OWN):
            continue
        if _is_folder(source) and (entry is not None or _is_folder(target)):
            _settle_folder(place, tree, path, entries, left, move)
        elif entry is not None:
            if not _is_unchanged(source, entry):
                left.append(safe_paths.decode(path))
        elif not _is_link_to(source, target) and not move(source, target):
            left += _files_of(source, path)


def _is_unchanged(path: bytes, entry: manifest.ManifestEntry) -> bool:
    try:
        size, modified, _, inode = safe_paths.key(os.lstat(path))
    except OSError:
        return True  # removed: nothing is lost with it
    # without the time of change: another link to a large file may have come or gone
    return (size, modified, inode) == (*entry.key[:2], *entry.key[3:])


def _is_link_to(path: bytes, target: bytes) -> bool:
    try:
        return os.readlink(path) == target
    except OSError:
        return False


def _is_free(source: bytes, target: bytes) -> bool:
    del source
    return not os.path.lexists(target)


def _move(source: bytes, target: bytes) -> bool:
    """Move a file or folder to a free name, with a link in its old place; False where it stays."""
    if os.path.lexists(target):
        return False
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(source, target)
        os.symlink(target, source)
    except OSError:
        return os.path.lexists(target)
    return True


def _files_of(path: bytes, name: bytes) -> list[str]:
    if not _is_folder(path):
        return [safe_paths.decode(name)]
    files = []
    for folder, _, names in os.walk(path):
        below = os.path.join(name, os.path.relpath(folder, path))
        files += [safe_paths.decode(os.path.normpath(os.path.join(below, n))) for n in names]
    return files
