"""Reads the options that tyro derives from a dataclass or a function, nested ones by dots.

Source: tyro 1.0.17: `--a.b-c` with dashes or underscores, `--x` and `--no-x` for a bool with a
default; no abbreviations. Unions of classes become subcommands, and are left open, as is what
`tyro.conf` or `Annotated` changes.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.option_model import FLOAT, INT, TYRO, Option, ScriptOptions
from safelaunch.analysis.python.names import Function
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.analysis.python.names import Definition, Module, Modules
    from safelaunch.analysis.python.trees import SourceLine

CALLS = frozenset({"tyro.cli"})
_ARGUMENTS = ("f", "prog", "description", "default", "console_outputs")
_SCALARS = {"int": INT, "float": FLOAT, "str": "", "pathlib.Path": "", "os.PathLike": ""}
_SEQUENCES = ("list", "List", "tuple", "Tuple", "set", "Set", "Sequence")
_MAX_DEPTH = 8


class ConfigField(NamedTuple):
    """A parameter of a function, or a field of a dataclass."""

    name: str
    annotation: ast.expr | None
    has_default: bool
    module: Module
    default: ast.expr | None = None


def read(modules: Modules, module: Module, call: ast.Call) -> ScriptOptions:
    """Return the options of `tyro.cli(...)`; raise Unclear if the text is not explicit."""
    place = module.location(call)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if not keywords.keys() <= set(_ARGUMENTS) or len(call.args) > 1:
        raise Unclear("tyro gets more arguments than what to run", place)
    target = call.args[0] if call.args else keywords.get("f")
    definition = None if target is None else modules.resolve(module, target)
    if definition is None:
        raise Unclear("what tyro runs is not part of the project", place)
    has_default = "default" in keywords
    options = list(_options(modules, definition, "", has_default=has_default, depth=_MAX_DEPTH))
    options.append(Option("help", ("-h", "--help"), place, 0, 0))
    location = definition.module.location(definition.node)
    return ScriptOptions(TYRO, location, tuple(options), allows_abbreviations=False)


def _options(
    modules: Modules, definition: Definition, prefix: str, *, has_default: bool, depth: int
) -> Iterator[Option]:
    """Yield the options of a dataclass or a function; `has_default`: all fields have one."""
    fields = config_fields(modules, definition, depth)
    for name, field in fields.items():
        if name.startswith("_") or name.endswith("_"):
            raise Unclear(f"the option of `{name}` is not certain", _place(definition))
        is_optional = has_default or field.has_default
        nested = _nested(modules, field)
        key = f"{prefix}{name}".replace("_", "-")
        if nested is not None:
            yield from _options(
                modules, nested, f"{key}.", has_default=is_optional, depth=depth - 1
            )
            continue
        yield _option(modules, field, key, is_optional=is_optional)


def _option(modules: Modules, field: ConfigField, key: str, *, is_optional: bool) -> Option:
    """Return the option of a field that is no dataclass."""
    place = field.module.location(field.annotation or field.module.tree)
    names: tuple[str, ...] = (f"--{key}",)
    low: int | None = None
    high: int | None = None
    kind = None if field.annotation is None else field.module.dotted(field.annotation)
    value_type = ""
    if kind == "bool" and is_optional:
        parent, _, last = key.rpartition(".")
        names += (f"--{parent}.no-{last}" if parent else f"--no-{last}",)
        low = high = 0
    elif kind in _SCALARS:
        low = high = 1
        value_type = _SCALARS[kind]
    elif field.annotation is not None and kind != "bool":
        _check_plain(modules, field.module, field.annotation)
    return Option(key, names, place, low, high, value_type, required=not is_optional)


def _nested(modules: Modules, field: ConfigField) -> Definition | None:
    """Return the dataclass of a field; None for another type."""
    node = field.annotation
    if node is None:
        raise Unclear(f"`{field.name}` has no type", field.module.location(field.module.tree))
    definition = modules.resolve(field.module, node)
    if definition is None or not isinstance(definition.node, ast.ClassDef):
        return None
    return definition if is_dataclass(definition) else None


def _check_plain(modules: Modules, module: Module, node: ast.expr) -> None:
    """Raise Unclear for a type whose options are not one option."""
    names = [node]
    if isinstance(node, ast.BinOp):
        names = [node.left, node.right]
    elif isinstance(node, ast.Subscript):
        kind = module.dotted(node.value).rpartition(".")[2]
        if kind == "Literal":
            return
        if kind not in (*_SEQUENCES, "Optional", "Union"):
            raise Unclear(f"a type `{kind}` may have several options", module.location(node))
        names = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    elif isinstance(node, ast.Constant) and (node.value is None or node.value is ...):
        return
    if names != [node]:
        for name in names:
            _check_plain(modules, module, name)
        return
    dotted = module.dotted(node)
    if dotted == "bool" or dotted in _SCALARS:
        return
    definition = modules.resolve(module, node)
    bases = [] if definition is None else getattr(definition.node, "bases", [])
    if definition is None or not any(
        definition.module.dotted(base).startswith("enum.") for base in bases
    ):
        raise Unclear(f"a type `{dotted.lstrip('?.')}` may have several options",
                      module.location(node))  # fmt: skip


def config_fields(modules: Modules, definition: Definition, depth: int) -> dict[str, ConfigField]:
    """Return the fields of a dataclass, those of its bases first, or a function's parameters."""
    module, node = definition
    if not depth:
        raise Unclear("the classes are nested too deeply", _place(definition))
    if isinstance(node, Function):
        return {field.name: field for field in _parameters(definition, node)}
    if not is_dataclass(definition):
        raise Unclear(f"`{node.name}` is not a plain dataclass", _place(definition))
    fields: dict[str, ConfigField] = {}
    for base in reversed(node.bases):
        if module.dotted(base) != "object":
            parent = modules.resolve(module, base)
            if parent is None:
                raise Unclear(f"a base of `{node.name}` is not read", _place(definition))
            fields.update(config_fields(modules, parent, depth - 1))
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            field = _field(module, statement, statement.target.id)
            fields.pop(statement.target.id, None)
            if field is not None:
                fields[field.name] = field
    return fields


def _field(module: Module, statement: ast.AnnAssign, name: str) -> ConfigField | None:
    """Return a field of a dataclass; None for one that is no argument."""
    annotation: ast.expr = statement.annotation
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        raise Unclear("a type is written as text", module.location(statement))
    outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    if module.dotted(outer).rpartition(".")[2] in ("ClassVar", "InitVar", "Final", "KW_ONLY"):
        raise Unclear(f"`{name}` is a special field", module.location(statement))
    default = statement.value
    has_default = default is not None
    if isinstance(default, ast.Call) and module.dotted(default.func) == "dataclasses.field":
        keywords = {keyword.arg: keyword.value for keyword in default.keywords}
        if None in keywords or "metadata" in keywords:
            raise Unclear(f"`{name}` is a special field", module.location(statement))
        if "init" in keywords:
            if module.literal(keywords["init"]) is False:
                return None
            raise Unclear(f"`{name}` is a special field", module.location(statement))
        has_default = bool({"default", "default_factory"} & keywords.keys())
    return ConfigField(name, annotation, has_default, module, default)


def _parameters(definition: Definition, node: Function) -> Iterator[ConfigField]:
    """Yield the parameters of a function."""
    args = node.args
    if args.vararg or args.kwarg or args.posonlyargs or node.decorator_list:
        raise Unclear(f"the options of `{node.name}` are not certain", _place(definition))
    missing = [False] * (len(args.args) - len(args.defaults))
    for arg, has_default in zip(args.args, [*missing, *[True] * len(args.defaults)], strict=True):
        yield ConfigField(arg.arg, arg.annotation, has_default, definition.module)
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield ConfigField(arg.arg, arg.annotation, default is not None, definition.module)


def is_dataclass(definition: Definition) -> bool:
    """Whether a class has no decorator but `dataclass`."""
    module, node = definition
    decorators = [getattr(d, "func", d) for d in node.decorator_list]
    return [module.dotted(d) for d in decorators] == ["dataclasses.dataclass"]


def _place(definition: Definition) -> SourceLine:
    return definition.module.location(definition.node)
