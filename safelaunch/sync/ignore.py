"""Which files of a project travel: built-in rules, ignore files, and what the job says.

A later level beats an earlier one: built in, `.gitignore`, `.safelaunchignore`, `exclude`,
`include`. Ignore files mean what they mean to git: also in folders further down, with negation, and
nothing below a skipped folder comes back. `include` alone reaches into skipped folders, where its
pattern is a path: `checkpoints/base/**`. Rules of the user (`core.excludesFile`) are not read: what
a job runs with must not depend on whose laptop it was started from.

Weights (`*.safetensors`) are no rule: a small adapter in the project is meant, checkpoint folders
are skipped by name, and the size guard stops what is too large.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

IGNORE_FILES = (".gitignore", ".safelaunchignore")
BUILT_IN = "built in"

_FOLDERS = frozenset(
    {
        ".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache",
        ".ruff_cache", ".pytest_cache", ".hypothesis", ".tox", ".nox", ".ipynb_checkpoints",
        ".safelaunch",
    }
)  # fmt: skip
# what training leaves behind; a Python package of that name is code
_OUTPUTS = frozenset({"checkpoints", "wandb", "mlruns", "lightning_logs"})
_OUTPUT = re.compile(r"checkpoint-[0-9]+")
_FILES = frozenset({".git", ".DS_Store", "Thumbs.db", "desktop.ini"})  # `.git` of a worktree
_ENDINGS = (".pyc", ".pyo")
_PARTS = (".safelaunch-", ".part")  # what an interrupted transfer leaves


class Verdict(NamedTuple):
    """Whether a path is skipped, and which rule says so."""

    skipped: bool
    why: str


class Patterns:
    """The lines of one ignore file or list. Raises nothing: git passes over what it cannot read."""

    def __init__(self, lines: Iterable[str], source: str, *, fold: bool = False) -> None:
        from pathspec import GitIgnoreSpec  # noqa: PLC0415 - loaded already

        self.source = source
        self.fold = fold
        self.lines = [line.lower() if fold else line for line in lines if _says(line)]
        try:
            self._spec = GitIgnoreSpec.from_lines(self.lines)
        except ValueError:
            self.lines = [line for line in self.lines if _is_pattern(line)]
            self._spec = GitIgnoreSpec.from_lines(self.lines)
        found = [p.regex.pattern for p in self._spec.patterns if p.regex is not None]
        # most paths match nothing, which one expression says in a third of the time
        self._any = re.compile("|".join(f"(?:{_anonymous(p)})" for p in found) or "(?!)")

    def verdict(self, path: str, *, is_folder: bool) -> Verdict | None:
        """Return what the last matching line says of a path, or None where none matches."""
        asked = path + "/" if is_folder else path
        if self.fold:
            asked = asked.lower()
        if self._any.match(asked) is None:
            return None
        found = self._spec.check_file(asked)
        if found.include is None or found.index is None:
            return None
        return Verdict(found.include, f"{self.source}: {self.lines[found.index]}")


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _is_pattern(line: str) -> bool:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - loaded already

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _anonymous(pattern: str) -> str:
    return re.sub(r"\(\?P<\w+>", "(?:", pattern)


class Include:
    """Patterns that bring back, also out of skipped folders."""

    def __init__(self, patterns: Sequence[str], *, fold: bool) -> None:
        self._patterns = Patterns(patterns, "include", fold=fold) if patterns else None
        self._paths = [_names(p.lower() if fold else p) for p in patterns]
        self._fold = fold

    def has(self, path: str, *, is_folder: bool) -> bool:
        """Whether a path is brought back."""
        if self._patterns is None:
            return False
        return self._patterns.verdict(path, is_folder=is_folder) is not None

    def reaches_into(self, folder: str) -> bool:
        """Whether something below a folder may be brought back: a pattern that is a path."""
        names = (folder.lower() if self._fold else folder).split("/")
        return any(_leads_to(path, names) for path in self._paths)


def _names(pattern: str) -> list[str]:
    """Return the names of a pattern that is a path; nothing for one that may be anywhere."""
    path = pattern.rstrip("/")
    if "/" not in path:
        return []
    names = path.strip("/").split("/")
    return [] if names[0] == "**" else names


def _leads_to(path: list[str], folder: list[str]) -> bool:
    from fnmatch import fnmatchcase  # noqa: PLC0415 - only jobs that include

    for at, name in enumerate(folder):
        if at >= len(path):
            return False  # it named a folder above: that one was brought back whole
        if path[at] == "**":
            return True
        if not fnmatchcase(name, path[at]):
            return False
    return len(path) > len(folder)


class Rules:
    """What of a project travels. `root` is its folder; `everything` knows no rules at all."""

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
        self._include = Include(include, fold=self.fold)
        self._exclude = Patterns(exclude, "exclude", fold=self.fold) if exclude else None
        # by kind of ignore file: (folder, what paths are relative to it, patterns), inner last
        self._files: dict[str, list[tuple[str, str, Patterns]]] = {n: [] for n in IGNORE_FILES}
        if not everything:
            self._read_above()

    def enter(self, folder: str, names: Iterable[str]) -> None:
        """Read the ignore files among the names in a folder ("" is the root)."""
        if self.everything:
            return
        for name in IGNORE_FILES:
            if name in names:
                shown = f"{folder}/{name}" if folder else name
                self._add(name, folder, "", _lines(os.path.join(self.root, shown)), shown)

    def leave(self, folder: str) -> None:
        """Forget the ignore files of a folder."""
        for known in self._files.values():
            while known and known[-1][0] == folder and folder:
                known.pop()

    def judge(self, path: str, *, is_folder: bool) -> Verdict | None:
        """Return why a path is skipped, or None for one that travels."""
        if self.everything or self._include.has(path, is_folder=is_folder):
            return None
        if self._exclude is not None:
            found = self._exclude.verdict(path, is_folder=is_folder)
            if found is not None:
                return found if found.skipped else None
        for name in reversed(IGNORE_FILES):
            for folder, before, patterns in reversed(self._files[name]):
                inside = before + (path[len(folder) + 1 :] if folder else path)
                found = patterns.verdict(inside, is_folder=is_folder)
                if found is not None:
                    return found if found.skipped else None
        return self._built_in(path, is_folder=is_folder)

    def reaches_into(self, folder: str) -> bool:
        """Whether something below a skipped folder travels all the same."""
        return self._include.reaches_into(folder)

    def brings_back(self, path: str, *, is_folder: bool) -> bool:
        """Whether `include` names a path below a skipped folder."""
        return self._include.has(path, is_folder=is_folder)

    def _built_in(self, path: str, *, is_folder: bool) -> Verdict | None:
        name = path.rpartition("/")[2]
        if is_folder:
            skipped = name in _FOLDERS
            if not skipped and (name in _OUTPUTS or _OUTPUT.fullmatch(name)):
                skipped = not os.path.exists(os.path.join(self.root, path, "__init__.py"))
        else:
            skipped = name in _FILES or name.endswith(_ENDINGS)
            skipped = skipped or (name.startswith(_PARTS[0]) and name.endswith(_PARTS[1]))
        return Verdict(True, BUILT_IN) if skipped else None

    def _add(self, name: str, folder: str, before: str, lines: list[str], shown: str) -> None:
        if any(_says(line) for line in lines):
            self._files[name].append((folder, before, Patterns(lines, shown, fold=self.fold)))

    def _read_above(self) -> None:
        """Read the ignore files between the repository's root and a project inside it."""
        above, at, before = [], os.path.abspath(self.root), ""
        while not os.path.exists(os.path.join(at, ".git")):
            parent = os.path.dirname(at)
            if parent == at:
                return  # no repository
            before = f"{os.path.basename(at)}/{before}"
            above.append((parent, before))
            at = parent
        for folder, inside in reversed(above):
            for name in IGNORE_FILES:
                path = os.path.join(folder, name)
                lines = _lines(path) if os.path.exists(path) else []
                # who starts a job out of an ignored folder means that folder
                if lines and not _hides(lines, inside, path):
                    self._add(name, "", inside, lines, path)


def _hides(lines: list[str], path: str, source: str) -> bool:
    patterns = Patterns(lines, source)
    names = path.rstrip("/").split("/")
    folders = ["/".join(names[: n + 1]) for n in range(len(names))]
    found = [patterns.verdict(folder, is_folder=True) for folder in folders]
    return any(verdict is not None and verdict.skipped for verdict in found)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            return [line.rstrip("\r") for line in file.read().split("\n")]
    except OSError:
        return []


def _ignores_case(root: str) -> bool:
    """Whether `A` and `a` are one name there; git's rules do not tell them apart then."""
    folder, name = os.path.split(os.path.abspath(root))
    other = os.path.join(folder, name.swapcase())
    try:
        return name.swapcase() != name and os.path.samefile(root, other)
    except OSError:
        return False
