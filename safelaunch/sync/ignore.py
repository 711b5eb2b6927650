"""Decide which files of a project are synced: built-in rules, ignore files, rules of the job.

A later level overrides an earlier one: built in, `.gitignore`, `.safelaunchignore`, `exclude`,
`include`. Ignore files work as in git: also in nested folders, with negation, and nothing below a
skipped folder can be included again. Only `include` reaches into skipped folders, if its pattern is
a path: `checkpoints/base/**`. Rules of the user (`core.excludesFile`) are not read: what a job runs
with must not depend on the laptop from which it was started.

No rule skips weights (`*.safetensors`): a small adapter in the project should be synced, checkpoint
folders are skipped by name, and the size limit stops large files.
"""

# ruff: noqa: PLC0415 - pathspec, 20 ms: only for a project with patterns, once its host is at work

from __future__ import annotations

import copy
import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".safelaunchignore")
BUILT_IN = "built in"
SENSITIVE = "a secret"

_FOLDERS = frozenset(
    {
        ".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache",
        ".ruff_cache", ".pytest_cache", ".hypothesis", ".tox", ".nox", ".ipynb_checkpoints",
        ".safelaunch",
    }
)  # fmt: skip
# folders of training results; a Python package with such a name is code
_OUTPUTS = frozenset({"checkpoints", "wandb", "mlruns", "lightning_logs"})
_OUTPUT = re.compile(r"checkpoint-[0-9]+")
_FILES = frozenset({".git", ".DS_Store", "Thumbs.db", "desktop.ini"})  # `.git` of a worktree


class IgnoreDecision(NamedTuple):
    """Whether a path is skipped, and the rule that decided it."""

    skipped: bool
    rule: str


class Patterns:
    """The patterns of one ignore file or list. Invalid lines are skipped, as git does."""

    def __init__(self, lines: Iterable[str], source: str, *, fold: bool = False) -> None:
        self.source = source
        self.fold = fold
        self.lines = [line.lower() if fold else line for line in lines if _is_rule(line)]
        try:
            self._spec = _spec(self.lines)
        except ValueError:
            self.lines = [line for line in self.lines if _is_pattern(line)]
            self._spec = _spec(self.lines)
        regexes = [p.regex.pattern for p in self._spec.patterns if p.regex is not None]
        anonymous = (re.sub(r"\(\?P<\w+>", "(?:", regex) for regex in regexes)
        # most paths match nothing, which one expression shows in a third of the time
        self._any = re.compile("|".join(f"(?:{regex})" for regex in anonymous) or "(?!)")

    def decision(self, path: str, *, is_folder: bool) -> IgnoreDecision | None:
        """Return the decision of the last line that matches a path, or None."""
        subject = path + "/" if is_folder else path
        if self.fold:
            subject = subject.lower()
        if self._any.match(subject) is None:
            return None
        match = self._spec.check_file(subject)
        if match.include is None or match.index is None:
            return None
        return IgnoreDecision(match.include, f"{self.source}: {self.lines[match.index]}")


def _is_rule(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _is_pattern(line: str) -> bool:
    try:
        _spec([line])
    except ValueError:
        return False
    return True


def _spec(lines: list[str]) -> GitIgnoreSpec:
    """Return the compiled form of patterns. Raises ValueError for invalid ones."""
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


class Include:
    """Patterns of `include`, which also apply inside skipped folders."""

    def __init__(self, patterns: Sequence[str], *, fold: bool) -> None:
        self._patterns = Patterns(patterns, "include", fold=fold) if patterns else None
        self._lines = patterns
        self._paths = [_path_parts(p.lower() if fold else p) for p in patterns]
        self._fold = fold

    def __bool__(self) -> bool:
        """Whether there are patterns."""
        return self._patterns is not None

    def has(self, path: str, *, is_folder: bool) -> bool:
        """Whether a path is included."""
        patterns = self._patterns
        return patterns is not None and patterns.decision(path, is_folder=is_folder) is not None

    def names(self, path: str) -> bool:
        """Whether a file is included by a pattern that names it, or a folder above it."""
        named = [line for line in self._lines if _is_name(path, line)]
        if not named:
            return False
        patterns = Patterns(named, "include", fold=self._fold)
        return patterns.decision(path, is_folder=False) is not None

    def reaches_into(self, folder: str) -> bool:
        """Whether a path pattern may include something below a folder."""
        names = (folder.lower() if self._fold else folder).split("/")
        return any(_may_contain(path, names) for path in self._paths)


def _is_name(path: str, pattern: str) -> bool:
    """Whether a pattern that matches a path names its file or a folder above: `**` names none."""
    names = path.lower().split("/")
    words = [word for word in pattern.lower().split("/") if any(map(str.isalnum, word))]
    return any(fnmatchcase(name, word) for word in words for name in names)


def _path_parts(pattern: str) -> list[str]:
    """Return the parts of a pattern that is a path; [] for one that matches in any folder."""
    path = pattern.rstrip("/")
    if "/" not in path:
        return []
    names = path.strip("/").split("/")
    return [] if names[0] == "**" else names


def _may_contain(path: list[str], folder: list[str]) -> bool:
    for index, name in enumerate(folder):
        if index >= len(path):
            return False  # the pattern is a parent folder, which is included completely
        if path[index] == "**":
            return True
        if not fnmatchcase(name, path[index]):
            return False
    return len(path) > len(folder)


class Rules:
    """The ignore rules of a project. `root` is its folder; `everything` disables all rules."""

    def __init__(
        self,
        root: str,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        *,
        everything: bool = False,
    ) -> None:
        self.root = root
        self.everything = everything
        self.fold = not everything and _ignores_case(root)
        self.include = Include(include, fold=self.fold)
        self._exclude = Patterns(exclude, "exclude", fold=self.fold) if exclude else None
        # by kind of ignore file: (folder, what paths are relative to it, patterns), inner last
        self._files: dict[str, list[tuple[str, str, Patterns]]] = {n: [] for n in IGNORE_FILES}
        self._levels: list[tuple[str, str, Patterns]] = []  # of the present folder, in force first
        if not everything:
            self._read_above()
        self._order()

    def copy(self) -> Rules:
        """Return the same rules for another scan: hosts are scanned for side by side."""
        other = copy.copy(self)
        other._files = {n: list(files) for n, files in self._files.items()}  # noqa: SLF001 - its own
        return other

    def enter(self, folder: str, names: Iterable[str]) -> None:
        """Read the ignore files among the names in a folder ("" is the root)."""
        for name in IGNORE_FILES:
            if name in names and not self.everything:
                shown = f"{folder}/{name}" if folder else name
                self._add(name, folder, "", _read_lines(os.path.join(self.root, shown)), shown)
                self._order()

    def leave(self, folder: str) -> None:
        """Discard the ignore files of a folder."""
        for ignore_files in self._files.values():
            while ignore_files and ignore_files[-1][0] == folder and folder:
                ignore_files.pop()
                self._order()

    def decide(self, path: str, *, is_folder: bool) -> IgnoreDecision | None:
        """Return the decision for a skipped path, or None for a path to sync."""
        if self.everything or (self.include and self.include.has(path, is_folder=is_folder)):
            return None
        for folder, prefix, patterns in self._levels:
            inside = prefix + (path[len(folder) + 1 :] if folder else path)
            match = patterns.decision(inside, is_folder=is_folder)
            if match is not None:
                return match if match.skipped else None
        return self._built_in(path, is_folder=is_folder)

    def _built_in(self, path: str, *, is_folder: bool) -> IgnoreDecision | None:
        name = path.rpartition("/")[2]
        if is_folder:
            skipped = name in _FOLDERS
            if not skipped and (name in _OUTPUTS or _OUTPUT.fullmatch(name)):
                skipped = not os.path.exists(os.path.join(self.root, path, "__init__.py"))
        else:
            partial = name.startswith(".safelaunch-") and name.endswith(".part")  # of a transfer
            skipped = partial or name in _FILES or name.endswith((".pyc", ".pyo"))
        return IgnoreDecision(True, BUILT_IN) if skipped else None

    def _order(self) -> None:
        self._levels = [("", "", self._exclude)] if self._exclude else []
        for name in reversed(IGNORE_FILES):
            self._levels += reversed(self._files[name])

    def _add(self, name: str, folder: str, prefix: str, lines: list[str], shown: str) -> None:
        if any(_is_rule(line) for line in lines):
            self._files[name].append((folder, prefix, Patterns(lines, shown, fold=self.fold)))

    def _read_above(self) -> None:
        """Read the ignore files between the repository's root and a project inside it."""
        parents, index, prefix = [], os.path.abspath(self.root), ""
        while not os.path.exists(os.path.join(index, ".git")):
            parent = os.path.dirname(index)
            if parent == index:
                return  # no repository
            prefix = f"{os.path.basename(index)}/{prefix}"
            parents.append((parent, prefix))
            index = parent
        for folder, inside in reversed(parents):
            for name in IGNORE_FILES:
                path = os.path.join(folder, name)
                lines = _read_lines(path) if os.path.exists(path) else []
                # a job started in an ignored folder should sync that folder
                if lines and not _hides(lines, inside, path):
                    self._add(name, "", inside, lines, path)


def _hides(lines: list[str], path: str, source: str) -> bool:
    patterns = Patterns(lines, source)
    names = path.rstrip("/").split("/")
    folders = ["/".join(names[: n + 1]) for n in range(len(names))]
    decisions = (patterns.decision(folder, is_folder=True) for folder in folders)
    return any(decision is not None and decision.skipped for decision in decisions)


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            return [line.rstrip("\r") for line in file.read().split("\n")]
    except OSError:
        return []


def _ignores_case(root: str) -> bool:
    """Whether the file system of a folder ignores case; git's rules then ignore it too."""
    folder, name = os.path.split(os.path.abspath(root))
    other = os.path.join(folder, name.swapcase())
    try:
        return name.swapcase() != name and os.path.samefile(root, other)
    except OSError:
        return False
