"""Selects the files that `lint` checks: named files, and files in folders that are not ignored."""

# ruff: noqa: PLC0415 - the reader of ignore files is imported only where there are some

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.lint.kinds import kind_by_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.sync.ignore import Patterns, Rules

IGNORE_FILE = ".safelaunchlintignore"
MAX_BYTES = 1 << 20  # larger files are data
_SCRIPT_HEAD = 200  # bytes to read, to recognise a script without a file name extension


class Selection(NamedTuple):
    """The files to check, those that an ignore file excludes, and those without rules."""

    files: tuple[str, ...]
    ignored: tuple[str, ...]
    unsupported: tuple[str, ...]


def select_files(paths: Sequence[str]) -> Selection:
    """Return the named files and those in named folders. Raises ConfigError."""
    ignore = _IgnoreFiles()
    files: dict[str, None] = {}
    ignored, others = [], []
    for path in paths:
        mode = _mode(path)
        if stat.S_ISDIR(mode):
            from safelaunch.sync.ignore import Rules

            files.update(dict.fromkeys(_walk(path, "", Rules(path), ignore)))
        elif ignore.contains(path, is_folder=False):
            ignored.append(path)
        elif not stat.S_ISREG(mode) or kind_by_name(path, read(path, _SCRIPT_HEAD)) is None:
            others.append(path)
        else:
            files[path] = None
    return Selection(tuple(files), tuple(ignored), tuple(others))


def is_ignored(path: str) -> bool:
    """Whether an ignore file excludes a file."""
    return _IgnoreFiles().contains(path, is_folder=False)


def read(path: str, limit: int = MAX_BYTES + 1) -> bytes:
    """Return the first bytes of a file. Raises ConfigError."""
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError as error:
        raise ConfigError(f"cannot read: {error.strerror}", where=path) from error


def _mode(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        raise ConfigError("no such file or folder", where=path) from None
    except (OSError, ValueError) as e:
        raise ConfigError(f"cannot read: {getattr(e, 'strerror', None) or e}", where=path) from e


def _walk(root: str, inside: str, rules: Rules, ignore: _IgnoreFiles) -> Iterator[str]:
    folder = os.path.join(root, *inside.split("/")) if inside else root
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return  # no permission to read it
    rules.enter(inside, [entry.name for entry in entries])
    for entry in entries:
        path = f"{inside}/{entry.name}" if inside else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if rules.decide(path, is_folder=is_folder):
            continue
        if ignore.contains(entry.path, is_folder=is_folder):
            continue
        if is_folder:
            if not entry.name.startswith(".") and not _is_environment(entry.path):
                yield from _walk(root, path, rules, ignore)
        elif _has_rules(entry):
            yield os.path.normpath(entry.path)
    rules.leave(inside)


def _is_environment(folder: str) -> bool:
    markers = ("pyvenv.cfg", "conda-meta")
    return any(os.path.exists(os.path.join(folder, name)) for name in markers)


def _has_rules(entry: os.DirEntry[str]) -> bool:
    """Whether a file of a folder is small enough and has rules."""
    try:
        if not entry.is_file() or entry.stat().st_size > MAX_BYTES:
            return False
        start = b"" if "." in entry.name else read(entry.path, _SCRIPT_HEAD)
    except (OSError, ConfigError):
        return False
    return kind_by_name(entry.path, start) is not None


class _IgnoreFiles:
    """The ignore files from a file's folder up to the root of the repository."""

    def __init__(self) -> None:
        self._patterns: dict[str, Patterns | None] = {}
        self._ancestors: dict[str, tuple[str, ...]] = {}

    def contains(self, path: str, *, is_folder: bool) -> bool:
        """Whether a path is ignored."""
        absolute = os.path.abspath(path)
        for folder in self._folders(os.path.dirname(absolute)):
            patterns = self._load(folder)
            if patterns is None:
                continue
            inside = os.path.relpath(absolute, folder).replace(os.sep, "/")
            decision = patterns.decision(inside, is_folder=is_folder)
            if decision is not None:
                return decision.skipped
        return False

    def _folders(self, folder: str) -> tuple[str, ...]:
        """Return a folder and its parents up to the root of the repository."""
        if folder not in self._ancestors:
            parent = os.path.dirname(folder)
            is_top = parent == folder or os.path.exists(os.path.join(folder, ".git"))
            self._ancestors[folder] = (folder, *(() if is_top else self._folders(parent)))
        return self._ancestors[folder]

    def _load(self, folder: str) -> Patterns | None:
        if folder not in self._patterns:
            path = os.path.join(folder, IGNORE_FILE)
            self._patterns[folder] = None
            if os.path.isfile(path):
                from safelaunch.sync.ignore import Patterns

                text = read(path).decode("utf-8-sig", "surrogateescape")
                lines = [line.rstrip("\r") for line in text.split("\n")]
                self._patterns[folder] = Patterns(lines, path)
        return self._patterns[folder]
