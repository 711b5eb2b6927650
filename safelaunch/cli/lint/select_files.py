"""Which files `lint` looks at: those that are named, and those of folders but for ignored ones."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.lint.file_kinds import by_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.sync.ignore import Patterns, Rules

IGNORE_FILE = ".safelaunchlintignore"
MOST = 1 << 20  # bytes: what is larger is data
_START = 200  # bytes that tell a script without an ending


class Chosen(NamedTuple):
    """The files to look at, those that an ignore file leaves out, and those that have no rules."""

    files: tuple[str, ...]
    ignored: tuple[str, ...]
    others: tuple[str, ...]


def choose(paths: Sequence[str]) -> Chosen:
    """Return the files that are named and those in named folders. Raises ConfigError."""
    ignore = _Ignored()
    files: dict[str, None] = {}
    ignored, others = [], []
    for path in paths:
        mode = _mode(path)
        if stat.S_ISDIR(mode):
            files.update(dict.fromkeys(_walk(path, ignore)))
        elif ignore.has(path, is_folder=False):
            ignored.append(path)
        elif not stat.S_ISREG(mode) or by_name(path, read(path, _START)) is None:
            others.append(path)
        else:
            files[path] = None
    return Chosen(tuple(files), tuple(ignored), tuple(others))


def is_ignored(path: str) -> bool:
    """Whether an ignore file leaves a file out."""
    return _Ignored().has(path, is_folder=False)


def read(path: str, most: int = MOST + 1) -> bytes:
    """Return the first bytes of a file. Raises ConfigError."""
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError as e:
        raise ConfigError(f"cannot read: {e.strerror}", where=path) from e


def _mode(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        raise ConfigError("no such file or folder", where=path) from None
    except (OSError, ValueError) as e:
        raise ConfigError(f"cannot read: {getattr(e, 'strerror', None) or e}", where=path) from e


def _walk(root: str, ignore: _Ignored) -> Iterator[str]:
    from safelaunch.sync.ignore import Rules  # noqa: PLC0415 - only folders need it

    yield from _walk_folder(root, "", Rules(root), ignore)


def _walk_folder(root: str, inside: str, rules: Rules, ignore: _Ignored) -> Iterator[str]:
    folder = os.path.join(root, *inside.split("/")) if inside else root
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return  # not ours to read
    rules.enter(inside, [entry.name for entry in entries])
    for entry in entries:
        path = f"{inside}/{entry.name}" if inside else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if rules.judge(path, is_folder=is_folder) or ignore.has(entry.path, is_folder=is_folder):
            continue
        if is_folder:
            if not entry.name.startswith(".") and not _is_environment(entry.path):
                yield from _walk_folder(root, path, rules, ignore)
        elif _has_rules(entry):
            yield os.path.normpath(entry.path)
    rules.leave(inside)


def _is_environment(folder: str) -> bool:
    inside = ("pyvenv.cfg", "conda-meta")
    return any(os.path.exists(os.path.join(folder, name)) for name in inside)


def _has_rules(entry: os.DirEntry[str]) -> bool:
    """Whether a file that was found, not named, is small and has rules."""
    try:
        if not entry.is_file() or entry.stat().st_size > MOST:
            return False
        start = b"" if "." in entry.name else read(entry.path, _START)
    except (OSError, ConfigError):
        return False
    return by_name(entry.path, start) is not None


class _Ignored:
    """What ignore files say, from a file's folder up to the repository's root."""

    def __init__(self) -> None:
        self._patterns: dict[str, Patterns | None] = {}
        self._above: dict[str, tuple[str, ...]] = {}

    def has(self, path: str, *, is_folder: bool) -> bool:
        """Whether a path is ignored."""
        whole = os.path.abspath(path)
        for folder in self._folders(os.path.dirname(whole)):
            patterns = self._of(folder)
            if patterns is None:
                continue
            inside = os.path.relpath(whole, folder).replace(os.sep, "/")
            verdict = patterns.verdict(inside, is_folder=is_folder)
            if verdict is not None:
                return verdict.skipped
        return False

    def _folders(self, folder: str) -> tuple[str, ...]:
        """Return a folder and those above it, the repository's root last."""
        if folder not in self._above:
            parent = os.path.dirname(folder)
            is_top = parent == folder or os.path.exists(os.path.join(folder, ".git"))
            self._above[folder] = (folder, *(() if is_top else self._folders(parent)))
        return self._above[folder]

    def _of(self, folder: str) -> Patterns | None:
        if folder not in self._patterns:
            path = os.path.join(folder, IGNORE_FILE)
            self._patterns[folder] = _patterns(path) if os.path.isfile(path) else None
        return self._patterns[folder]


def _patterns(path: str) -> Patterns:
    from safelaunch.sync.ignore import Patterns  # noqa: PLC0415 - only where there is such a file

    text = read(path).decode("utf-8-sig", "surrogateescape")
    return Patterns([line.rstrip("\r") for line in text.split("\n")], path)
