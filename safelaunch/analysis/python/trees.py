"""Parses Python files into syntax trees, each file once. No file makes it raise."""

# ruff: noqa: PLC0415 - ast is imported only if there is a program to read

from __future__ import annotations

import os
import re
import stat
import warnings
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable

MAX_BYTES = 2 << 20  # a longer file is data; parsing it would take seconds

# A function or class at the left margin, to the next line there that does not close a bracket.
_BLOCK = re.compile(
    rb"^(?:async[ \t]+)?(?:def|class)[ \t].*\n(?:(?:[ \t)\]}#].*|\r?)\n)*", re.MULTILINE
)
# A function at any depth, to the next line that is not deeper and closes no bracket.
_FUNCTION = re.compile(
    rb"^([ \t]*)(?:async[ \t]+)?def[ \t]+(\w+).*\n(?:(?:\1[ \t)\]}#].*|[ \t]*\r?)\n)*", re.MULTILINE
)
_IMPORT_MARKS = (b"import", b"sys.path", b"addsitedir")

# `warnings` keeps its filters for the whole process: two threads that both silence them could
# leave them silenced.
_WARNINGS_LOCK = Lock()


class SourceLine(NamedTuple):
    """A line of a file; line numbers start at 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class UnreadFile(NamedTuple):
    """A file that could not be read or parsed: its location and a short reason.

    Syntax is that of the Python that runs safelaunch, not of the one that runs the job.
    """

    location: SourceLine
    why: str


class Trees:
    """Reads and parses files, and caches the results for all checks."""

    def __init__(self) -> None:
        self._data: dict[str, bytes | None] = {}
        self._trees: dict[str, ast.Module | None] = {}
        self._outlines: dict[str, ast.Module | None] = {}
        self._declarations: dict[str, ast.Module | None] = {}
        self.unread: dict[str, UnreadFile] = {}

    def data(self, path: str) -> bytes | None:
        """Return a file's bytes, or None if it is not a regular file, unreadable or too long."""
        if path not in self._data:
            self._data[path] = self._read(path)
        return self._data[path]

    def text(self, path: str) -> str:
        """Return a file's text; bytes that are not UTF-8 become lone surrogates."""
        return (self.data(path) or b"").decode("utf-8", "surrogateescape")

    def tree(self, path: str) -> ast.Module | None:
        """Return a file's syntax tree, or None with the reason in `unread`."""
        if path not in self._trees:
            data = self.data(path)
            self._trees[path] = None if data is None else self._parse(path, data)
        return self._trees[path]

    def outline(self, path: str) -> ast.Module | None:
        """Return a syntax tree with everything that affects imports, at unchanged line numbers.

        Functions and classes without imports are replaced by stubs, which saves most of the time.
        """
        if path in self._trees:
            return self._trees[path]
        if path not in self._outlines:
            self._outlines[path] = self._with_stubs(path, _BLOCK, _stub_block)
        return self._outlines[path]

    def declarations(self, path: str) -> ast.Module | None:
        """Return a syntax tree with imports and what classes declare, at unchanged line numbers.

        All functions are stubs. transformers' training_args.py: 6 ms instead of 20.
        """
        if path not in self._declarations:
            self._declarations[path] = self._with_stubs(path, _FUNCTION, _stub_function)
        return self._declarations[path]

    def _with_stubs(
        self,
        path: str,
        pattern: re.Pattern[bytes],
        stub: Callable[[re.Match[bytes]], bytes],
    ) -> ast.Module | None:
        data = self.data(path)
        tree = None if data is None else _parse(pattern.sub(stub, data + b"\n"))
        if isinstance(tree, Exception):  # a string or bracket continues at the left margin
            return self.tree(path)
        return tree

    def _read(self, path: str) -> bytes | None:
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                self._mark_unread(path, "not a regular file")  # reading a pipe would block for ever
            elif status.st_size > MAX_BYTES:
                self._mark_unread(path, f"longer than {MAX_BYTES >> 20} MiB")
            else:
                with open(path, "rb") as file:
                    return file.read(MAX_BYTES)
        except (OSError, ValueError) as error:
            self._mark_unread(path, getattr(error, "strerror", None) or "not readable")
        return None

    def _mark_unread(self, path: str, why: str, line: int = 1) -> None:
        self.unread[path] = UnreadFile(SourceLine(path, line), why)

    def _parse(self, path: str, data: bytes) -> ast.Module | None:
        tree = _parse(data)
        if isinstance(tree, SyntaxError):
            self._mark_unread(path, f"syntax: {tree.msg}", tree.lineno or 1)
        elif isinstance(tree, Exception):
            self._mark_unread(path, "not parsed")
        else:
            return tree
        return None


def _parse(data: bytes) -> ast.Module | Exception:
    import ast

    try:
        with _WARNINGS_LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as those about `"\d"` in project code
            return ast.parse(data)
    # NUL bytes; an unknown encoding; nesting too deep for the parser
    except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError, SystemError) as e:
        return e


def _stub_block(block: re.Match[bytes]) -> bytes:
    """Return a stub for a block, or the block itself if it imports or an open string may follow."""
    data = block[0]
    if _has_open_string(data) or any(word in data for word in _IMPORT_MARKS):
        return data
    return b"def _(): 0" + b"\n" * data.count(b"\n")


def _stub_function(block: re.Match[bytes]) -> bytes:
    """Return a stub of the same name for a function, or the function if an open string follows."""
    data = block[0]
    if _has_open_string(data):
        return data
    return block[1] + b"def " + block[2] + b"(): 0" + b"\n" * data.count(b"\n")


def _has_open_string(data: bytes) -> bool:
    return bool(data.count(b'"""') % 2 or data.count(b"'''") % 2)


class Unclear(Exception):  # noqa: N818 - not an error: the text leaves it open
    """The options of a script cannot be determined from its text; `why` is the reason."""

    def __init__(self, why: str, place: SourceLine) -> None:
        super().__init__(why)
        self.why = why
        self.location = place
