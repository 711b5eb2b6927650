"""Finds the folders that a file adds to `sys.path`, where its text shows them."""

# ruff: noqa: PLC0415 - ast is imported only if there is a program to read

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

MARKS = (b"sys.path", b"addsitedir", b"import path")  # a file without these leaves the path as is
_CHANGES = re.compile(r"(?:sys\.)?path\.(?:insert|append|extend)|site\.addsitedir|addsitedir")
_IDENTITY_CALLS = frozenset(
    {"abspath", "realpath", "normpath", "resolve", "absolute", "str", "fspath"}
)
_DEPTH = 40


class PathAddition(NamedTuple):
    """One change of `sys.path`: the folder, or None if it cannot be determined; and the line.

    `is_last`: the folder comes after all others, so it replaces no module that they have.
    """

    folder: str | None
    line: int
    is_last: bool = False


def additions(tree: ast.Module, file: str, cwd: str | None) -> Iterator[PathAddition]:
    """Yield a file's additions to `sys.path`. `cwd`: the job's working folder on this machine."""
    import ast

    values = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    reader = _PathEvaluator(file, cwd, values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _CHANGES.fullmatch(reader.dotted(node.func)):
            folders = node.args[-1:]
            if getattr(node.func, "attr", "") == "extend":
                folders = getattr(folders[0], "elts", folders) if folders else []
            is_last = getattr(node.func, "attr", "") == "append"
            for folder in folders:
                yield PathAddition(reader.evaluate(folder, _DEPTH), node.lineno, is_last)
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            # of an item or a slice: the object that has it
            objects = (t.value if isinstance(t, ast.Subscript) else t for t in targets)
            if any(reader.dotted(target) == "sys.path" for target in objects):
                yield PathAddition(None, node.lineno)


class _PathEvaluator:
    """Evaluates path expressions made of `__file__`, literals and the usual functions."""

    def __init__(self, file: str, cwd: str | None, values: dict[str, ast.expr]) -> None:
        self.file = os.path.abspath(file)
        self.cwd = cwd
        self.values = values

    def dotted(self, node: ast.AST) -> str:
        """Return the dotted name `a.b.c`, or an empty string."""
        parts: list[str] = []
        while hasattr(node, "attr"):
            parts.append(node.attr)
            node = node.value  # type: ignore[attr-defined]
        name = getattr(node, "id", None)
        return ".".join((name, *reversed(parts))) if name else ""

    def evaluate(self, node: ast.AST, depth: int) -> str | None:  # noqa: PLR0911 - one for each kind of expression
        """Return the path that an expression evaluates to, or None; `depth` limits its nesting."""
        import ast

        if depth == 0:
            return None
        if isinstance(node, ast.Constant):
            return self._literal(node.value)
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return self.file
            value = self.values.get(node.id)
            return None if value is None else self.evaluate(value, depth - 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Add)):
            return self._evaluate_join(node, depth)
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            return _ancestor(self.evaluate(node.value, depth - 1), 1)
        if isinstance(node, ast.Subscript):
            return self._evaluate_parents(node, depth)
        return self._evaluate_call(node, depth) if isinstance(node, ast.Call) else None

    def _literal(self, value: object) -> str | None:
        if not isinstance(value, str) or "\0" in value:
            return None
        if os.path.isabs(value):
            return os.path.normpath(value)
        return None if self.cwd is None else os.path.normpath(os.path.join(self.cwd, value))

    def _text(self, node: ast.AST) -> str | None:
        value = getattr(node, "value", None)
        return value if isinstance(value, str) and "\0" not in value else None

    def _evaluate_join(self, node: ast.BinOp, depth: int) -> str | None:
        import ast

        left, right = self.evaluate(node.left, depth - 1), self._text(node.right)
        if left is None or right is None:
            return None
        path = left + right if isinstance(node.op, ast.Add) else os.path.join(left, right)
        return os.path.normpath(path)

    def _evaluate_parents(self, node: ast.Subscript, depth: int) -> str | None:
        if getattr(node.value, "attr", "") != "parents":
            return None
        count = getattr(node.slice, "value", None)
        if not isinstance(count, int) or not 0 <= count < _DEPTH:
            return None
        return _ancestor(self.evaluate(node.value.value, depth - 1), count + 1)  # type: ignore[attr-defined]

    def _evaluate_call(self, node: ast.Call, depth: int) -> str | None:
        name = self.dotted(node.func).rsplit(".", 1)[-1] or getattr(node.func, "attr", "")
        first = node.args[0] if node.args else getattr(node.func, "value", None)
        if name in ("getcwd", "cwd"):
            return self.cwd
        if first is None:
            return None
        if name in _IDENTITY_CALLS or name in ("Path", "PurePath"):
            return self.evaluate(first, depth - 1)
        if name == "dirname":
            return _ancestor(self.evaluate(first, depth - 1), 1)
        if name in ("join", "joinpath"):
            return self._join_call(node, name, depth)
        return None

    def _join_call(self, node: ast.Call, name: str, depth: int) -> str | None:
        arguments = list(node.args)
        base = getattr(node.func, "value", None)
        if name == "join" and arguments:
            base = arguments.pop(0)
        start = None if base is None else self.evaluate(base, depth - 1)
        if start is None:
            return None
        parts = []
        for word in arguments:
            part = self._text(word)
            if part is None:
                part = {"pardir": "..", "curdir": "."}.get(getattr(word, "attr", ""))
            if part is None:
                return None
            parts.append(part)
        return os.path.normpath(os.path.join(start, *parts))


def _ancestor(path: str | None, levels: int) -> str | None:
    for _ in range(levels):
        path = None if path is None else os.path.dirname(path)
    return path
