"""Reads the parameters of a function, or of the `__init__` that a class has or inherits."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.option_model import BOOL, FLOAT, INT
from safelaunch.analysis.python.names import Definition, Function, Module

if TYPE_CHECKING:
    from safelaunch.analysis.python.names import Modules
    from safelaunch.analysis.python.trees import SourceLine

TEXT = "str"
_SCALARS = {"int": INT, "float": FLOAT, "bool": BOOL, "str": TEXT}
_MAX_BASES = 8
# the decorator of Trainer.__init__, which keeps the parameters
_HARMLESS_DECORATORS = frozenset({"_defaults_from_env_vars"})


class TypedParameter(NamedTuple):
    """A parameter. `value_type` is empty where its type is no plain one.

    `spellings`: the options that set it, with their dashes; none where its dotted key is the only
    one. The numbers of values are None where they are not known, the maximum also for no limit.
    """

    name: str
    location: SourceLine
    value_type: str = ""
    accepts_none: bool = False
    has_default: bool = True
    is_keyword_only: bool = False
    spellings: tuple[str, ...] = ()
    min_values: int | None = 1
    max_values: int | None = 1
    choices: tuple[str, ...] = ()


class CallSignature(NamedTuple):
    """The parameters that a callable takes; with `is_open` there may be more."""

    parameters: tuple[TypedParameter, ...] = ()
    is_open: bool = False


OPEN = CallSignature(is_open=True)


def of_node(modules: Modules, module: Module, node: ast.expr) -> CallSignature:
    """Return the signature of what an expression names; an open one where that is not certain."""
    definition = modules.resolve(module, node)
    if definition is None:
        definition = full_definition(modules, modules.resolve_class(module, node))
    return OPEN if definition is None else of_definition(modules, definition)


def of_definition(
    modules: Modules, definition: Definition, depth: int = _MAX_BASES
) -> CallSignature:
    """Return the signature of a function or class."""
    module, node = definition
    if isinstance(node, Function):
        return OPEN if node.decorator_list else _of_function(module, node)
    if node.decorator_list or node.keywords or not depth:
        return OPEN
    members = [part for part in node.body if _binds(part, ("__init__", "__new__"))]
    if len(members) == 1:
        init = members[0]
        return _without_self(module, init) if isinstance(init, ast.FunctionDef) else OPEN
    if members or len(node.bases) != 1:
        return OPEN
    parent = modules.resolve(module, node.bases[0])
    return OPEN if parent is None else of_definition(modules, parent, depth - 1)


def of_method(definition: Definition, name: str) -> CallSignature:
    """Return the signature of a method that a class itself has."""
    members = [part for part in definition.node.body if _binds(part, (name,))]
    if len(members) != 1 or not isinstance(members[0], ast.FunctionDef):
        return OPEN
    return _without_self(definition.module, members[0])


def full_definition(modules: Modules, definition: Definition | None) -> Definition | None:
    """Return a class of a library with its functions, which are left out at first."""
    tree = None if definition is None else modules.trees.tree(definition.module.path)
    if definition is None or tree is None:
        return None
    module = Module(definition.module.path, tree, is_shallow=True)
    node = module.top_level(definition.node.name)
    return None if node is None else Definition(module, node)


def _without_self(module: Module, node: ast.FunctionDef) -> CallSignature:
    names = {module.dotted(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    if node.name == "__new__" or not names <= _HARMLESS_DECORATORS:
        return OPEN
    signature = _of_function(module, node)
    return signature._replace(parameters=signature.parameters[1:])


def _of_function(module: Module, node: Function) -> CallSignature:
    args = node.args
    ordered = [*args.posonlyargs, *args.args]
    missing: list[ast.expr | None] = [None] * (len(ordered) - len(args.defaults))
    pairs = [*zip(ordered, [*missing, *args.defaults], strict=True)]
    pairs += zip(args.kwonlyargs, args.kw_defaults, strict=True)
    parameters = []
    for arg, default in pairs:
        value_type, accepts_none = _plain_type(module, arg.annotation)
        accepts_none |= isinstance(default, ast.Constant) and default.value is None
        place = module.location(arg)
        is_keyword_only = arg in args.kwonlyargs
        has_default = default is not None
        parameters.append(
            TypedParameter(arg.arg, place, value_type, accepts_none, has_default, is_keyword_only)
        )
    is_open = args.vararg is not None or args.kwarg is not None or bool(args.posonlyargs)
    return CallSignature(tuple(parameters), is_open)


def _plain_type(module: Module, node: ast.expr | None) -> tuple[str, bool]:
    """Return a scalar type, and whether it may be None as well; an empty one for any other."""
    members = [] if node is None else [node]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        members = [node.left, node.right]
    elif isinstance(node, ast.Subscript):
        kind = module.dotted(node.value).rpartition(".")[2]
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        members = parts if kind in ("Optional", "Union") else []
        if kind == "Optional":
            members = [*parts, ast.Constant(None)]
    plain = [m for m in members if not (isinstance(m, ast.Constant) and m.value is None)]
    if len(plain) != 1:
        return "", False
    return _SCALARS.get(module.dotted(plain[0]), ""), len(plain) < len(members)


def _binds(statement: ast.stmt, names: tuple[str, ...]) -> bool:
    """Whether a statement of a class may bind one of these names."""
    if isinstance(statement, Function | ast.ClassDef):
        return statement.name in names
    return any(
        getattr(n, "name", None) in names or getattr(n, "id", None) in names
        for n in ast.walk(statement)
    )
