"""Python files as syntax trees, each read and parsed once. No file makes it raise."""

from __future__ import annotations

import os
import re
import stat
import warnings
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast

MAX_BYTES = 2 << 20  # a longer file is data; parsing it would take seconds

# A function or class at the left margin, to the next line there that does not close a bracket.
_BLOCK = re.compile(
    rb"^(?:async[ \t]+)?(?:def|class)[ \t].*\n(?:(?:[ \t)\]}#].*|\r?)\n)*", re.MULTILINE
)
_KEPT = (b"import", b"sys.path", b"addsitedir")

# `warnings` keeps its filters for the whole process: two threads that both silence them could
# leave them silenced.
_SILENCE = Lock()


class Place(NamedTuple):
    """A line of a file; lines count from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Unread(NamedTuple):
    """A file that says nothing: the place, and why in a few words.

    A syntax error is one of the Python that runs this, not of the one that runs the job.
    """

    place: Place
    why: str


class Trees:
    """Reads files for one check or several, and keeps what it has read."""

    def __init__(self) -> None:
        self._data: dict[str, bytes | None] = {}
        self._trees: dict[str, ast.Module | None] = {}
        self._outlines: dict[str, ast.Module | None] = {}
        self.unread: dict[str, Unread] = {}

    def data(self, path: str) -> bytes | None:
        """Return a file's bytes, or None for one that is no file, unreadable or too long."""
        if path not in self._data:
            self._data[path] = self._read(path)
        return self._data[path]

    def text(self, path: str) -> str:
        """Return a file's text for a search; bytes that are no UTF-8 become lone surrogates."""
        return (self.data(path) or b"").decode("utf-8", "surrogateescape")

    def tree(self, path: str) -> ast.Module | None:
        """Return a file's syntax tree, or None where `unread` says why there is none."""
        if path not in self._trees:
            data = self.data(path)
            self._trees[path] = None if data is None else self._parse(path, data)
        return self._trees[path]

    def outline(self, path: str) -> ast.Module | None:
        """Return a file's tree with all that bears on its imports, on the same lines.

        Functions and classes without any are left out unparsed, which saves most of the time.
        """
        if path in self._trees:
            return self._trees[path]
        if path not in self._outlines:
            data = self.data(path)
            tree = None if data is None else _parse(_BLOCK.sub(_without, data + b"\n"))
            if isinstance(tree, Exception):  # a string or bracket that went on at the margin
                tree = self.tree(path)
            self._outlines[path] = tree
        return self._outlines[path]

    def _read(self, path: str) -> bytes | None:
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                self._give_up(path, "no regular file")  # a pipe would wait for ever
            elif found.st_size > MAX_BYTES:
                self._give_up(path, f"longer than {MAX_BYTES >> 20} MiB")
            else:
                with open(path, "rb") as file:
                    return file.read(MAX_BYTES)
        except (OSError, ValueError) as e:
            self._give_up(path, getattr(e, "strerror", None) or "not readable")
        return None

    def _give_up(self, path: str, why: str, line: int = 1) -> None:
        self.unread[path] = Unread(Place(path, line), why)

    def _parse(self, path: str, data: bytes) -> ast.Module | None:
        tree = _parse(data)
        if isinstance(tree, SyntaxError):
            self._give_up(path, f"syntax: {tree.msg}", tree.lineno or 1)
        elif isinstance(tree, Exception):
            self._give_up(path, "not parsed")
        else:
            return tree
        return None


def _parse(data: bytes) -> ast.Module | Exception:
    import ast  # noqa: PLC0415 - only a check that reads source pays for it

    try:
        with _SILENCE, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `"\d"` in their code is not for our screen
            return ast.parse(data)
    except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError, SystemError) as e:
        return e  # NUL bytes; an unknown encoding; nesting deeper than the parser goes


def _without(block: re.Match[bytes]) -> bytes:
    """Return what stands for a block: itself where it imports, or a string may go on after it."""
    data = block[0]
    if any(word in data for word in _KEPT) or data.count(b'"""') % 2 or data.count(b"'''") % 2:
        return data
    return b"def _(): 0" + b"\n" * data.count(b"\n")


class Unclear(Exception):  # noqa: N818 - not an error: the text does not say it
    """What a script takes cannot be told from its text; the message says why."""

    def __init__(self, why: str, place: Place) -> None:
        super().__init__(why)
        self.why = why
        self.place = place
