"""Evaluates the numeric expressions of rules. No calls except min, max and len, no powers.

The syntax is Python's, parsed by `ast`. `and` and `or` short-circuit as in Python.
"""

# ruff: noqa: PLC0415 - ast is imported only when the rules are evaluated

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Number = int | float
Value = Number | tuple[str, ...]

_MAX_LENGTH = 400  # characters of an expression
_MAX_NUMBER = 10**30  # of a number: a product of four batch sizes stays far below it


class NoValue(Exception):  # noqa: N818 - not an error: the rule is skipped
    """An expression has no value: an unknown name, a division by zero, a number too large."""


class BadExpression(ValueError):  # noqa: N818 - the name says that it is an error
    """The text is not an expression that a rule may contain."""


def names_in(text: str) -> frozenset[str]:
    """Return the names that an expression reads. Raises BadExpression."""
    import ast

    nodes = list(ast.walk(_tree(text)))
    calls = {node.func for node in nodes if isinstance(node, ast.Call)}
    return frozenset(n.id for n in nodes if isinstance(n, ast.Name) and n not in calls)


def value_of(text: str, names: Mapping[str, Value]) -> Value:
    """Return the value of an expression. Raises NoValue, or BadExpression for invalid text."""
    value: Value = _value(_tree(text).body, names)
    return value


@functools.cache
def _tree(text: str) -> Any:
    """Return the syntax tree of a text that contains only allowed elements."""
    import ast

    if len(text) > _MAX_LENGTH:
        raise BadExpression(f"an expression of {len(text)} characters; at most {_MAX_LENGTH}")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise BadExpression(f"`{text}` is not an expression: {e}") from e
    for node in ast.walk(tree):
        if type(node).__name__ not in _ALLOWED:
            raise BadExpression(f"`{text}`: {type(node).__name__} is not allowed")
        if isinstance(node, ast.Constant) and type(node.value) not in (int, float):
            raise BadExpression(f"`{text}`: only numbers are allowed as constants")
        if isinstance(node, ast.Call) and not _is_known_call(node):
            raise BadExpression(f"`{text}`: only min, max and len may be called")
    return tree


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "Eq": operator.eq, "NotEq": operator.ne,
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
}  # fmt: skip
_ALLOWED = frozenset((
    *_OPERATORS, "Expression", "Name", "Load", "Constant", "BinOp", "UnaryOp", "USub", "Not",
    "BoolOp", "And", "Or", "Compare", "Call",
))  # fmt: skip


def _is_known_call(node: Any) -> bool:
    name = getattr(node.func, "id", None)
    if name == "len":
        return len(node.args) == 1 and not node.keywords and hasattr(node.args[0], "id")
    return name in ("min", "max") and len(node.args) > 1 and not node.keywords


def _value(node: Any, names: Mapping[str, Value]) -> Any:
    kind = type(node).__name__
    if kind == "Constant":
        return node.value
    if kind == "Name":
        if node.id not in names:
            raise NoValue(node.id)
        return names[node.id]
    return _EVALUATORS[kind](node, names)


def _number(node: Any, names: Mapping[str, Value]) -> Number:
    value: Value = _value(node, names)
    if isinstance(value, tuple):
        raise NoValue("a list is not a number")
    return value


def _binary(node: Any, names: Mapping[str, Value]) -> Number:
    left, right = _number(node.left, names), _number(node.right, names)
    number = _apply(type(node.op).__name__, left, right)
    if not -_MAX_NUMBER < number < _MAX_NUMBER:  # also true for nan
        raise NoValue("a number too large")
    return number


def _apply(name: str, left: Number, right: Number) -> Number:
    try:
        result: Number = _OPERATORS[name](left, right)
    except (ZeroDivisionError, OverflowError) as e:
        raise NoValue(str(e)) from None
    return result


def _unary(node: Any, names: Mapping[str, Value]) -> Number:
    value = _number(node.operand, names)
    return not value if type(node.op).__name__ == "Not" else -value


def _boolean(node: Any, names: Mapping[str, Value]) -> bool:
    operands = (bool(_number(operand, names)) for operand in node.values)
    return any(operands) if type(node.op).__name__ == "Or" else all(operands)


def _compare(node: Any, names: Mapping[str, Value]) -> bool:
    left = _number(node.left, names)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = _number(comparator, names)
        if not _apply(type(op).__name__, left, right):
            return False
        left = right
    return True


def _call(node: Any, names: Mapping[str, Value]) -> Number:
    if node.func.id == "len":
        value = _value(node.args[0], names)
        return len(value) if isinstance(value, tuple) else 1
    numbers = [_number(argument, names) for argument in node.args]
    return min(numbers) if node.func.id == "min" else max(numbers)


_EVALUATORS: dict[str, Callable[[Any, Mapping[str, Value]], Any]] = {
    "BinOp": _binary,
    "UnaryOp": _unary,
    "BoolOp": _boolean,
    "Compare": _compare,
    "Call": _call,
}
