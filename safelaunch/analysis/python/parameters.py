"""The values of parameters on the way from the script's first line to its parse call."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Container, Mapping

from safelaunch.analysis.python import calls
from safelaunch.analysis.python.names import UNKNOWN, Function, Module
from safelaunch.analysis.python.trees import Unclear

Callers = Mapping[Function, tuple[Module, ast.Call]]  # {function: the call that reached it}
_MAX_DEPTH = 8


def values(
    module: Module, name: ast.Name, callers: Callers, depth: int = _MAX_DEPTH
) -> list[tuple[Module, ast.expr]]:
    """Return the expressions that a parameter may be, each in its module; None is left out.

    Raise Unclear where the name is no parameter of a function on the way.
    """
    scope = module.owner(name)
    place = module.location(name)
    if isinstance(scope, ast.Module) or scope not in callers or not depth:
        raise Unclear(f"`{name.id}` is not a parameter on the way", place)
    if calls.assignments(module, scope, name.id):
        raise Unclear(f"`{name.id}` is assigned again", place)
    caller, call = callers[scope]
    argument = calls.argument_for(call, scope, name.id)
    if argument is None:
        is_open = any(isinstance(arg, ast.Starred) for arg in call.args)
        is_open = is_open or any(keyword.arg is None for keyword in call.keywords)
        argument, caller = calls.default_value(scope, name.id), module
        if argument is None or is_open:
            raise Unclear(f"`{name.id}` is passed by `*` or `**`", place)
    expressions: list[tuple[Module, ast.expr]] = []
    for node in _branches(argument):
        if isinstance(node, ast.Name) and caller.is_local(node):
            expressions += values(caller, node, callers, depth - 1)
        elif not _is_none(node):
            expressions.append((caller, node))
    return expressions


def truth(module: Module, test: ast.expr, callers: Callers) -> bool | None:
    """Whether `x`, `not x`, `x is None` or `x is not None` holds for a parameter; None: open."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = truth(module, test.operand, callers)
        return None if inner is None else not inner
    tested, is_none = test, None
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        tested = test.left
        is_none = isinstance(test.ops[0], ast.Is)
        if not isinstance(test.ops[0], ast.Is | ast.IsNot) or not _is_none(test.comparators[0]):
            return None
    expressions = None
    if isinstance(tested, ast.Name) and module.is_local(tested):
        with contextlib.suppress(Unclear):
            expressions = values(module, tested, callers)
    if expressions is None or (is_none is not None and expressions):
        return None
    if not expressions:
        return bool(is_none)
    literals = [caller.literal(node) for caller, node in expressions]
    return None if UNKNOWN in literals or len(literals) > 1 else bool(literals[0])


def is_below(module: Module, node: ast.AST | None, statements: Container[ast.AST]) -> bool:
    """Whether a node is one of these statements, or inside one."""
    while node is not None and node not in statements:
        node = module.parents.get(node)
    return node is not None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _branches(node: ast.expr) -> list[ast.expr]:
    """Return the values of `a if x else b`."""
    if isinstance(node, ast.IfExp):
        return [*_branches(node.body), *_branches(node.orelse)]
    return [node]
