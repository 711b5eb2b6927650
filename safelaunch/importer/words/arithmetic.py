"""Arithmetic of bash: 64 bits, values of variables that are numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.importer.findings import Unresolved
from safelaunch.importer.state import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.importer.state import State
    from safelaunch.importer.syntax import SyntaxNode


def _quotient(x: int, y: int) -> int:
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


_COMPARISONS: dict[str, Callable[[int, int], int]] = {
    "==": lambda x, y: x == y, "!=": lambda x, y: x != y, "<": lambda x, y: x < y,
    ">": lambda x, y: x > y, "<=": lambda x, y: x <= y, ">=": lambda x, y: x >= y,
}  # fmt: skip
_OPERATORS: dict[str, Callable[[int, int], int]] = {
    **_COMPARISONS,
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y,
    "/": _quotient, "%": lambda x, y: x - _quotient(x, y) * y,
    "&": lambda x, y: x & y, "|": lambda x, y: x | y, "^": lambda x, y: x ^ y,
    ",": lambda _, y: y,
}  # fmt: skip
_MAX_POWER = 63
_MOST_DIGITS = 1000


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def number(text: str) -> int | None:
    """Return the value of a number in C's spelling; None for any other text."""
    text = text.strip()
    if not text:
        return 0
    match = re.fullmatch(r"([+-]?)(?:(0[xX][0-9a-fA-F]+)|(0[0-7]*)|([1-9]\d*))", text)
    if len(text) > _MOST_DIGITS:
        return None
    if match is None:
        return None
    digits, base = (match[2], 16) if match[2] else (match[3], 8) if match[3] else (match[4], 10)
    return _wrapped(int(match[1] + digits, base))


def evaluate(node: SyntaxNode, state: State, text: Callable[[SyntaxNode], str]) -> int:
    """Return the value of an expression; `text` expands its words. Raises Unresolved."""
    return _wrapped(_KINDS[node.kind or "Word"](node, state, text))


def _operand(node: SyntaxNode, field: str) -> SyntaxNode:
    operand = node.child(field)
    if operand is None:
        raise Unresolved("an arithmetic expression that is not complete", node.line)
    return operand


def _word(node: SyntaxNode, state: State, text: Callable[[SyntaxNode], str]) -> int:
    if "\\" in (node.literal or ""):
        raise state.fail("a backslash in an arithmetic expression")
    return _value(text(node).strip(), state, set())


def _value(text: str, state: State, names: set[str]) -> int:
    value = number(text)
    if value is None and NAME.fullmatch(text) and text not in names:
        content = state.text(text)
        return 0 if content is None else _value(content.strip(), state, {*names, text})
    if value is None:
        raise state.fail(f"`{text}` in an arithmetic expression")
    return value


def _unary(node: SyntaxNode, state: State, text: Callable[[SyntaxNode], str]) -> int:
    operator, operand = node.text("Op"), _operand(node, "X")
    value = evaluate(operand, state, text)
    if operator in ("++", "--"):
        changed = value + (1 if operator == "++" else -1)
        _assign(operand, changed, state)
        return value if node.has("Post") else changed
    results = {"!": int(not value), "~": ~value, "-": -value, "+": value}
    if operator not in results:
        raise state.fail(f"`{operator}` in an arithmetic expression")
    return results[operator]


def _assign(target: SyntaxNode, value: int, state: State) -> None:
    name = target.literal
    if name is None or not NAME.fullmatch(name):
        raise state.fail("an assignment to an element in an arithmetic expression")
    state.assign(name, str(_wrapped(value)))


def _binary(node: SyntaxNode, state: State, text: Callable[[SyntaxNode], str]) -> int:
    operator, left, right = node.text("Op"), _operand(node, "X"), _operand(node, "Y")
    if operator == "=":
        value = evaluate(right, state, text)
        _assign(left, value, state)
        return value
    x = evaluate(left, state, text)
    if operator in ("&&", "||"):
        if bool(x) == (operator == "||"):
            return int(bool(x))
        return int(bool(evaluate(right, state, text)))
    if operator == "?":
        return evaluate(_operand(right, "X" if x else "Y"), state, text)
    is_assignment = operator.endswith("=") and operator not in _COMPARISONS
    y = evaluate(right, state, text)
    value = _apply(operator[:-1] if is_assignment else operator, x, y, state)
    if is_assignment:
        _assign(left, value, state)
    return value


def _apply(operator: str, x: int, y: int, state: State) -> int:
    if operator in ("/", "%") and y == 0:
        raise state.fail("a division by zero")
    if operator == "**" and 0 <= y <= _MAX_POWER:
        return int(x**y)
    if operator in ("<<", ">>") and 0 <= y <= _MAX_POWER:
        return x << y if operator == "<<" else x >> y
    if operator not in _OPERATORS:
        raise state.fail(f"`{operator}` in an arithmetic expression")
    return _OPERATORS[operator](x, y)


def _parentheses(node: SyntaxNode, state: State, text: Callable[[SyntaxNode], str]) -> int:
    return evaluate(_operand(node, "X"), state, text)


_KINDS: dict[str, Callable[[SyntaxNode, State, Callable[[SyntaxNode], str]], int]] = {
    "Word": _word,
    "UnaryArithm": _unary,
    "BinaryArithm": _binary,
    "ParenArithm": _parentheses,
}
