"""Reads the options that Megatron's ArgumentGroupFactory derives from a dataclass.

Source: megatron/training/argument_utils.py of Megatron-LM d98e8a64 (2026-08-22): each field is
`--field-name`; a bool takes no value; unless its default is false, `--no-x` and `--disable-x`.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from safelaunch.analysis.option_model import FLOAT, INT, Option
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from safelaunch.analysis.python.names import Module, Modules

CLASS = "ArgumentGroupFactory"
METHOD = "build_group"
_VALUE_TYPES = {"int": INT, "float": FLOAT}
_LISTS = ("list", "List")
_MAX_BASES = 8


def factory(modules: Modules, module: Module, call: ast.Call) -> ast.Call | None:
    """Return the call that creates the factory of `FACTORY.build_group(parser)`, or None."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != METHOD:
        return None
    value: ast.AST | None = func.value
    if isinstance(value, ast.Name):
        scope, name = module.owner(value), value.id
        stores = [n for n in module.names_by_id.get(name, []) if isinstance(n.ctx, ast.Store)]
        parents = [module.parents[n] for n in stores if module.owner(n) is scope]
        value = getattr(parents[0], "value", None) if len(parents) == 1 else None
    if not isinstance(value, ast.Call):
        return None
    definition = modules.resolve(module, value.func)
    is_factory = definition is not None and definition.node.name == CLASS
    return value if is_factory else None


def options(modules: Modules, module: Module, call: ast.Call) -> list[Option]:
    """Return the options of `ArgumentGroupFactory(...)`; raise Unclear if a class is not read."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    node = call.args[0] if call.args else keywords.get("src_cfg_class")
    excluded: list[str] = []
    exclude = call.args[1] if len(call.args) > 1 else keywords.get("exclude")
    if isinstance(exclude, ast.Name):
        # a list in the function; what is added to it later is not excluded: one option more
        stores = [n for n in module.names_by_id.get(exclude.id, []) if isinstance(n.ctx, ast.Store)]
        values = [module.parents[n] for n in stores if module.owner(n) is module.owner(exclude)]
        exclude = getattr(values[0], "value", None) if len(values) == 1 else exclude
    literal = module.literal(exclude)
    if isinstance(literal, list | tuple | set):
        excluded = [name for name in literal if isinstance(name, str)]
    if node is None:
        raise Unclear("a dataclass is not in the call", module.location(call))
    fields = _fields(modules, module, node, _MAX_BASES)
    return [option for name, option in fields.items() if name not in excluded]


def _fields(modules: Modules, module: Module, node: ast.expr, depth: int) -> dict[str, Option]:
    """Return {field: option} of a dataclass, those of its bases first."""
    definition = modules.resolve(module, node)
    if definition is None or not isinstance(definition.node, ast.ClassDef) or not depth:
        shown = module.dotted(node).lstrip("?.") or "a dataclass"
        raise Unclear(f"`{shown}` is not part of the project", module.location(node))
    fields: dict[str, Option] = {}
    for base in reversed(definition.node.bases):
        if definition.module.dotted(base).rpartition(".")[2] not in ("object", "ABC", "Protocol"):
            fields.update(_fields(modules, definition.module, base, depth - 1))
    for statement in definition.node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            option = _option(definition.module, statement, statement.target.id)
            if option is not None:
                fields[statement.target.id] = option
    return fields


def _option(module: Module, field: ast.AnnAssign, name: str) -> Option | None:
    """Return the option of a field, or None for one that is no argument."""
    if "ClassVar" in ast.dump(field.annotation):
        return None
    default, meta, place = field.value, None, module.location(field)
    if isinstance(default, ast.Call) and module.dotted(default.func).rpartition(".")[2] == "field":
        keywords = {keyword.arg: keyword.value for keyword in default.keywords}
        if None in keywords:
            raise Unclear("a field is created with `**`", place)
        if module.literal(keywords.get("init")) is False:
            return None
        default, meta = keywords.get("default"), keywords.get("metadata")
    names, count, value_type = _inferred(module, field.annotation, default, name)
    if meta is None:
        return Option(name, names, place, *count, value_type)
    own = _entries(module, meta).get("argparse_meta")
    spelled = None if own is None else _entries(module, own).get("arg_names")
    if spelled is not None:
        words = module.literal(spelled)
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise Unclear("an option's name is computed at run time", place)
        names = tuple(words)
    return Option(name, names, place, None, None)


def _entries(module: Module, node: ast.expr) -> dict[Any, ast.expr]:
    """Return {key: value} of a mapping; raise Unclear if it is not written out."""
    if not isinstance(node, ast.Dict) or None in node.keys:
        raise Unclear("a field's metadata is computed at run time", module.location(node))
    pairs = zip(node.keys, node.values, strict=True)
    return {module.literal(key): value for key, value in pairs}


def _inferred(
    module: Module, annotation: ast.expr, default: ast.expr | None, name: str
) -> tuple[tuple[str, ...], tuple[int | None, int | None], str]:
    """Return the names, the number of values and their type that a field's annotation gives."""
    dashed = name.replace("_", "-")
    node = _without_none(module, annotation)
    kind = module.dotted(node.value if isinstance(node, ast.Subscript) else node)
    kind = kind.rpartition(".")[2]
    names: tuple[str, ...] = (f"--{dashed}",)
    if kind == "bool":
        value = module.literal(default) if default is not None else None
        negated = (f"--no-{dashed}", f"--disable-{dashed}")
        if value is False:
            return names, (0, 0), ""
        return (negated if value is True else (*names, *negated)), (0, 0), ""
    if kind in _LISTS:
        return names, (1, None), ""
    if isinstance(node, ast.Name | ast.Attribute) or kind == "Literal":
        return names, (1, 1), _VALUE_TYPES.get(kind, "")
    return names, (None, None), ""


def _without_none(module: Module, node: ast.expr) -> ast.expr:
    """Return X of `Optional[X]` and `X | None`."""
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
        return node.left
    is_optional = isinstance(node, ast.Subscript) and module.dotted(node.value).endswith("Optional")
    return node.slice if is_optional and isinstance(node, ast.Subscript) else node
