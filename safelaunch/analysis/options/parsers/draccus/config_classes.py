"""Reads trees of dataclasses, with the choices that a registry of draccus has.

Source: draccus 0.10 and 0.11.6 (wrappers, choice_types.py, utils.py), pyrallis 0.3.1 (wrappers).
A field of a dataclass is a group of options, one of a class below `ChoiceRegistry` has
`--field.type NAME` and the fields of the class that is registered by that name.
"""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.options.parsers.draccus import value_types
from safelaunch.analysis.options.parsers.draccus.value_types import ANY, ValueType
from safelaunch.analysis.python.names import UNKNOWN, Definition, Function
from safelaunch.analysis.python.trees import SourceLine, Unclear

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.analysis.python.names import Module, Modules

_SCALARS = {
    "int": value_types.INT, "float": value_types.FLOAT, "bool": value_types.BOOL,
    "str": value_types.TEXT, "pathlib.Path": value_types.PATH,
}  # fmt: skip
_LISTS = ("list", "List", "set", "Set")
_MAPPINGS = ("dict", "Dict")
_PLAIN_BASES = frozenset({"object", "ABC", "Generic", "Protocol"})
_REGISTRIES = frozenset({"draccus.ChoiceRegistry", "draccus.choice_types.ChoiceRegistry"})
_OPEN_REGISTRIES = ("PluginRegistry", "QNamePluginRegistry", "ChoiceType", "ChoiceRegistryBase")
_FIELDS = ("dataclasses.field", "draccus.field", "draccus.fields.field", "pyrallis.field",
           "pyrallis.fields.field")  # fmt: skip
_REGISTRATION = re.compile(
    r"([\w.]+)\.register_subclass\(\s*(?:name\s*=\s*)?(?:[\"']([^\"'\n]+)[\"'])?"
)
_DATACLASS = "dataclasses.dataclass"
_MARK = b"register_subclass"
_MAX_DEPTH = 8
_MAX_FILES = 4000


class FieldDeclaration(NamedTuple):
    """A field: `node` is its type, in `module`."""

    name: str
    node: ast.expr
    module: Module
    has_default: bool
    location: SourceLine


class FieldShape(NamedTuple):
    """What a field takes: a value, and the options of `classes` below its name.

    `registries` are those whose choices have the options. With `is_open` any may be.
    """

    value: ValueType | None = None
    classes: tuple[Definition, ...] = ()
    registries: tuple[Definition, ...] = ()
    is_open: bool = False


class ConfigClasses:
    """Reads the dataclasses that a program's options come from, each when it is asked for."""

    def __init__(self, modules: Modules, files: Iterable[str], *, is_draccus: bool) -> None:
        self.modules = modules
        self.files = [*files]
        self.is_draccus = is_draccus
        self._fields: dict[ast.AST, dict[str, FieldDeclaration]] = {}
        self._shapes: dict[ast.AST, FieldShape] = {}
        self._registrations: dict[str, dict[str, list[str]]] | None = None

    def fields(
        self, definition: Definition, depth: int = _MAX_DEPTH
    ) -> dict[str, FieldDeclaration]:
        """Return the fields of a dataclass, those of its bases first."""
        module, node = definition
        if node not in self._fields:
            fields = self._class_fields(definition, depth)
            if fields is None:
                raise Unclear(f"`{node.name}` is no dataclass", module.location(node))
            self._fields[node] = fields
        return self._fields[node]

    def _class_fields(
        self, definition: Definition, depth: int
    ) -> dict[str, FieldDeclaration] | None:
        """Return the fields of a class; None for one that is no dataclass, nor are its bases."""
        module, node = definition
        place = module.location(node)
        if isinstance(node, Function) or not depth:
            raise Unclear(f"`{node.name}` is no dataclass", place)
        names = [module.dotted(getattr(d, "func", d)) for d in node.decorator_list]
        others = [n for n in names if n != _DATACLASS and not _is_registration(n)]
        if others or node.keywords:
            raise Unclear(f"`{node.name}` is not a plain dataclass", place)
        inherited = list(self._inherited(definition, depth))
        if _DATACLASS not in names:
            return inherited[0] if inherited else None
        merged = {name: field for fields in reversed(inherited) for name, field in fields.items()}
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                field = self._field(module, statement, name)
                merged.pop(name, None)
                if field is not None:
                    merged[name] = field
            elif isinstance(statement, ast.If | ast.Try | ast.With | ast.For) and any(
                isinstance(part, ast.AnnAssign) for part in ast.walk(statement)
            ):
                raise Unclear("a dataclass has fields under a condition", place)
        return merged

    def _inherited(
        self, definition: Definition, depth: int
    ) -> Iterator[dict[str, FieldDeclaration]]:
        """Yield the fields of each base that is a dataclass."""
        module, node = definition
        for base in _bases(definition):
            name = module.dotted(base.value if isinstance(base, ast.Subscript) else base)
            last = name.rpartition(".")[2]
            if last in _PLAIN_BASES or name in _REGISTRIES or last in _OPEN_REGISTRIES:
                continue
            parent = self.modules.resolve_class(module, base)
            if parent is None:
                why = f"`{last}`, a base of `{node.name}`, is not read"
                raise Unclear(why, module.location(node))
            fields = self._class_fields(parent, depth - 1)
            if fields is not None:
                yield fields

    def _field(
        self, module: Module, statement: ast.AnnAssign, name: str
    ) -> FieldDeclaration | None:
        """Return a field; None for one that no option sets."""
        place = module.location(statement)
        annotation = statement.annotation
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = _parsed(annotation, place)
            if not self.is_draccus:
                raise Unclear("pyrallis reads no type that is written as text", place)
        outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        last = module.dotted(outer).rpartition(".")[2]
        if last == "ClassVar":
            return None
        if last in ("InitVar", "KW_ONLY"):
            raise Unclear(f"`{name}` is a special field", place)
        default = statement.value
        has_default = default is not None
        if isinstance(default, ast.Call) and module.dotted(default.func) in _FIELDS:
            keywords = {keyword.arg: keyword.value for keyword in default.keywords}
            if None in keywords or _changes_option(module, keywords.get("metadata")):
                raise Unclear(f"`{name}` is a special field", place)
            if "init" in keywords and module.literal(keywords["init"]) is not True:
                if module.literal(keywords["init"]) is False:
                    return None
                raise Unclear(f"`{name}` is a special field", place)
            has_default = bool({"default", "default_factory"} & keywords.keys() or default.args)
            default = keywords.get("default")
        if default is not None and module.dotted(default).endswith("MISSING"):
            has_default = False
        return FieldDeclaration(name, annotation, module, has_default, place)

    def shape(self, field: FieldDeclaration) -> FieldShape:
        """Return what a field takes."""
        if field.node not in self._shapes:
            self._shapes[field.node] = self._shape(field.module, field.node, field.location)
        return self._shapes[field.node]

    def _shape(self, module: Module, node: ast.expr, place: SourceLine) -> FieldShape:
        members = list(_members(module, node, place))
        has_pipe = any(isinstance(part, ast.BinOp) for part in ast.walk(node))
        classes: list[Definition] = []
        registries: list[Definition] = []
        values: list[ValueType] = []
        is_open = False
        for member in members:
            definition = self._definition(module, member)
            if definition is None or self._is_enum(definition):
                values.append(self._value_type(module, member, place))
            elif self.is_draccus and self._is_registry(definition):
                registries.append(definition)
            elif self.is_draccus and self._is_open_registry(definition):
                is_open = True
            elif self._is_dataclass(definition):
                classes.append(definition)
            else:
                values.append(ANY)  # such as a class with a decoder of its own
        is_group = bool(classes or registries or is_open)
        if is_group and not self.is_draccus and (has_pipe or len(members) - len(values) > 1):
            raise Unclear("pyrallis reads no union of classes", place)
        if is_group and ANY in values:
            is_open = True
        plain = [value for value in values if value.kind != value_types.NONE]
        if is_group:
            text = ValueType(value_types.UNION, tuple(values)) if plain else None
            return FieldShape(text, tuple(classes), tuple(registries), is_open)
        if not self.is_draccus and has_pipe:
            return FieldShape(ANY)
        value = values[0] if len(values) == 1 else ValueType(value_types.UNION, tuple(values))
        return FieldShape(value)

    def _definition(self, module: Module, node: ast.expr) -> Definition | None:
        target = node.value if isinstance(node, ast.Subscript) else node
        name = module.dotted(target)
        if not name or name in _SCALARS:
            return None
        definition = self.modules.resolve_class(module, target)
        is_class = definition is not None and isinstance(definition.node, ast.ClassDef)
        return definition if is_class else None

    def _value_type(self, module: Module, node: ast.expr, place: SourceLine) -> ValueType:
        """Return the type of a value that is no dataclass; ANY where it is not certain."""
        if isinstance(node, ast.Constant) and node.value is None:
            return ValueType(value_types.NONE)
        if isinstance(node, ast.Subscript):
            return self._generic(module, node, place)
        name = module.dotted(node)
        last = name.rpartition(".")[2]
        if name in _SCALARS:
            return ValueType(_SCALARS[name])
        if name in ("list", "typing.List"):
            return ValueType(value_types.LIST)
        if name in ("dict", "typing.Dict") and last in _MAPPINGS:
            return ValueType(value_types.MAPPING)
        definition = self._definition(module, node)
        return ANY if definition is None else _enum(definition)

    def _generic(self, module: Module, node: ast.Subscript, place: SourceLine) -> ValueType:
        kind = module.dotted(node.value).rpartition(".")[2]
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if kind == "Literal":
            values = module.literal(node.slice)
            if values is UNKNOWN:
                return ANY
            texts = values if isinstance(values, tuple) else (values,)
            return ValueType(value_types.LITERAL, values=texts)
        if kind in _MAPPINGS:
            return ValueType(value_types.MAPPING)
        is_open = kind in ("tuple", "Tuple") and any(
            isinstance(part, ast.Constant) and part.value is ... for part in parts
        )
        if kind not in (*_LISTS, "tuple", "Tuple"):
            return ANY
        items: list[ValueType] = []
        for part in parts:
            if isinstance(part, ast.Constant) and part.value is ...:
                continue
            shape = self._shape(module, part, place)
            is_value = shape.value is not None and not (shape.classes or shape.registries)
            items.append(shape.value if is_value and shape.value is not None else ANY)
        if kind in _LISTS:
            return ValueType(value_types.LIST, tuple(items))
        return ValueType(value_types.TUPLE, tuple(items), is_open=is_open)

    def _is_enum(self, definition: Definition) -> bool:
        return any(
            definition.module.dotted(base).startswith("enum.") for base in _bases(definition)
        )

    def _is_registry(self, definition: Definition) -> bool:
        return any(definition.module.dotted(base) in _REGISTRIES for base in _bases(definition))

    def _is_open_registry(self, definition: Definition) -> bool:
        names = [definition.module.dotted(base) for base in _bases(definition)]
        is_plugin = any(name.rpartition(".")[2] in _OPEN_REGISTRIES for name in names)
        return is_plugin or any(
            isinstance(part, Function) and part.name in ("get_choice_class", "get_known_choices")
            for part in definition.node.body
        )

    def _is_dataclass(self, definition: Definition) -> bool:
        try:
            return self._class_fields(definition, _MAX_DEPTH) is not None
        except Unclear:
            if definition.node.decorator_list:
                raise
            return False

    def choices(self, registry: Definition) -> dict[str, list[str]] | None:
        """Return {choice: the files that register it}; None where a name is computed.

        Also choices of another registry by that name: which it is shows when one is read.
        """
        if self._registrations is None:
            self._registrations = {}
            for path in self._registering_files(registry):
                for name, choice in _REGISTRATION.findall(self.modules.trees.text(path)):
                    choices = self._registrations.setdefault(name.rpartition(".")[2], {})
                    choices.setdefault(choice, []).append(path)
        names = self._registrations.get(registry.node.name, {})
        # `cls.register_subclass(...)` and the like may be any registry's
        is_open = "" in names or {"cls", "self"} & self._registrations.keys()
        return None if is_open or not names else names

    def has_default_choice(self, registry: Definition) -> bool:
        """Whether a registry may have a choice where none is named."""
        methods = ("default_choice_name", "get_choice_name")
        module, node = registry
        return any(isinstance(p, Function) and p.name in methods for p in node.body) or any(
            _is_registration(module.dotted(getattr(d, "func", d))) for d in node.decorator_list
        )

    def choice_class(self, registry: Definition, choice: str) -> Definition | None:
        """Return the class that is registered by a name; None where that is not certain."""
        classes: list[Definition] = []
        for path in dict.fromkeys((self.choices(registry) or {}).get(choice, ())):
            module = self.modules.load(path)
            for node in [] if module is None else module.tree.body:
                if module is not None and isinstance(node, ast.ClassDef):
                    classes += [
                        Definition(module, node)
                        for decorator in node.decorator_list
                        if self._registers(module, decorator, registry, choice)
                    ]
        return classes[0] if len(classes) == 1 else None

    def _registers(
        self, module: Module, decorator: ast.expr, registry: Definition, choice: str
    ) -> bool:
        """Whether a decorator registers a class by a name."""
        if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Attribute):
            return False
        values = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
        if decorator.func.attr != "register_subclass" or choice not in map(module.literal, values):
            return False
        target = self.modules.resolve_class(module, decorator.func.value)
        return target is not None and (target.module.path, target.node.name) == (
            registry.module.path, registry.node.name
        )  # fmt: skip

    def _registering_files(self, registry: Definition) -> Iterator[str]:
        """Yield files that may register choices: the program's, and those of the whole package."""
        paths = dict.fromkeys(self.files)
        folder = os.path.dirname(registry.module.path)
        while os.path.isfile(os.path.join(os.path.dirname(folder), "__init__.py")):
            folder = os.path.dirname(folder)
        for place, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if not name.startswith((".", "__"))]
            paths.update(
                dict.fromkeys(os.path.join(place, name) for name in names if name.endswith(".py"))
            )
            if len(paths) > _MAX_FILES:
                raise Unclear("the choices are in too many files", SourceLine(folder, 1))
        for path in paths:
            if _MARK in (self.modules.trees.data(path) or b""):
                yield path


def _bases(definition: Definition) -> list[ast.expr]:
    return definition.node.bases if isinstance(definition.node, ast.ClassDef) else []


def _changes_option(module: Module, metadata: ast.expr | None) -> bool:
    """Whether the metadata of a field may change its option, which `custom_args` do."""
    if metadata is None:
        return False
    keys = metadata.keys if isinstance(metadata, ast.Dict) else [None]
    names = [module.literal(key) for key in keys]
    return not all(isinstance(name, str) and name != "custom_args" for name in names)


def _is_registration(name: str) -> bool:
    return name.endswith(".register_subclass")


def _parsed(node: ast.Constant, place: SourceLine) -> ast.expr:
    try:
        return ast.parse(str(node.value), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise Unclear("a type is written as text", place) from e


def _members(module: Module, node: ast.expr, place: SourceLine) -> Iterator[ast.expr]:
    """Yield the members of `Optional[X]`, `Union[X, Y]` and `X | Y`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = _parsed(node, place)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _members(module, node.left, place)
        yield from _members(module, node.right, place)
        return
    kind = module.dotted(node.value).rpartition(".")[2] if isinstance(node, ast.Subscript) else ""
    if isinstance(node, ast.Subscript) and kind in ("Optional", "Union"):
        for member in getattr(node.slice, "elts", [node.slice]):
            yield from _members(module, member, place)
        if kind == "Optional":
            yield ast.Constant(None)
        return
    yield node


def _enum(definition: Definition) -> ValueType:
    """Return the members of an enumeration; ANY where they are not certain."""
    node = definition.node
    if any(isinstance(part, Function) and part.name == "_missing_" for part in node.body):
        return ANY
    names: list[str] = []
    values: list[object] = []
    for part in node.body:
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
            value = definition.module.literal(part.value)
            if value is UNKNOWN or isinstance(value, list | dict | set):
                return ANY
            names.append(part.targets[0].id)
            values.append(value)
    if not names:
        return ANY
    return ValueType(value_types.ENUM, values=tuple(values), names=tuple(names))
