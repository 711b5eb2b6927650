"""What a file adds to `sys.path`, where that can be worked out from its text."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

MARKS = (b"sys.path", b"addsitedir", b"import path")  # a file without these adds nothing

_CHANGES = re.compile(r"(?:sys\.)?path\.(?:insert|append|extend)|site\.addsitedir|addsitedir")
_SAME = frozenset({"abspath", "realpath", "normpath", "resolve", "absolute", "str", "fspath"})
_DEPTH = 40


class Addition(NamedTuple):
    """One change of `sys.path`: the folder, or None where it is not known; and the line."""

    folder: str | None
    line: int


def additions(tree: ast.Module, file: str, cwd: str | None) -> Iterator[Addition]:
    """Yield what a file adds. `cwd`: the job's working folder, if it is on this machine."""
    import ast  # noqa: PLC0415

    values = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    reader = _Paths(file, cwd, values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _CHANGES.fullmatch(reader.dotted(node.func)):
            for word in _words(node):
                yield Addition(reader.read(word), node.lineno)
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(reader.dotted(_base(target)) == "sys.path" for target in targets):
                yield Addition(None, node.lineno)


def _base(target: ast.AST) -> ast.AST:
    """Return what is changed by an assignment to a part of it."""
    return getattr(target, "value", target) if hasattr(target, "slice") else target


def _words(call: ast.Call) -> list[ast.expr]:
    """Return the folders that a call adds, as expressions."""
    if not call.args:
        return []
    last = call.args[-1]
    is_many = getattr(call.func, "attr", "") == "extend"
    return list(getattr(last, "elts", [last])) if is_many else [last]


class _Paths:
    """Works out paths made of `__file__`, literals and the usual functions."""

    def __init__(self, file: str, cwd: str | None, values: dict[str, ast.expr]) -> None:
        self.file = os.path.abspath(file)
        self.cwd = cwd
        self.values = values

    def dotted(self, node: ast.AST) -> str:
        """Return `a.b.c` of names and attributes, or nothing."""
        parts: list[str] = []
        while hasattr(node, "attr"):
            parts.append(node.attr)
            node = node.value  # type: ignore[attr-defined]
        name = getattr(node, "id", None)
        return ".".join((name, *reversed(parts))) if name else ""

    def read(self, node: ast.AST) -> str | None:
        """Return the path that an expression gives, or None."""
        return self._read(node, _DEPTH)

    def _read(self, node: ast.AST, depth: int) -> str | None:  # noqa: PLR0911 - one for each kind of expression
        import ast  # noqa: PLC0415

        if depth == 0:
            return None
        if isinstance(node, ast.Constant):
            return self._literal(node.value)
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return self.file
            value = self.values.get(node.id)
            return None if value is None else self._read(value, depth - 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Add)):
            return self._joined(node, depth)
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            return _up(self._read(node.value, depth - 1), 1)
        if isinstance(node, ast.Subscript):
            return self._parents(node, depth)
        return self._call(node, depth) if isinstance(node, ast.Call) else None

    def _literal(self, value: object) -> str | None:
        if not isinstance(value, str) or "\0" in value:
            return None
        if os.path.isabs(value):
            return os.path.normpath(value)
        return None if self.cwd is None else os.path.normpath(os.path.join(self.cwd, value))

    def _text(self, node: ast.AST) -> str | None:
        value = getattr(node, "value", None)
        return value if isinstance(value, str) and "\0" not in value else None

    def _joined(self, node: ast.BinOp, depth: int) -> str | None:
        import ast  # noqa: PLC0415

        left, right = self._read(node.left, depth - 1), self._text(node.right)
        if left is None or right is None:
            return None
        path = left + right if isinstance(node.op, ast.Add) else os.path.join(left, right)
        return os.path.normpath(path)

    def _parents(self, node: ast.Subscript, depth: int) -> str | None:
        if getattr(node.value, "attr", "") != "parents":
            return None
        count = getattr(node.slice, "value", None)
        base = self._read(node.value.value, depth - 1)  # type: ignore[attr-defined]
        return _up(base, count + 1) if isinstance(count, int) and 0 <= count < _DEPTH else None

    def _call(self, node: ast.Call, depth: int) -> str | None:
        name = self.dotted(node.func).rsplit(".", 1)[-1] or getattr(node.func, "attr", "")
        first = node.args[0] if node.args else getattr(node.func, "value", None)
        if name in ("getcwd", "cwd"):
            return self.cwd
        if first is None:
            return None
        if name in _SAME or name in ("Path", "PurePath"):
            return self._read(first, depth - 1)
        if name == "dirname":
            return _up(self._read(first, depth - 1), 1)
        if name in ("join", "joinpath"):
            return self._join_call(node, name, depth)
        return None

    def _join_call(self, node: ast.Call, name: str, depth: int) -> str | None:
        words = list(node.args)
        base = words.pop(0) if name == "join" and words else getattr(node.func, "value", None)
        start = None if base is None else self._read(base, depth - 1)
        parts = [self._text(word) for word in words]
        named = {"pardir": "..", "curdir": "."}
        dots = [named.get(getattr(word, "attr", "")) for word in words]
        known = [part if part is not None else dot for part, dot in zip(parts, dots, strict=True)]
        if start is None or None in known:
            return None
        return os.path.normpath(os.path.join(start, *(part for part in known if part is not None)))


def _up(path: str | None, levels: int) -> str | None:
    for _ in range(levels):
        path = None if path is None else os.path.dirname(path)
    return path
