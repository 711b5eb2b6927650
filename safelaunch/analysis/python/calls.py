"""Matches calls with function definitions: arguments, parameters, variables, return values."""

from __future__ import annotations

import ast

from safelaunch.analysis.python.names import Function, Module, Scope
from safelaunch.analysis.python.statements import main_guard


def default_value(node: Function, param: str) -> ast.expr | None:
    """Return the default of a parameter; None if it has no default or does not exist."""
    args = node.args
    ordered = [*args.posonlyargs, *args.args]
    pairs = [
        *zip(reversed(ordered), reversed(args.defaults), strict=False),
        *zip(args.kwonlyargs, args.kw_defaults, strict=True),
    ]
    return next((value for arg, value in pairs if arg.arg == param), None)


def returned_values(module: Module, node: Function) -> list[ast.expr]:
    """Return the expressions that a function returns."""
    returns = (n for n in ast.walk(node) if isinstance(n, ast.Return) and module.scope(n) is node)
    return [statement.value for statement in returns if statement.value is not None]


def assignments(module: Module, scope: Scope, name: str) -> list[ast.Name]:
    """Return the nodes that assign to a variable of a scope."""
    return [
        node
        for node in module.names_by_id.get(name, [])
        if not isinstance(node.ctx, ast.Load) and module.owner(node) is scope
    ]


def receives(call: ast.expr, name: str) -> bool:
    """Whether a variable is an argument of a call."""
    if not isinstance(call, ast.Call):
        return False
    arguments = (*call.args, *(keyword.value for keyword in call.keywords))
    return any(isinstance(value, ast.Name) and value.id == name for value in arguments)


def parameter_for(call: ast.Call, node: Function, value: ast.expr) -> str | None:
    """Return the name of the parameter that receives an argument of a call."""
    params = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
    for index, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            return None
        if argument is value:
            return params[index] if index < len(params) else None
    return next((keyword.arg for keyword in call.keywords if keyword.value is value), None)


def argument_for(call: ast.Call, node: Function, param: str) -> ast.expr | None:
    """Return the argument that a call passes for a parameter, or None."""
    for value in (*call.args, *(keyword.value for keyword in call.keywords)):
        if parameter_for(call, node, value) == param:
            return value
    return None


def runs_unconditionally(module: Module, node: ast.AST, scope: Scope) -> bool:
    """Whether a node runs every time that its scope runs."""
    child, parent = node, module.parents.get(node)
    while parent is not None and child is not scope:
        if isinstance(parent, ast.If) and child is not parent.test and main_guard(parent) is None:
            return False
        if isinstance(parent, ast.For | ast.While | ast.Match | ast.ExceptHandler | ast.Lambda):
            return False
        if isinstance(parent, Function) and parent is not scope:
            return False
        child, parent = parent, module.parents.get(parent)
    return True


def is_unreachable(module: Module, node: ast.AST, scope: Scope, call: ast.Call) -> bool:
    """Whether a node is below `if x is not None` where a call leaves the parameter x at None."""
    has_all = any(isinstance(argument, ast.Starred) for argument in call.args)
    if isinstance(scope, ast.Module) or has_all or any(k.arg is None for k in call.keywords):
        return False
    child, parent = node, module.parents.get(node)
    while parent is not None and child is not scope:
        test = parent.test if isinstance(parent, ast.If) else None
        if isinstance(parent, ast.If) and isinstance(test, ast.Compare) and len(test.ops) == 1:
            is_none, is_body = isinstance(test.ops[0], ast.Is), child in parent.body
            is_test = (is_none or isinstance(test.ops[0], ast.IsNot)) and child is not test
            if is_test and is_none is not is_body and _stays_none(module, test, scope, call):
                return True
        child, parent = parent, module.parents.get(parent)
    return False


def _stays_none(module: Module, test: ast.Compare, scope: Function, call: ast.Call) -> bool:
    """Whether a test compares a parameter with None that has None for its value."""
    name, other = test.left, test.comparators[0]
    return (
        isinstance(name, ast.Name)
        and module.literal(other) is None
        and module.literal(default_value(scope, name.id)) is None
        and argument_for(call, scope, name.id) is None
        and not assignments(module, scope, name.id)
    )
