"""Reads the options that transformers' HfArgumentParser derives from dataclasses.

Source: `_parse_dataclass_field` of transformers/hf_argparser.py, 4.20 to 5.24: each field is
`--field_name` and, in versions with `long_options`, `--field-name`; a bool takes one word or none;
if its default is true, it has `--no_x`. Classes of libraries are read as they are installed.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.option_model import DICT, FLOAT, INT, TRUTH_WORD, Option
from safelaunch.analysis.python.names import UNKNOWN, Function
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.analysis.python.names import Definition, Module, Modules

_LISTS = frozenset({"list", "List"})
_OTHER_COLLECTIONS = frozenset({"Sequence", "tuple", "Tuple", "set", "Set"})
_DICTS = frozenset({"dict", "Dict"})
_SCALAR_TYPES = {"int": INT, "float": FLOAT, "str": ""}
_MAX_BASES = 12  # ms-swift's have seven
# decorators that return the class with another docstring
_HARMLESS_DECORATORS = frozenset({"add_start_docstrings", "add_end_docstrings"})
_PLAIN_BASES = frozenset({"object", "ABC", "Generic", "Protocol"})
# what HfArgumentParser passes on to add_argument without an effect on what is accepted
_PLAIN_METADATA = frozenset({"help", "aliases", "choices", "metavar", "nargs", "const"})
_COUNTS: dict[object, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}


class _Shape(NamedTuple):
    """The values that a field's type accepts: their number, type and choices."""

    min_values: int | None = None
    max_values: int | None = None
    value_type: str = ""
    choices: tuple[str, ...] = ()
    is_optional: bool = False  # `X | None`


def options(modules: Modules, module: Module, call: ast.Call) -> list[Option]:
    """Return the options of `HfArgumentParser(...)`; raise Unclear if a class cannot be read."""
    nodes = dataclass_nodes(module, call)
    return dataclass_options(modules, module, nodes, module.dotted(call.func))


def dataclass_options(
    modules: Modules,
    module: Module,
    nodes: Iterable[ast.expr],
    parser: str = "",
    *,
    prefers_text: bool = False,
) -> list[Option]:
    """Return the options of classes that a module names; raise Unclear if one cannot be read.

    `parser`: the name of the parser's class. `prefers_text`: of a type that is text or a mapping.
    """
    options_by_field: dict[str, tuple[Option, ...]] = {}
    text = _parser_text(modules, parser)
    reader = _DataclassReader(modules, text, prefers_text=prefers_text)
    for node in nodes:
        options_by_field.update(reader.fields(module, node, _MAX_BASES) or {})
    return [option for options in options_by_field.values() for option in options]


def dataclass_nodes(module: Module, call: ast.Call) -> list[ast.expr]:
    """Return the dataclasses that a parser is created with; raise Unclear if the call has none."""
    arguments = [*call.args]
    names = ("dataclass_types", "parsers")
    arguments += (keyword.value for keyword in call.keywords if keyword.arg in names)
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


def _parser_text(modules: Modules, name: str) -> str:
    """Return the text of the module with the parser; TRL has a copy of its own since 1.0."""
    is_own = name.startswith("trl.") and "_hf_argparser" in modules.text("trl.scripts.utils")
    return modules.text("trl.scripts._hf_argparser" if is_own else "transformers.hf_argparser")


class _DataclassReader:
    """Reads the fields of dataclasses of the project and of installed packages.

    `parser_text`: of the parser's version; empty if that is not known. `prefers_text`: of
    `str | dict | None` too, as ms-swift changes the parser.
    """

    def __init__(self, modules: Modules, parser_text: str, *, prefers_text: bool = False) -> None:
        self.modules = modules
        self.prefers_text = prefers_text
        self.has_dashes = not parser_text or "long_options" in parser_text
        self.accepts_none = not parser_text or "accepts_none" in parser_text

    def fields(
        self, module: Module, node: ast.expr, depth: int
    ) -> dict[str, tuple[Option, ...]] | None:
        """Return {field: its options}, those of bases first; None for a class without fields."""
        name = module.dotted(node.value if isinstance(node, ast.Subscript) else node)
        if name.rpartition(".")[2] in _PLAIN_BASES:
            return None
        definition = self.modules.resolve_class(module, node) or self.alias(module, node)
        if definition is None or not isinstance(definition.node, ast.ClassDef) or not depth:
            shown = name.lstrip("?.") or "a dataclass"
            why = f"`{shown}` is neither in the project nor installed on this machine"
            raise Unclear(why, module.location(node))
        class_module, cls = definition.module, definition.node
        decorators = _decorators(class_module, cls)
        bases = [self.fields(class_module, base, depth - 1) for base in cls.bases]
        inherited = [fields for fields in bases if fields is not None]
        if not decorators and inherited:
            return inherited[0]  # no dataclass itself: dataclasses.fields() are those of its base
        if not decorators and (cls.bases or depth < _MAX_BASES):
            return None  # a plain base: dataclasses ignore what it annotates
        if decorators != {"dataclasses.dataclass"}:
            raise Unclear(f"`{cls.name}` is not a plain dataclass", class_module.location(cls))
        fields = {name: options for base in reversed(inherited) for name, options in base.items()}
        for statement in cls.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                fields.pop(statement.target.id, None)
                options = self.options(class_module, statement)
                if options:
                    fields[statement.target.id] = options
            elif not isinstance(statement, ast.Expr | ast.Assign | Function):
                _check_no_field(class_module, statement)
        return fields

    def alias(self, module: Module, node: ast.expr) -> Definition | None:
        """Return the class that a name is assigned, if the others are of packages that are missing.

        LLaMA-Factory's base is mcore_adapter's class or transformers', by a variable.
        """
        name = getattr(node, "id", "")
        values = [
            statement.value
            for statement in module.nodes
            if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == name
        ]
        if not values or name in module.imports or module.bindings.get(name) != len(values):
            return None
        packages = [module.dotted(value).partition(".")[0] for value in values]
        candidates = [
            v for v, p in zip(values, packages, strict=True) if self.modules.has_package(p)
        ]
        return self.modules.resolve_class(module, candidates[0]) if len(candidates) == 1 else None

    def options(self, module: Module, field: ast.AnnAssign) -> tuple[Option, ...]:
        """Return the options of a field; none for a field that is not an argument."""
        annotation = _parsed(field.annotation)
        kind = module.dotted(getattr(annotation, "value", annotation)).rpartition(".")[2]
        if kind in ("ClassVar", "KW_ONLY", "InitVar"):
            return ()
        name = getattr(field.target, "id", "")
        default: ast.expr | None = field.value
        metadata: dict[str, ast.expr] = {}
        has_default, is_whole = default is not None, True
        if isinstance(default, ast.Call):
            factory = module.dotted(default.func).rpartition(".")[2]
            keywords = {keyword.arg: keyword.value for keyword in default.keywords}
            if factory == "field" and module.literal(keywords.get("init")) is False:
                return ()
            is_whole = factory in ("field", "HfArg") and None not in keywords
            is_whole = is_whole and "kw_only" not in keywords
            has_default = not is_whole or bool({"default", "default_factory"} & keywords.keys())
            if factory in ("field", "HfArg"):
                metadata = _metadata(module, keywords)
                default = keywords.get("default")
        value = None if default is None else module.literal(default)
        shape = self.shape(module, annotation, value)
        is_plain = metadata.keys() <= _PLAIN_METADATA
        counts = _COUNTS.get(module.literal(metadata["nargs"])) if "nargs" in metadata else None
        if not is_plain or ("nargs" in metadata and counts is None):
            shape = _Shape()
        elif counts is not None and shape.max_values == 1:  # of a list the parser sets it itself
            shape = shape._replace(min_values=counts[0], max_values=counts[1])
        if "choices" in metadata and shape.min_values is not None and not shape.choices:
            shape = shape._replace(choices=_choices(module, metadata["choices"], shape.value_type))
        dashed = [f"--{name.replace('_', '-')}"] if self.has_dashes else []
        is_bool = shape.value_type == TRUTH_WORD
        option = Option(
            dest=name,
            names=tuple(dict.fromkeys((f"--{name}", *dashed, *_aliases(module, metadata)))),
            location=module.location(field),
            min_values=shape.min_values,
            max_values=shape.max_values,
            value_type=shape.value_type,
            choices=shape.choices,
            required=not has_default and is_whole and is_plain and not is_bool,
            default_is_true=value is True,
            lacks_default=not has_default and is_whole,
            accepts_none=self.accepts_none and shape.is_optional,
        )
        if not is_bool or value in (False, None):
            return (option,)
        negative = [f"--no-{name.replace('_', '-')}"] if self.has_dashes else []
        names = tuple(dict.fromkeys((f"--no_{name}", *negative)))
        return (option, Option(name, names, option.location, 0, 0))

    def shape(self, module: Module, annotation: ast.expr, default: object) -> _Shape:
        """Return the values that a type accepts; an empty shape if not known.

        `default`: the field's, None without one, UNKNOWN if it is computed.
        """
        members = list(_members(module, annotation))
        if len(members) > 1:
            members = list({ast.dump(member): member for member in members}.values())
        names = ["None" if _is_none(m) else module.dotted(m) for m in members]
        is_optional = "None" in names
        if sorted(names) == ["None", "bool"]:
            # the parser makes the word optional only where the default is no None
            return _Shape(1 if default is None else 0, 1, TRUTH_WORD)
        is_text = self.prefers_text and sorted(names) == ["None", "dict", "str"]
        selected = names.index("str") if is_text else _selected(names)
        if selected is None or (is_optional and names[selected] == "bool"):
            return _Shape()
        shape = self.single_shape(module, members[selected], names[selected])
        return shape._replace(is_optional=is_optional)

    def single_shape(self, module: Module, node: ast.expr, name: str) -> _Shape:
        """Return the values that a type without a union accepts."""
        if isinstance(node, ast.Subscript):
            return self.generic_shape(module, node)
        if name == "bool":
            return _Shape(0, 1, TRUTH_WORD)
        if name in _SCALAR_TYPES:
            return _Shape(1, 1, _SCALAR_TYPES[name])
        if name.rpartition(".")[2] in _DICTS:
            return _Shape(1, 1, DICT)
        definition = self.modules.resolve_class(module, node)
        return _Shape() if definition is None else _enum(definition)

    def generic_shape(self, module: Module, node: ast.Subscript) -> _Shape:
        """Return the values that `Literal[...]`, `list[X]` or `dict[...]` accept."""
        kind = module.dotted(node.value).rpartition(".")[2]
        if kind == "Literal":
            return _literal(module, node.slice)
        if kind in _DICTS:
            return _Shape(1, 1, DICT)
        if kind not in _LISTS:
            return _Shape(1, None) if kind in _OTHER_COLLECTIONS else _Shape()
        element = _parsed(node.slice)
        name = module.dotted(element)
        if name in _SCALAR_TYPES:
            return _Shape(1, None, _SCALAR_TYPES[name])
        definition = None if name == "bool" else self.modules.resolve_class(module, element)
        choices = () if definition is None else _enum(definition).choices
        return _Shape(1, None, choices=choices)


def _decorators(module: Module, cls: ast.ClassDef) -> set[str]:
    names = {module.dotted(getattr(node, "func", node)) for node in cls.decorator_list}
    return {name for name in names if name.rpartition(".")[2] not in _HARMLESS_DECORATORS}


def _check_no_field(module: Module, statement: ast.stmt) -> None:
    """Raise Unclear if a class declares fields in a branch, which may or may not run."""
    branches = (ast.If, ast.Try, ast.With, ast.For, ast.While, ast.Match)
    declares = any(isinstance(node, ast.AnnAssign) for node in ast.walk(statement))
    if isinstance(statement, branches) and declares:
        raise Unclear("a dataclass has fields under a condition", module.location(statement))


def _selected(names: list[str]) -> int | None:
    """Return which member of a union the parser converts to; None where it refuses the union."""
    if len(names) == 1:
        return 0
    is_optional = "None" in names
    if "str" not in names and (len(names) != 2 or not is_optional):  # noqa: PLR2004 - X | None
        return None
    if is_optional:
        return 0 if names[1] == "None" else 1
    return 0 if names[1] == "str" else 1


def _metadata(module: Module, keywords: dict[str | None, ast.expr]) -> dict[str, ast.expr]:
    """Return what a field passes to `add_argument`; raise Unclear if it is computed."""
    if None in keywords:
        raise Unclear("a field is created with `**`", module.location(keywords[None]))
    own = ("aliases", "help")  # of HfArg
    metadata: dict[str, ast.expr] = {key: keywords[key] for key in own if key in keywords}
    node = keywords.get("metadata")
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise Unclear("a field's metadata is created with `**`", module.location(node))
        for key, value in zip(node.keys, node.values, strict=True):
            name = module.literal(key)
            if not isinstance(name, str):
                raise Unclear("a field's metadata is computed at run time", module.location(node))
            metadata[name] = value
    elif node is not None:
        raise Unclear("a field's metadata is computed at run time", module.location(node))
    return metadata


def _aliases(module: Module, metadata: dict[str, ast.expr]) -> tuple[str, ...]:
    """Return the aliases in a field's metadata; raise Unclear if they are not literals."""
    if "aliases" not in metadata:
        return ()
    aliases = module.literal(metadata["aliases"])
    if isinstance(aliases, str):
        return (aliases,)
    if isinstance(aliases, list | tuple) and all(isinstance(alias, str) for alias in aliases):
        return tuple(aliases)
    where = module.location(metadata["aliases"])
    raise Unclear("a field's aliases are computed at run time", where)


def _choices(module: Module, node: ast.expr, value_type: str) -> tuple[str, ...]:
    """Return the choices in a field's metadata as text; none if they are computed."""
    choices = module.literal(node) if value_type in ("", INT) else ()
    kind = int if value_type == INT else str
    if not isinstance(choices, list | tuple) or not all(type(choice) is kind for choice in choices):
        return ()
    return tuple(map(str, choices))


def _parsed(annotation: ast.expr) -> ast.expr:
    """Return an annotation as a node, parsed if it is written as text."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return annotation
    return annotation


def _members(module: Module, node: ast.expr) -> Iterator[ast.expr]:
    """Yield the members of `Optional[X]`, `Union[X, Y]` and `X | Y`, None last for Optional."""
    node = _parsed(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _members(module, node.left)
        yield from _members(module, node.right)
        return
    kind = ""
    if isinstance(node, ast.Subscript):
        kind = module.dotted(node.value).rpartition(".")[2]
        if kind == "Optional":
            yield from _members(module, node.slice)
            yield ast.Constant(None)
        elif kind == "Union":
            for member in getattr(node.slice, "elts", [node.slice]):
                yield from _members(module, member)
    if kind not in ("Optional", "Union"):
        yield node


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _literal(module: Module, node: ast.expr) -> _Shape:
    values = module.literal(node)
    if values is UNKNOWN:
        return _Shape(1, 1)
    values = values if isinstance(values, tuple) else (values,)
    return _Shape(1, 1, choices=tuple(map(str, values)))


def _enum(definition: Definition) -> _Shape:
    """Return the values of an enumeration as choices; an empty shape for another class."""
    cls = definition.node
    bases = [definition.module.dotted(base) for base in getattr(cls, "bases", [])]
    if not any(base.startswith("enum.") or base.endswith(".ExplicitEnum") for base in bases):
        return _Shape()
    assigned = (part.value for part in cls.body if isinstance(part, ast.Assign))
    values = [definition.module.literal(value) for value in assigned]
    if not values or not all(isinstance(value, str | int) for value in values):
        return _Shape(1, 1)
    return _Shape(1, 1, choices=tuple(map(str, values)))
