"""Paths that match a glob, as the module of that name finds them, within a time.

A link that leads back to where it came from is not followed: that module goes round until names are
too long, which takes years where a folder has two such links.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time

from safelaunch.runtime.facts import commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_SECONDS = 5.0  # before a start the machine has less


def paths(pattern: str) -> list[str]:
    """Return the paths that match a pattern from the root on, sorted. Raises Skip."""
    drive, rest = os.path.splitdrive(pattern)
    words = [word for word in rest.replace(os.sep, "/").split("/") if word]
    words = [w for n, w in enumerate(words) if w != "**" or words[n + 1 : n + 2] != ["**"]]
    root, until = (
        drive + (os.sep if rest[:1] in ("/", os.sep) else ""),
        time.monotonic() + _MAX_SECONDS,
    )
    return sorted(set(_matches(root, words, (), until))) if words else [pattern]


def _matches(
    folder: str, words: list[str], above: tuple[tuple[int, int], ...], until: float
) -> Iterator[str]:
    """Yield what matches in a folder; `above` are those that a `**` came through."""
    if time.monotonic() > until:
        raise commands.Skip(f"the search took longer than {_MAX_SECONDS:g} s")
    word, rest = words[0], words[1:]
    if word == "**":
        yield from _anywhere(folder, words, above, until)
        return
    if not any(sign in word for sign in "*?["):
        path = os.path.join(folder, word)
        if rest:
            yield from _matches(path, rest, (), until)
        elif os.path.lexists(path):
            yield path
        return
    fits = re.compile(fnmatch.translate(word)).match
    for name in commands.folders(folder):
        if fits(os.path.normcase(name)) and (name[0] != "." or word[0] == "."):
            path = os.path.join(folder, name)
            if not rest:
                yield path
            elif os.path.isdir(path):
                yield from _matches(path, rest, (), until)


def _anywhere(
    folder: str, words: list[str], above: tuple[tuple[int, int], ...], until: float
) -> Iterator[str]:
    """Yield what matches in a folder and in all folders below it: `**`."""
    try:
        about = os.stat(folder or ".")
        entries = list(os.scandir(folder or "."))
    except OSError:
        return
    if (about.st_dev, about.st_ino) in above:
        return  # a link has led back
    rest = words[1:]
    if rest:
        yield from _matches(folder, rest, (), until)
    elif os.path.isdir(folder):
        yield folder
    for entry in entries:
        if entry.name[0] == ".":
            continue
        if _is_folder(entry):
            yield from _matches(entry.path, words, (*above, (about.st_dev, about.st_ino)), until)
        elif not rest:
            yield entry.path


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads round in circles
        return False
