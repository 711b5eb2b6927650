"""The options that transformers' HfArgumentParser makes of dataclasses.

Source: `_parse_dataclass_field` of transformers/hf_argparser.py: each field is `--field_name` and,
since 4.38, `--field-name`; a bool takes a word or none; one that is true by default has `--no_x`.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.option_model import FLOAT, INT, TRUTH, Option
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.analysis.python.names import Defined, Module, Modules

_LISTS = frozenset({"list", "List", "Sequence", "tuple", "Tuple", "set", "Set"})
_PLAIN = {"int": INT, "float": FLOAT, "str": ""}
_BASES = 8


class _Shape(NamedTuple):
    """How a field's type is taken: the values after it, their reading, and the choices."""

    least: int | None = None
    most: int | None = None
    reading: str = ""
    choices: tuple[str, ...] = ()


def options(modules: Modules, module: Module, call: ast.Call) -> list[Option]:
    """Return the options of `HfArgumentParser(...)`; raise Unclear where a class is not known."""
    found: dict[str, Option] = {}
    for node in classes(module, call):
        found.update(_fields(modules, module, node, _BASES))
    return list(found.values())


def classes(module: Module, call: ast.Call) -> list[ast.expr]:
    """Return the dataclasses that a parser is given; raise Unclear if the call has none."""
    given = [*call.args[:1], *(w.value for w in call.keywords if w.arg == "dataclass_types")]
    if len(given) != 1 or len(call.args) > 1:
        raise Unclear("the dataclasses are not in the call", module.place(call))
    first = given[0]
    if isinstance(first, ast.Name) and module.top(first.id) is None:
        stores = [
            node.value
            for node in module.nodes
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == first.id
        ]
        first = stores[0] if len(stores) == 1 else first
    return list(first.elts) if isinstance(first, ast.Tuple | ast.List) else [first]


def _fields(modules: Modules, module: Module, node: ast.expr, depth: int) -> dict[str, Option]:
    """Return the options of a dataclass by field, its bases' first."""
    found = modules.resolve(module, node)
    if found is None or not isinstance(found.node, ast.ClassDef) or not depth:
        shown = module.dotted(node).lstrip("?.") or "a dataclass"
        raise Unclear(f"`{shown}` is not of the project", module.place(node))
    home, cls = found.module, found.node
    fields: dict[str, Option] = {}
    for base in reversed(cls.bases):
        if home.dotted(base).rpartition(".")[2] not in ("object", "ABC", "Generic"):
            fields.update(_fields(modules, home, base, depth - 1))
    _check_decorators(home, cls)
    for part in cls.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            option = _option(modules, home, part)
            fields.pop(part.target.id, None)
            if option is not None:
                fields[part.target.id] = option
    return fields


def _check_decorators(module: Module, cls: ast.ClassDef) -> None:
    for decorator in cls.decorator_list:
        plain = decorator.func if isinstance(decorator, ast.Call) else decorator
        if module.dotted(plain) != "dataclasses.dataclass":
            raise Unclear(f"`{cls.name}` is not a plain dataclass", module.place(cls))
    if not cls.decorator_list:
        raise Unclear(f"`{cls.name}` is not a plain dataclass", module.place(cls))


def _option(modules: Modules, module: Module, part: ast.AnnAssign) -> Option | None:
    """Return the option of a field, or None for what is no argument."""
    annotation = _parsed(part.annotation)
    kind = module.dotted(getattr(annotation, "value", annotation)).rpartition(".")[2]
    if kind in ("ClassVar", "KW_ONLY"):
        return None
    name = getattr(part.target, "id", "")
    default = part.value
    aliases: tuple[str, ...] = ()
    has_default, is_whole = default is not None, True
    if isinstance(default, ast.Call):
        made = module.dotted(default.func).rpartition(".")[2]
        said = {word.arg: word.value for word in default.keywords}
        if made == "field" and module.literal(said.get("init")) is False:
            return None
        is_whole = made == "field" and None not in said and "kw_only" not in said
        has_default = not is_whole or bool({"default", "default_factory"} & said.keys())
        if made in ("field", "HfArg"):
            aliases = _aliases(module, said)
            default = said.get("default")
    is_on = module.literal(default) is True
    shape = _shape(modules, module, annotation)
    names = [f"--{name}", *aliases]
    if shape.reading == TRUTH and is_on:
        names += [f"--no_{name}", f"--no-{name.replace('_', '-')}"]
    dashed = [n.replace("_", "-") for n in names if n.startswith("--")]
    return Option(
        dest=name,
        names=tuple(dict.fromkeys((*names, *dashed))),
        place=module.place(part),
        least=shape.least if shape.reading != TRUTH or not is_on else None,
        most=shape.most if shape.reading != TRUTH or not is_on else None,
        reading=shape.reading,
        choices=shape.choices,
        required=not has_default and is_whole and shape.reading != TRUTH,  # no bool is
        is_on=is_on,
    )


def _aliases(module: Module, said: dict[str | None, ast.expr]) -> tuple[str, ...]:
    """Return the further spellings that a field's metadata gives; raise Unclear if hidden."""
    if None in said:
        raise Unclear("a field is made with `**`", module.place(said[None]))
    words = said.get("aliases")
    meta = said.get("metadata")
    if isinstance(meta, ast.Dict):
        if None in meta.keys:
            raise Unclear("a field's metadata is made with `**`", module.place(meta))
        pairs = zip(meta.keys, meta.values, strict=True)
        words = next((v for k, v in pairs if module.literal(k) == "aliases"), words)
    elif meta is not None:
        raise Unclear("a field's metadata is worked out as it runs", module.place(meta))
    found = module.literal(words) if words is not None else ()
    if isinstance(found, str):
        return (found,)
    if isinstance(found, list | tuple) and all(isinstance(alias, str) for alias in found):
        return tuple(found)
    raise Unclear("a field's aliases are worked out as it runs", module.place(meta or said[None]))


def _parsed(annotation: ast.expr) -> ast.expr:
    """Return an annotation, read where it is written as text."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return annotation
    return annotation


def _shape(modules: Modules, module: Module, node: ast.expr) -> _Shape:
    """Return how a type is taken; counts None where it is not known."""
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
        return _Shape(0, 1, TRUTH)
    if name in _PLAIN:
        return _Shape(1, 1, _PLAIN[name])
    found = modules.resolve(module, node)
    return _Shape() if found is None else _enum(found)


def _members(module: Module, node: ast.expr) -> Iterator[ast.expr]:
    """Yield what `Optional[X]`, `Union[X, Y]` and `X | Y` are made of."""
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
    known = all(isinstance(value, str) for value in values)
    return _Shape(1, 1, choices=tuple(values)) if known else _Shape(1, 1)


def _enum(found: Defined) -> _Shape:
    """Return the values of an enumeration of text as choices."""
    cls = found.node
    bases = [found.module.dotted(base) for base in getattr(cls, "bases", [])]
    if not any(base.startswith("enum.") or base.endswith(".ExplicitEnum") for base in bases):
        return _Shape()
    assigned = (part.value for part in cls.body if isinstance(part, ast.Assign))
    values = [found.module.literal(value) for value in assigned]
    if not values or not all(isinstance(value, str) for value in values):
        return _Shape(1, 1)
    return _Shape(1, 1, choices=tuple(values))
