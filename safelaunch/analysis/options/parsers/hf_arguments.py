"""Reads the options that transformers' HfArgumentParser derives from dataclasses.

Source: `_parse_dataclass_field` of transformers/hf_argparser.py: each field is `--field_name` and,
since 4.38, `--field-name`; a bool takes one word or none; if its default is true, it has `--no_x`.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.option_model import FLOAT, INT, TRUTH_WORD, Option
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.analysis.python.names import Definition, Module, Modules

_LISTS = frozenset({"list", "List", "Sequence", "tuple", "Tuple", "set", "Set"})
_SCALAR_TYPES = {"int": INT, "float": FLOAT, "str": ""}
_MAX_BASES = 8


class _Shape(NamedTuple):
    """The values that a field's type accepts: their number, type and choices."""

    min_values: int | None = None
    max_values: int | None = None
    value_type: str = ""
    choices: tuple[str, ...] = ()


def options(modules: Modules, module: Module, call: ast.Call) -> list[Option]:
    """Return the options of `HfArgumentParser(...)`; raise Unclear if a class cannot be read."""
    options_by_field: dict[str, Option] = {}
    for node in dataclass_nodes(module, call):
        options_by_field.update(_fields(modules, module, node, _MAX_BASES))
    return list(options_by_field.values())


def dataclass_nodes(module: Module, call: ast.Call) -> list[ast.expr]:
    """Return the dataclasses that a parser is created with; raise Unclear if the call has none."""
    arguments = [*call.args]
    arguments += (keyword.value for keyword in call.keywords if keyword.arg == "dataclass_types")
    if len(arguments) != 1:
        raise Unclear("the parser's dataclasses are not in the call", module.location(call))
    first = arguments[0]
    if isinstance(first, ast.Name) and module.top_level(first.id) is None:
        stores = [
            node.value
            for node in module.nodes
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == first.id
        ]
        first = stores[0] if len(stores) == 1 else first
    return list(first.elts) if isinstance(first, ast.Tuple | ast.List) else [first]


def _fields(modules: Modules, module: Module, node: ast.expr, depth: int) -> dict[str, Option]:
    """Return {field: option} of a dataclass, those of its bases first."""
    definition = modules.resolve(module, node)
    if definition is None or not isinstance(definition.node, ast.ClassDef) or not depth:
        shown = module.dotted(node).lstrip("?.") or "a dataclass"
        raise Unclear(f"`{shown}` is not part of the project", module.location(node))
    class_module, cls = definition.module, definition.node
    fields: dict[str, Option] = {}
    for base in reversed(cls.bases):
        if class_module.dotted(base).rpartition(".")[2] not in ("object", "ABC", "Generic"):
            fields.update(_fields(modules, class_module, base, depth - 1))
    decorators = {class_module.dotted(getattr(d, "func", d)) for d in cls.decorator_list}
    if decorators != {"dataclasses.dataclass"}:
        raise Unclear(f"`{cls.name}` is not a plain dataclass", class_module.location(cls))
    for statement in cls.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            option = _option(modules, class_module, statement)
            fields.pop(statement.target.id, None)
            if option is not None:
                fields[statement.target.id] = option
    return fields


def _option(modules: Modules, module: Module, field: ast.AnnAssign) -> Option | None:
    """Return the option of a field, or None for a field that is not an argument."""
    annotation = _parsed(field.annotation)
    kind = module.dotted(getattr(annotation, "value", annotation)).rpartition(".")[2]
    if kind in ("ClassVar", "KW_ONLY"):
        return None
    name = getattr(field.target, "id", "")
    default = field.value
    aliases: tuple[str, ...] = ()
    has_default, is_whole = default is not None, True
    if isinstance(default, ast.Call):
        factory = module.dotted(default.func).rpartition(".")[2]
        keywords = {keyword.arg: keyword.value for keyword in default.keywords}
        if factory == "field" and module.literal(keywords.get("init")) is False:
            return None
        is_whole = factory == "field" and None not in keywords and "kw_only" not in keywords
        has_default = not is_whole or bool({"default", "default_factory"} & keywords.keys())
        if factory in ("field", "HfArg"):
            aliases = _aliases(module, keywords)
            default = keywords.get("default")
    is_on = module.literal(default) is True
    shape = _shape(modules, module, annotation)
    names = [f"--{name}", *aliases]
    if shape.value_type == TRUTH_WORD and is_on:
        names += [f"--no_{name}", f"--no-{name.replace('_', '-')}"]
        shape = _Shape(value_type=TRUTH_WORD)  # --no_x takes none
    dashed = [n.replace("_", "-") for n in names if n.startswith("--")]
    return Option(
        dest=name,
        names=tuple(dict.fromkeys((*names, *dashed))),
        location=module.location(field),
        **shape._asdict(),
        required=not has_default and is_whole and shape.value_type != TRUTH_WORD,  # a bool never is
        default_is_true=is_on,
    )


def _aliases(module: Module, keywords: dict[str | None, ast.expr]) -> tuple[str, ...]:
    """Return the aliases in a field's metadata; raise Unclear if they are not literals."""
    if None in keywords:
        raise Unclear("a field is created with `**`", module.location(keywords[None]))
    alias_node = keywords.get("aliases")
    metadata = keywords.get("metadata")
    if isinstance(metadata, ast.Dict):
        if None in metadata.keys:
            raise Unclear("a field's metadata is created with `**`", module.location(metadata))
        pairs = zip(metadata.keys, metadata.values, strict=True)
        alias_node = next((v for k, v in pairs if module.literal(k) == "aliases"), alias_node)
    elif metadata is not None:
        raise Unclear("a field's metadata is computed at run time", module.location(metadata))
    if alias_node is None:
        return ()
    aliases = module.literal(alias_node)
    if isinstance(aliases, str):
        return (aliases,)
    if isinstance(aliases, list | tuple) and all(isinstance(alias, str) for alias in aliases):
        return tuple(aliases)
    raise Unclear("a field's aliases are computed at run time", module.location(alias_node))


def _parsed(annotation: ast.expr) -> ast.expr:
    """Return an annotation as a node, parsed if it is written as text."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return annotation
    return annotation


def _shape(modules: Modules, module: Module, node: ast.expr) -> _Shape:
    """Return the values that a type accepts; an empty shape if not known."""
    members = [member for member in _members(module, node) if not _is_none(member)]
    if len(members) != 1:
        return _Shape()
    node = members[0]
    if isinstance(node, ast.Subscript):
        kind = module.dotted(node.value).rpartition(".")[2]
        if kind == "Literal":
            return _literal(module, node.slice)
        return _Shape(1, None) if kind in _LISTS else _Shape()
    name = module.dotted(node)
    if name == "bool":
        return _Shape(0, 1, TRUTH_WORD)
    if name in _SCALAR_TYPES:
        return _Shape(1, 1, _SCALAR_TYPES[name])
    definition = modules.resolve(module, node)
    return _Shape() if definition is None else _enum(definition)


def _members(module: Module, node: ast.expr) -> Iterator[ast.expr]:
    """Yield the members of `Optional[X]`, `Union[X, Y]` and `X | Y`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _members(module, node.left)
        yield from _members(module, node.right)
        return
    kind = ""
    if isinstance(node, ast.Subscript):
        kind = module.dotted(node.value).rpartition(".")[2]
        if kind == "Optional":
            yield from _members(module, node.slice)
        elif kind == "Union":
            for member in getattr(node.slice, "elts", [node.slice]):
                yield from _members(module, member)
    if kind not in ("Optional", "Union"):
        yield node


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _literal(module: Module, node: ast.expr) -> _Shape:
    values = module.literal(node)
    values = values if isinstance(values, tuple) else (values,)
    are_texts = all(isinstance(value, str) for value in values)
    return _Shape(1, 1, choices=tuple(values)) if are_texts else _Shape(1, 1)


def _enum(definition: Definition) -> _Shape:
    """Return the values of an enumeration of strings as choices."""
    cls = definition.node
    bases = [definition.module.dotted(base) for base in getattr(cls, "bases", [])]
    if not any(base.startswith("enum.") or base.endswith(".ExplicitEnum") for base in bases):
        return _Shape()
    assigned = (part.value for part in cls.body if isinstance(part, ast.Assign))
    values = [definition.module.literal(value) for value in assigned]
    if not values or not all(isinstance(value, str) for value in values):
        return _Shape(1, 1)
    return _Shape(1, 1, choices=tuple(values))
