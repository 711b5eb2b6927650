"""Walks a project: what travels, what is skipped and why. Reads no contents."""

from __future__ import annotations

import os
import stat
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.sync.ignore import Rules

_ENCODED = sys.getfilesystemencoding().lower() not in ("utf-8", "utf8")
_REPARSE = getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0x400)


class Item:
    """One path that travels; `hash`, and the real mode on Windows, are known once it was read."""

    __slots__ = ("hash", "key", "kind", "link", "local", "mode", "path", "size", "verbatim")

    def __init__(self, path: str, local: str, kind: str, info: os.stat_result) -> None:
        self.path = path  # as it travels: `/` between names, stray bytes as lone surrogates
        self.local = local
        self.kind = kind  # f, d, l
        self.mode = _mode(kind, info)
        self.size = info.st_size if kind == "f" else 0
        self.key = (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)
        self.hash = ""
        self.link = ""
        self.verbatim = False  # also a shell script with CRLF

    @property
    def content(self) -> str:
        """What stands for the contents: the hash, or what a link says."""
        return self.link if self.kind == "l" else self.hash


def _mode(kind: str, info: os.stat_result) -> int:
    if os.name == "nt":  # it has no such bits; scripts get theirs when they are read
        return 0o755 if kind == "d" else 0o644
    return stat.S_IMODE(info.st_mode) & 0o777


@dataclass(frozen=True, slots=True)
class Skipped:
    """A path that does not travel, and the rule that says so."""

    path: str
    local: str
    why: str
    is_folder: bool
    size: int  # of a file; a folder is measured when somebody asks


@dataclass(slots=True)
class Tree:
    """What was found below a root."""

    root: str
    items: dict[str, Item] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what cannot travel, for people

    @property
    def files(self) -> list[Item]:
        """The files, in order."""
        return [item for item in self.items.values() if item.kind == "f"]


def scan(rules: Rules) -> Tree:
    """Return what travels of a project. Raises OSError where its root cannot be read."""
    tree = Tree(rules.root)
    with os.scandir(rules.root):
        pass
    _Walk(tree, rules).folder("", rules.root, only_included=False)
    return tree


class _Walk:
    def __init__(self, tree: Tree, rules: Rules) -> None:
        self.tree = tree
        self.rules = rules

    def folder(self, folder: str, local: str, *, only_included: bool) -> None:
        try:
            with os.scandir(local) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as e:
            self.tree.notes.append(f"{folder or '.'}: cannot be read ({e.strerror}): not sent")
            return
        self.rules.enter(folder, {entry.name for entry in entries})
        before = folder + "/" if folder else ""
        for entry in entries:
            name = travelling(entry.name)
            if name is None:
                self.tree.notes.append(f"{before}{entry.name!r}: no name that Linux can hold")
                continue
            try:
                self._entry(before + name, entry, only_included=only_included)
            except OSError as e:
                self.tree.notes.append(f"{before}{name}: {e.strerror}: not sent")
        self.rules.leave(folder)

    def _entry(self, path: str, entry: os.DirEntry[str], *, only_included: bool) -> None:
        is_folder = entry.is_dir(follow_symlinks=False)
        if only_included:
            skipped = not self.rules.brings_back(path, is_folder=is_folder)
            why = ""
        else:
            verdict = self.rules.judge(path, is_folder=is_folder)
            skipped, why = verdict is not None, verdict.why if verdict else ""
        if not skipped and is_folder and not self.rules.everything:
            skipped, why = _is_environment(entry.path), "an environment"
        if skipped:
            self._skip(path, entry, why, is_folder=is_folder)
            return
        info = entry.stat(follow_symlinks=False)
        if is_folder and not _is_junction(info):
            self.tree.items[path] = Item(path, entry.path, "d", info)
            self.folder(path, entry.path, only_included=False)
        elif entry.is_symlink():
            self._link(path, entry, info)
        elif stat.S_ISREG(info.st_mode):
            self.tree.items[path] = Item(path, entry.path, "f", info)
        else:
            kind = "a junction" if is_folder else "no file, folder or link"
            self.tree.notes.append(f"{path}: {kind}: not sent")

    def _skip(self, path: str, entry: os.DirEntry[str], why: str, *, is_folder: bool) -> None:
        if is_folder and self.rules.reaches_into(path):
            before = len(self.tree.items)
            self.tree.items[path] = item = Item(
                path, entry.path, "d", entry.stat(follow_symlinks=False)
            )
            self.folder(path, entry.path, only_included=True)
            if len(self.tree.items) == before + 1:
                del self.tree.items[item.path]
        if why:  # what lies in a skipped folder is not told one by one
            size = 0 if is_folder else entry.stat(follow_symlinks=False).st_size
            self.tree.skipped.append(Skipped(path, entry.path, why, is_folder, size))

    def _link(self, path: str, entry: os.DirEntry[str], info: os.stat_result) -> None:
        target = os.readlink(entry.path)
        said = travelling(target.replace("\\", "/") if os.name == "nt" else target)
        if said is None or not leads_inside(path, said):
            if self.rules.everything and os.path.isfile(entry.path):
                # a model folder of the Hugging Face cache holds links to its blobs
                self.tree.items[path] = Item(path, entry.path, "f", entry.stat())
                return
            self.tree.notes.append(f"{path}: a link out of the project ({target}): not sent")
            return
        item = self.tree.items[path] = Item(path, entry.path, "l", info)
        item.link, item.mode = said, 0o777


def _is_environment(folder: str) -> bool:
    """Whether a folder is a virtual environment under some other name: it cannot move."""
    return any(os.path.exists(os.path.join(folder, name)) for name in ("pyvenv.cfg", "conda-meta"))


def _is_junction(info: os.stat_result) -> bool:
    return bool(getattr(info, "st_file_attributes", 0) & _REPARSE)


def travelling(name: str) -> str | None:
    """Return a name as it travels, or None for one that no UTF-8 can stand for."""
    try:
        if _ENCODED and os.name != "nt":
            name = os.fsencode(name).decode("utf-8", "surrogateescape")
        if not name.isascii():
            name.encode("utf-8", "surrogateescape")
    except UnicodeError:
        return None
    return name


def leads_inside(path: str, target: str) -> bool:
    """Whether a link at a path says a relative place inside the tree."""
    if not target or target.startswith("/") or (len(target) > 1 and target[1] == ":"):
        return False
    depth = path.count("/")
    for name in target.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(name, 1)
        if depth < 0:
            return False
    return True


def measure(skipped: list[Skipped], seconds: float) -> dict[str, tuple[int, bool]]:
    """Return {path: (bytes, whether that is all)} of skipped paths, within a time."""
    until = time.monotonic() + seconds
    found = {}
    for item in skipped:
        if not item.is_folder:
            found[item.path] = (item.size, True)
            continue
        size, whole = 0, True
        for info in _sizes(item.local):
            size += info
            if time.monotonic() > until:
                whole = False
                break
        found[item.path] = (size, whole)
    return found


def _sizes(folder: str) -> Iterator[int]:
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        yield entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
        yield 0
