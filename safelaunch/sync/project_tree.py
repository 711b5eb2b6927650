"""Scan a project: the entries to sync, and the skipped ones with the reason."""

from __future__ import annotations

import operator
import os
import stat
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safelaunch.runtime.code import secret_files
from safelaunch.sync import ignore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.sync.ignore import Rules

_ENCODED = sys.getfilesystemencoding().lower() not in ("utf-8", "utf8")
_IS_WINDOWS = os.name == "nt"
_REPARSE = getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0x400)
_NAME = operator.attrgetter("name")


class Entry:
    """A path to sync; `hash`, and the real mode on Windows, are set when it is read."""

    __slots__ = ("hash", "key", "kind", "link", "local", "mode", "path", "size", "verbatim")

    def __init__(self, path: str, local: str, kind: str, info: os.stat_result) -> None:
        self.path = path  # wire format: `/` between names, undecodable bytes as lone surrogates
        self.local = local
        self.kind = kind  # f, d, l
        self.mode = _mode(kind, info)
        self.size = info.st_size if kind == "f" else 0
        self.key = (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)
        self.hash = ""
        self.link = ""
        self.verbatim = False  # do not convert CRLF in shell scripts

    @property
    def content(self) -> str:
        """The hash, or the target of a link."""
        return self.link if self.kind == "l" else self.hash


def _mode(kind: str, info: os.stat_result) -> int:
    if _IS_WINDOWS:  # it has no such bits; scripts get theirs when they are read
        return 0o755 if kind == "d" else 0o644
    return info.st_mode & 0o777


@dataclass(frozen=True, slots=True)
class Skipped:
    """A path that is not synced, and the rule that skips it."""

    path: str
    local: str
    why: str
    is_folder: bool
    size: int  # of a file; total_sizes measures folders


@dataclass(slots=True)
class Tree:
    """The entries of a project."""

    root: str
    items: dict[str, Entry] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # entries that cannot be synced, for the user

    @property
    def files(self) -> list[Entry]:
        """The files, in order."""
        return [item for item in self.items.values() if item.kind == "f"]


def scan(rules: Rules) -> Tree:
    """Return the entries of a project to sync. Raises OSError if its root cannot be read."""
    tree = Tree(rules.root)
    with os.scandir(rules.root):
        pass
    _TreeWalker(tree, rules.copy()).folder("", rules.root, only_included=False)
    return tree


class _TreeWalker:
    def __init__(self, tree: Tree, rules: Rules) -> None:
        self.tree = tree
        self.rules = rules

    def folder(self, folder: str, local: str, *, only_included: bool) -> None:
        try:
            with os.scandir(local) as scan_entries:
                entries = sorted(scan_entries, key=_NAME)
        except OSError as e:
            self.tree.notes.append(f"{folder or '.'}: cannot be read ({e.strerror}): not sent")
            return
        self.rules.enter(folder, {entry.name for entry in entries})
        prefix = folder + "/" if folder else ""
        for entry in entries:
            name = synced_path(entry.name)
            if name is None:
                self.tree.notes.append(f"{prefix}{entry.name!r}: not a valid file name on Linux")
                continue
            try:
                self._entry(prefix + name, entry, only_included=only_included)
            except OSError as e:
                self.tree.notes.append(f"{prefix}{name}: {e.strerror}: not sent")
        self.rules.leave(folder)

    def _entry(self, path: str, entry: os.DirEntry[str], *, only_included: bool) -> None:
        is_folder = entry.is_dir(follow_symlinks=False)
        if only_included:
            skipped = not self.rules.include.has(path, is_folder=is_folder)
            why = ""
        else:
            decision = self.rules.decide(path, is_folder=is_folder)
            skipped, why = decision is not None, decision.rule if decision else ""
        if not skipped and is_folder and not self.rules.everything:
            # a virtual environment under some other name: it cannot move
            markers = (os.path.join(entry.path, name) for name in ("pyvenv.cfg", "conda-meta"))
            skipped, why = any(map(os.path.exists, markers)), "an environment"
        if not skipped and not is_folder and self._is_secret(path, entry):
            skipped, why = True, ignore.SENSITIVE
        if skipped:
            self._skip(path, entry, why, is_folder=is_folder)
            return
        info = entry.stat(follow_symlinks=False)
        if is_folder and not getattr(info, "st_file_attributes", 0) & _REPARSE:  # no junction
            self.tree.items[path] = Entry(path, entry.path, "d", info)
            self.folder(path, entry.path, only_included=False)
        elif entry.is_symlink():
            self._link(path, entry, info)
        elif stat.S_ISREG(info.st_mode):
            self.tree.items[path] = Entry(path, entry.path, "f", info)
        else:
            kind = "a junction" if is_folder else "no file, folder or link"
            self.tree.notes.append(f"{path}: {kind}: not sent")

    def _is_secret(self, path: str, entry: os.DirEntry[str]) -> bool:
        """Whether a file must not be sent, since no `include` names it. Raises OSError."""
        if self.rules.everything and entry.is_symlink():
            path = f"{path}/{os.path.basename(os.readlink(entry.path))}"  # its target is sent
        return secret_files.is_secret(path, entry.path) and not self.rules.include.names(path)

    def _skip(self, path: str, entry: os.DirEntry[str], why: str, *, is_folder: bool) -> None:
        if is_folder and self.rules.include.reaches_into(path):
            info = entry.stat(follow_symlinks=False)
            self.tree.items[path] = Entry(path, entry.path, "d", info)
            count = len(self.tree.items)
            self.folder(path, entry.path, only_included=True)
            if len(self.tree.items) == count:
                del self.tree.items[path]
        if why:  # entries inside a skipped folder are not listed
            size = 0 if is_folder else entry.stat(follow_symlinks=False).st_size
            self.tree.skipped.append(Skipped(path, entry.path, why, is_folder, size))

    def _link(self, path: str, entry: os.DirEntry[str], info: os.stat_result) -> None:
        target = os.readlink(entry.path)
        link_target = synced_path(target.replace("\\", "/") if os.name == "nt" else target)
        if link_target is None or not points_inside(path, link_target):
            if self.rules.everything and os.path.isfile(entry.path):
                # a model folder of the Hugging Face cache holds links to its blobs
                self.tree.items[path] = Entry(path, entry.path, "f", entry.stat())
                return
            self.tree.notes.append(f"{path}: a link out of the project ({target}): not sent")
            return
        item = self.tree.items[path] = Entry(path, entry.path, "l", info)
        item.link, item.mode = link_target, 0o777


def synced_path(name: str) -> str | None:
    """Return a name in its wire format, or None if UTF-8 cannot represent it."""
    try:
        if _ENCODED and os.name != "nt":
            name = os.fsencode(name).decode("utf-8", "surrogateescape")
        if not name.isascii():
            name.encode("utf-8", "surrogateescape")
    except UnicodeError:
        return None
    return name


def points_inside(path: str, target: str) -> bool:
    """Whether the target of a link is a relative path inside the tree."""
    if not target or target.startswith("/") or (len(target) > 1 and target[1] == ":"):
        return False
    depth = path.count("/")
    for name in target.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(name, 1)
        if depth < 0:
            return False
    return True


def total_sizes(skipped: list[Skipped], seconds: float) -> dict[str, tuple[int, bool]]:
    """Return {path: (bytes, whether that is all)} of skipped paths, within a time."""
    until = time.monotonic() + seconds
    scan_entries = {}
    for item in skipped:
        if not item.is_folder:
            scan_entries[item.path] = (item.size, True)
            continue
        size, complete = 0, True
        for info in _sizes(item.local):
            size += info
            if time.monotonic() > until:
                complete = False
                break
        scan_entries[item.path] = (size, complete)
    return scan_entries


def _sizes(folder: str) -> Iterator[int]:
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as scan_entries:
                for entry in scan_entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        yield entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
        yield 0
