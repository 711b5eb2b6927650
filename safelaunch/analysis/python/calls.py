"""What calls and functions say to each other: arguments, parameters, variables, what comes back."""

from __future__ import annotations

import ast

from safelaunch.analysis.python.names import Function, Module, Scope
from safelaunch.analysis.python.statements import main_guard


def default(node: Function, param: str) -> ast.expr | None:
    """Return the default of a parameter; None where it has none, or is none."""
    args = node.args
    ordered = [*args.posonlyargs, *args.args]
    pairs = [
        *zip(reversed(ordered), reversed(args.defaults), strict=False),
        *zip(args.kwonlyargs, args.kw_defaults, strict=True),
    ]
    return next((value for arg, value in pairs if arg.arg == param), None)


def returns(module: Module, node: Function) -> list[ast.expr]:
    """Return what a function gives back."""
    found = (n for n in ast.walk(node) if isinstance(n, ast.Return) and n.value is not None)
    return [n.value for n in found if module.scope(n) is node and n.value is not None]


def stores(module: Module, scope: Scope, name: str) -> list[ast.Name]:
    """Return where a variable of a scope gets its value."""
    return [
        node
        for node in module.named.get(name, [])
        if not isinstance(node.ctx, ast.Load) and module.owner(node) is scope
    ]


def takes(call: ast.expr, name: str) -> bool:
    """Whether a call gets a variable."""
    if not isinstance(call, ast.Call):
        return False
    given = (*call.args, *(word.value for word in call.keywords))
    return any(isinstance(value, ast.Name) and value.id == name for value in given)


def parameter(call: ast.Call, node: Function, value: ast.expr) -> str | None:
    """Return the parameter that gets a value in a call."""
    params = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
    for at, given in enumerate(call.args):
        if isinstance(given, ast.Starred):
            return None
        if given is value:
            return params[at] if at < len(params) else None
    return next((word.arg for word in call.keywords if word.value is value), None)


def given(call: ast.Call, node: Function, param: str) -> ast.expr | None:
    """Return what a call gives for a parameter, or None if there is no such parameter."""
    for value in (*call.args, *(word.value for word in call.keywords)):
        if parameter(call, node, value) == param:
            return value
    return None


def is_certain(module: Module, node: ast.AST, scope: Scope) -> bool:
    """Whether a node runs whenever its scope does."""
    below, above = node, module.parents.get(node)
    while above is not None and below is not scope:
        if isinstance(above, ast.If) and below is not above.test and main_guard(above) is None:
            return False
        if isinstance(above, ast.For | ast.While | ast.Match | ast.ExceptHandler | ast.Lambda):
            return False
        if isinstance(above, Function) and above is not scope:
            return False
        below, above = above, module.parents.get(above)
    return True
