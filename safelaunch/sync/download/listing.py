"""What a pull asks a host for, and which files of the host's list are among it.

A host that is not trusted may list anything: each name is matched against the user's own patterns
here, as the host should have done it.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.runtime.plain_text import printable, without_controls

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Self

_MAGIC = re.compile(r"[*?\[]")
_MAX_NAME = 255  # bytes of a name: what file systems allow
_MAX_PATH = 4096  # PATH_MAX of Linux
_MAX_SIZE = 1 << 62
_PART = re.compile(r"\.safelaunch-[^/]*\.part")
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_WINDOWS_UNSAFE = re.compile(
    r'[<>:"\\|?*\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)', re.IGNORECASE
)
_IGNORES_CASE = os.name == "nt" or sys.platform == "darwin"


class RemoteFile(NamedTuple):
    """A file on the host; `name` is its relative path below `into`."""

    name: str
    path: str
    size: int
    mtime: int

    @property
    def shown(self) -> str:
        """The path as it may stand in a message."""
        return printable(self.path)


class RemotePattern(NamedTuple):
    """A glob below a folder of the host. What matches, and all in a folder that does, is meant."""

    folder: str
    glob: str

    @classmethod
    def parse(cls, pattern: str, root: str | None) -> Self:
        """Return the pattern that a user wrote, relative to `root`. Raises ConfigError.

        Names are relative to `root`; for a pattern that leads out of it, to what stands before the
        first wildcard.
        """
        base = root.rstrip("/") + "/" if root else None
        if base is not None and pattern.startswith(base):
            pattern = pattern[len(base) :]
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        is_absolute = pattern.startswith(("/", "~"))
        head = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), len(parts) - 1)
        if ".." in parts[max(head, 0) :]:
            raise ConfigError(f"`{pattern}` has `..` behind a wildcard, or at its end")
        if not is_absolute and ".." not in parts:
            return cls(root or "~", "/".join(parts) or ".")
        start = "/" if pattern.startswith("/") else "" if is_absolute else (root or "~")
        return cls(posixpath.join(start, *parts[:head]) or "/", "/".join(parts[head:]) or ".")

    def includes(self, name: str) -> bool:
        """Whether a file of that name is what the pattern means."""
        # bytes, as on the host: there `?` is one byte
        names = _bytes(name).split(b"/")
        parts = [part for part in _bytes(self.glob).split(b"/") if part != b"."]
        matched = _skip_any(parts, {0})  # how many parts of the pattern the names so far match
        for part in names:
            if len(parts) in matched:
                return True  # a folder above matches: all in it is meant
            after = set()
            for position in matched:
                if parts[position] == b"**":
                    after |= set() if part.startswith(b".") else {position}
                elif _part_matches(parts[position], part):
                    after.add(position + 1)
            matched = _skip_any(parts, after)
        return len(parts) in matched


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _skip_any(parts: Sequence[bytes], positions: set[int]) -> set[int]:
    """Return positions in a pattern, with those behind a `**`, which may match no folder."""
    for position in sorted(positions):
        behind = position
        while behind < len(parts) and parts[behind] == b"**":
            behind += 1
            positions.add(behind)
    return positions


def _part_matches(pattern: bytes, name: bytes) -> bool:
    is_hidden = name.startswith(b".") and not pattern.startswith(b".")
    return not is_hidden and fnmatchcase(name, pattern)


def read(
    rows: Iterable[Any], patterns: Sequence[RemotePattern], notes: list[str]
) -> list[RemoteFile]:
    """Return the files of a list that a pattern means and whose names are valid and unique here.

    The others are noted. Raises ValueError, TypeError, LookupError for what is no list of files.
    """
    taken: dict[str, str] = {}
    files = []
    for row in rows:
        file = RemoteFile(str(row[1]), str(row[2]), int(row[3]), int(row[4]))
        name = file.name.lower() if _IGNORES_CASE else file.name
        problem = _problem(file, patterns[row[0]])
        if problem is None and name in taken:
            problem = f"has the same local name as {printable(taken[name])}"
        if problem is None:
            taken[name] = file.path
            files.append(file)
        else:
            notes.append(f"{file.shown}: {problem}: not fetched")
    return files


def _problem(file: RemoteFile, pattern: RemotePattern) -> str | None:
    """Return why a file of the host's list is not fetched; None for a file that is."""
    parts = file.name.split("/")
    if not _is_valid(parts) or not 0 <= file.size < _MAX_SIZE:
        return "not a valid file name on this machine"
    if not pattern.includes(file.name):
        return f"not what was asked for, which is `{printable(pattern.glob)}`"
    has_controls = (
        "\n" in file.name or "\t" in file.name or without_controls(file.name) != file.name
    )
    if has_controls and file.name != pattern.glob:
        return "has control characters: name it to fetch it"
    if _PART.fullmatch(parts[-1]):
        return "a part of an interrupted transfer"
    return None


def _is_valid(parts: Sequence[str]) -> bool:
    try:
        sizes = [len(_bytes(part)) for part in parts]
    except UnicodeEncodeError:  # half an emoji, which no file name of Linux can hold
        return False
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return False
    if max(sizes) > _MAX_NAME or sum(sizes) + len(sizes) > _MAX_PATH:
        return False
    return os.name != "nt" or not any(_WINDOWS_UNSAFE.search(part) for part in parts)
