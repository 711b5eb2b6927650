"""Reads the options that simple-parsing derives from dataclasses: `parse(Config)`.

Source: simple-parsing 0.1.9: `--field_name`, also of nested dataclasses without their names; `-x`
and `--x` for one letter; a bool has `--x` and `--nox`. Two equal names get prefixes, which are not
read.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import ARGPARSE, FLOAT, INT, TRUTH_WORD, Option, ScriptOptions
from safelaunch.analysis.options.parsers.tyro_config import (
    ConfigField,
    config_fields,
    is_dataclass,
)
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.analysis.python.names import Definition, Module, Modules

_PARSE = "simple_parsing.parse"
_PARSER = "simple_parsing.ArgumentParser"
CALLS = frozenset({_PARSE})
_PLAIN_KEYWORDS = frozenset({"description", "prog", "epilog", "usage", "add_help"})
# functions of simple_parsing that give a field a default
_DEFAULTS = ("mutable_field", "list_field", "set_field", "dict_field")
_SCALARS = {"int": INT, "float": FLOAT, "str": "", "pathlib.Path": ""}
_MAX_DEPTH = 8


def is_call(module: Module, call: ast.Call) -> bool:
    """Whether a call is `parse(...)`, or `parse_args()` of simple-parsing's parser."""
    if module.dotted(call.func) in CALLS:
        return True
    return _parser_name(module, call) is not None


def read(modules: Modules, module: Module, call: ast.Call) -> ScriptOptions:
    """Return the options of `parse(Config)` or `parser.parse_args()`; raise Unclear if open."""
    place = module.location(call)
    name = _parser_name(module, call)
    classes: list[ast.expr] = []
    if name is None:
        keywords = {keyword.arg for keyword in call.keywords}
        if len(call.args) > 1 or not keywords <= {"config_class", "dest", *_PLAIN_KEYWORDS}:
            raise Unclear("simple_parsing gets more arguments than a class", place)
        classes = list(call.args) or [
            keyword.value for keyword in call.keywords if keyword.arg == "config_class"
        ]
    else:
        if call.args or call.keywords:
            raise Unclear("the parser of simple_parsing gets its words from elsewhere", place)
        classes = list(_added_classes(module, name))
    options: list[Option] = []
    for node in classes:
        definition = modules.resolve(module, node)
        if definition is None:
            raise Unclear("what simple_parsing parses is not part of the project", place)
        options += _options(modules, definition, has_default=False, depth=_MAX_DEPTH)
    options.append(Option("help", ("-h", "--help"), place, 0, 0))
    names = [name for option in options for name in option.names]
    if len(set(names)) < len(names):
        raise Unclear("two fields have the same name, and get prefixes", place)
    return ScriptOptions(ARGPARSE, place, tuple(options))


def _parser_name(module: Module, call: ast.Call) -> ast.Name | None:
    """Return the variable whose `parse_args` a call is, if it is a parser of simple_parsing."""
    is_parse = isinstance(call.func, ast.Attribute) and call.func.attr == "parse_args"
    name = call.func.value if is_parse and isinstance(call.func, ast.Attribute) else None
    if not isinstance(name, ast.Name):
        return None
    for store in module.names_by_id.get(name.id, []):
        value = getattr(module.parents[store], "value", None)
        is_store = isinstance(store.ctx, ast.Store) and module.owner(store) is module.owner(name)
        if is_store and isinstance(value, ast.Call) and module.dotted(value.func) == _PARSER:
            return name
    return None


def _added_classes(module: Module, parser: ast.Name) -> Iterator[ast.expr]:
    """Yield the classes of `parser.add_arguments(...)`; raise Unclear for any other use."""
    owner = module.owner(parser)
    for name in module.names_by_id[parser.id]:
        if module.owner(name) is not owner:
            continue
        place, parent = module.location(name), module.parents[name]
        if not isinstance(name.ctx, ast.Load):
            value = getattr(parent, "value", None)
            keywords = {k.arg for k in value.keywords} if isinstance(value, ast.Call) else {None}
            is_plain = isinstance(value, ast.Call) and not value.args
            if not is_plain or not keywords <= _PLAIN_KEYWORDS:
                raise Unclear("the parser of simple_parsing is created with more", place)
            continue
        use = module.parents[parent]
        method = parent.attr if isinstance(parent, ast.Attribute) else ""
        is_statement = module.parents[use] in getattr(owner, "body", ())
        is_method = isinstance(use, ast.Call) and use.func is parent
        if method == "parse_args" and is_method:
            continue
        if not isinstance(use, ast.Call) or not is_method or not is_statement:
            raise Unclear("the use of simple_parsing's parser is not understood", place)
        keywords = {keyword.arg for keyword in use.keywords}
        if method != "add_arguments" or not use.args or not keywords <= {"dest"}:
            raise Unclear("the use of simple_parsing's parser is not understood", place)
        yield use.args[0]


def _options(
    modules: Modules, definition: Definition, *, has_default: bool, depth: int
) -> Iterator[Option]:
    """Yield the options of a dataclass and of those in its fields."""
    place = definition.module.location(definition.node)
    if not isinstance(definition.node, ast.ClassDef):
        raise Unclear(f"`{definition.node.name}` is no dataclass", place)
    for field in config_fields(modules, definition, depth).values():
        _check_default(field)
        if field.annotation is None or isinstance(field.annotation, ast.Constant):
            raise Unclear(f"the type of `{field.name}` is not certain", place)
        nested = modules.resolve(field.module, field.annotation)
        if nested is not None and is_dataclass(nested):
            is_none = field.module.literal(field.default) is None
            if is_none:
                raise Unclear(f"`{field.name}` may be None", place)
            is_optional = has_default or field.has_default
            yield from _options(modules, nested, has_default=is_optional, depth=depth - 1)
            continue
        yield from _field_options(modules, field, has_default=has_default)


def _field_options(modules: Modules, field: ConfigField, *, has_default: bool) -> Iterator[Option]:
    """Yield the option of a field that is no dataclass, and `--nox` of a bool."""
    module, name = field.module, field.name
    if field.annotation is None:
        raise Unclear(f"`{name}` has no type", module.location(module.tree))
    place = module.location(field.annotation)
    _check_type(modules, field, field.annotation)
    kind = module.dotted(field.annotation)
    names = (f"--{name}",) if len(name) > 1 else (f"-{name}", f"--{name}")
    if kind == "bool":
        is_required = not field.has_default and not has_default
        yield Option(name, names, place, 0, 1, TRUTH_WORD, required=is_required)
        yield Option(name, (f"--no{name}",), place, 0, 0)
        return
    is_known = kind in _SCALARS and module.literal(field.default) is not None
    is_known &= not isinstance(field.default, ast.Call) or module.dotted(field.default.func) == (
        "dataclasses.field"
    )
    count = 1 if is_known else None
    is_required = is_known and not field.has_default and not has_default
    value_type = _SCALARS[kind] if is_known else ""
    yield Option(name, names, place, count, count, value_type, required=is_required)


def _check_type(modules: Modules, field: ConfigField, node: ast.expr) -> None:
    """Raise Unclear where a type may hold a dataclass, whose fields are options too."""
    for part in ast.walk(node):
        definition = modules.resolve(field.module, part)
        is_class = definition is not None and isinstance(definition.node, ast.ClassDef)
        if definition is not None and is_class and definition.node.decorator_list:
            raise Unclear(f"the options of `{field.name}` are not certain",
                          field.module.location(node))  # fmt: skip
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            is_literal = isinstance(node, ast.Subscript) and field.module.dotted(
                node.value
            ).endswith("Literal")
            if not is_literal:
                raise Unclear(
                    f"the type of `{field.name}` is written as text", field.module.location(node)
                )


def _check_default(field: ConfigField) -> None:
    """Raise Unclear where a function of simple_parsing changes the option of a field."""
    default = field.default
    if not isinstance(default, ast.Call):
        return
    source, _, function = field.module.dotted(default.func).rpartition(".")
    if not source.startswith("simple_parsing"):
        return
    keywords = {keyword.arg for keyword in default.keywords}
    is_plain = function in _DEFAULTS and not keywords & {None, "alias", "cmd", "positional"}
    if function == "choice":
        is_plain = keywords <= {"default", "help"}
    if function == "field":
        is_plain = not default.args and keywords <= {"default", "default_factory", "help"}
    if not is_plain:
        raise Unclear(f"the option of `{field.name}` is not certain",
                      field.module.location(default))  # fmt: skip
