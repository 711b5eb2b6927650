"""Reads programs of `jsonargparse.ArgumentParser`: its arguments, also those of classes.

Every use of the parser must be understood, as for argparse. Source: jsonargparse 4.28 and 4.53,
_core.py and _signatures.py.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.option_model import ScriptOptions
from safelaunch.analysis.options.parsers import add_argument, argparse_parser
from safelaunch.analysis.options.parsers.jsonargparse import signature
from safelaunch.analysis.options.parsers.jsonargparse.rules import (
    ConfigKeys,
    DottedOptionRules,
    group_keys,
)
from safelaunch.analysis.options.parsers.jsonargparse.signature import (
    CallSignature,
    TypedParameter,
)
from safelaunch.analysis.python import calls
from safelaunch.analysis.python.names import UNKNOWN, Function
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.analysis.option_model import Option
    from safelaunch.analysis.python.names import Module, Modules, Scope
    from safelaunch.analysis.python.parameters import Callers

KIND = "jsonargparse"
_CLASS = "jsonargparse.ArgumentParser"
_PLAIN_ARGUMENTS = frozenset((
    "prog", "usage", "description", "epilog", "formatter_class", "logger", "version",
    "print_config", "parser_mode", "dump_header", "add_help",
))  # fmt: skip
# with these a value may come from elsewhere
_OTHER_SOURCES = frozenset({"default_config_files", "default_env", "env_prefix"})
_HARMLESS = frozenset((
    "instantiate_classes", "instantiate", "save", "dump", "print_help", "print_usage", "error",
    "format_help", "format_usage", "get_defaults", "get_default", "get_config_files", "exit",
    "parse_path", "parse_object", "parse_string", "parse_env", "strip_unknown", "validate",
    "check_config", "merge_config", "strip_meta", "description", "prog", "epilog", "usage",
))  # fmt: skip
_SIGNATURES = frozenset({
    "add_class_arguments", "add_dataclass_arguments", "add_function_arguments",
    "add_method_arguments",
})  # fmt: skip
_SIGNATURE_ARGUMENTS = frozenset({
    "nested_key", "as_group", "as_positional", "skip", "fail_untyped", "instantiate", "sub_configs",
    "linked_targets", "help", "title", "theclass", "themethod", "function",
})  # fmt: skip
_GROUPS = frozenset({"add_argument_group", "add_mutually_exclusive_group"})
_FILE_ACTIONS = frozenset({"jsonargparse.ActionConfigFile", "config"})
_NESTED_ACTIONS = frozenset({"jsonargparse.ActionParser", "parser"})
_COUNTED_ACTIONS = frozenset({"store", "store_true", "store_false", "store_const", "append"})


class _Creation(NamedTuple):
    """Where a parser is created, and the variables that hold it."""

    module: Module
    call: ast.Call
    variables: tuple[tuple[Module, Scope, str], ...]


def is_call(modules: Modules, module: Module, call: ast.Call) -> bool:
    """Whether a call parses the command line by a parser of jsonargparse."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in argparse_parser.PARSE_METHODS:
        return False
    return _creation(modules, module, func.value) is not None


def read(
    modules: Modules,
    module: Module,
    call: ast.Call,
    callers: Callers,
    *,
    cwd: str | None,
    files: Iterable[str],
) -> ScriptOptions:
    """Return the rules of a parser; raise Unclear if the text is not explicit."""
    place = module.location(call)
    if any(b"set_parsing_settings" in (modules.trees.data(path) or b"") for path in files):
        raise Unclear("the program changes jsonargparse's settings", place)
    argparse_parser.check_parse(module, call, callers)
    assert isinstance(call.func, ast.Attribute)  # noqa: S101 - narrows the type for mypy
    reader = _CommandParsers(modules)
    top = reader.read(module, call.func.value)
    if not reader.commands:
        return ScriptOptions(KIND, place, rules=DottedOptionRules({"": top}, place, cwd))
    if any((p.min_values, p.max_values) != (1, 1) for p in top.keys.values()):
        raise Unclear("which argument is the subcommand is not certain", place)
    top = top._replace(
        open_prefixes=top.open_prefixes | {"subcommand", *reader.commands}, checks_required=False
    )
    return ScriptOptions(KIND, place, rules=DottedOptionRules(reader.commands, place, cwd, top))


def _creation(modules: Modules, module: Module, node: ast.expr, depth: int = 4) -> _Creation | None:
    """Return where the parser that an expression names is created; None if that is not certain."""
    if not depth:
        return None
    if isinstance(node, ast.Name):
        scope = module.owner(node)
        value = _only_value(module, scope, node.id)
        creation = None if value is None else _creation(modules, module, value, depth - 1)
        variable = (module, scope, node.id)
        return creation and creation._replace(variables=(*creation.variables, variable))
    if not isinstance(node, ast.Call):
        return None
    if module.dotted(node.func) == _CLASS:
        return _Creation(module, node, ())
    definition = modules.resolve(module, node.func)
    function = None if definition is None else definition.node
    if definition is None or not isinstance(function, Function) or function.decorator_list:
        return None
    returned = [*calls.returned_values(definition.module, function)]
    only = returned[0] if len(returned) == 1 else None
    return None if only is None else _creation(modules, definition.module, only, depth - 1)


def _only_value(module: Module, scope: Scope, name: str) -> ast.Call | None:
    """Return the only call that a variable is assigned, apart from what its parser returns."""
    statements = [module.parents[node] for node in calls.assignments(module, scope, name)]
    values = [getattr(s, "value", None) for s in statements if not _is_parsed(s, name)]
    value = values[0] if len(values) == 1 else None
    return value if isinstance(value, ast.Call) else None


def _is_parsed(statement: ast.AST, name: str) -> bool:
    """Whether a statement is `NAME = NAME.parse_args()`."""
    func = getattr(getattr(statement, "value", None), "func", None)
    value = getattr(func, "value", None)
    return isinstance(value, ast.Name) and value.id == name


class _CommandParsers:
    """Collects the arguments of a parser, and of those of its subcommands."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.commands: dict[str, ConfigKeys] = {}

    def read(self, module: Module, node: ast.expr) -> ConfigKeys:
        """Return what a parser accepts, apart from its subcommands."""
        creation = _creation(self.modules, module, node)
        if creation is None:
            raise Unclear("where the parser is created is not certain", module.location(node))
        arguments = _ParserArguments(self.modules, self)
        arguments.read_constructor(creation.module, creation.call)
        for place, scope, name in creation.variables:
            arguments.read_uses(place, scope, name)
        return arguments.result()


class _ParserArguments:
    """The arguments of one parser."""

    def __init__(self, modules: Modules, reader: _CommandParsers) -> None:
        self.modules = modules
        self.reader = reader
        self.keys: dict[str, TypedParameter] = {}
        self.positionals: list[TypedParameter] = []
        self.groups: set[str] = set()
        self.prefixes: set[str] = set()
        self.linked: set[str] = set()
        self.file_options: set[str] = set()
        self.checks_required = True

    def result(self) -> ConfigKeys:
        """Return the arguments as keys."""
        positionals: tuple[TypedParameter, ...] | None = tuple(self.positionals)
        counts = {(p.min_values, p.max_values) for p in (*self.keys.values(), *self.positionals)}
        if self.positionals and counts != {(1, 1)}:
            positionals = None  # a word after a switch may be one
        parents = {key[:i] for key in self.keys for i, c in enumerate(key) if c == "."}
        return ConfigKeys(
            self.keys,
            frozenset((self.groups | parents) - self.keys.keys() - self.prefixes),
            frozenset(self.prefixes),
            frozenset(self.linked),
            self.checks_required and positionals is not None,
            positionals,
            frozenset(self.file_options),
        )

    def read_constructor(self, module: Module, call: ast.Call) -> None:
        """Read the call that creates the parser."""
        for keyword in call.keywords:
            if keyword.arg in _OTHER_SOURCES:
                self.checks_required = False
            elif keyword.arg == "exit_on_error" and module.literal(keyword.value) is True:
                continue
            elif keyword.arg not in _PLAIN_ARGUMENTS:
                why = f"the parser is created with `{keyword.arg or '**'}`"
                raise Unclear(why, module.location(call))

    def read_uses(self, module: Module, scope: Scope, name: str) -> None:
        """Read every use of a variable that holds the parser or a group."""
        if name in module.shared:
            raise Unclear(f"`{name}` is a global or nonlocal variable", module.location(scope))
        for node in module.names_by_id.get(name, []):
            if module.owner(node) is scope and isinstance(node.ctx, ast.Load):
                self.read_use(module, scope, node)

    def read_use(self, module: Module, scope: Scope, node: ast.Name) -> None:
        """Read one use of the parser, or raise Unclear."""
        attribute = module.parents[node]
        if isinstance(attribute, ast.Return):
            return
        call = module.parents[attribute]
        if isinstance(attribute, ast.Attribute) and attribute.attr in _HARMLESS:
            if isinstance(attribute.ctx, ast.Load):
                return
        elif (
            isinstance(attribute, ast.Attribute)
            and isinstance(call, ast.Call)
            and call.func is attribute
        ):
            self.read_method(module, scope, call, attribute.attr)
            return
        elif isinstance(attribute, ast.Call):
            kind = getattr(attribute.func, "attr", "")
            if kind == "add_subcommand":  # the other parser reads it
                return
        raise Unclear("the use of the parser is not understood", module.location(node))

    def read_method(self, module: Module, scope: Scope, call: ast.Call, method: str) -> None:
        """Read a method call of the parser."""
        place = module.location(call)
        is_certain = calls.runs_unconditionally(module, call, scope)
        self.checks_required &= is_certain
        if method in argparse_parser.PARSE_METHODS:
            return
        if method == "add_argument":
            self.read_argument(module, call)
        elif method in _GROUPS or method == "add_subcommands":
            self.read_group(module, scope, call)
        elif method in _SIGNATURES:
            self.read_signature(module, call, method)
        elif method == "add_subclass_arguments":
            self.prefixes.add(_nested_key(module, call, 1))
        elif method == "link_arguments":
            target = module.literal(call.args[1]) if len(call.args) > 1 else UNKNOWN
            if isinstance(target, str):
                self.linked.add(target)
            else:
                self.checks_required = False
        elif method == "set_defaults":
            self.checks_required = False
        elif method == "add_subcommand":
            self.read_subcommand(module, call)
        else:
            raise Unclear(f"`{method}` of the parser", place)

    def read_group(self, module: Module, scope: Scope, call: ast.Call) -> None:
        """Read the variable of a group of arguments, or of the subcommands."""
        place = module.location(call)
        keywords = {k.arg: module.literal(k.value) for k in call.keywords}
        if keywords.get("required", True) is not True and "dest" in keywords:
            raise Unclear("whether there is a subcommand is not certain", place)
        statement = module.parents[call]
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.Expr):
            return
        if len(targets) != 1 or not isinstance(targets[0], ast.Name):
            raise Unclear("the use of an option group is not understood", place)
        name = targets[0].id
        if len([*calls.assignments(module, scope, name)]) != 1:
            raise Unclear(f"`{name}` is not only an option group", place)
        self.read_uses(module, scope, name)

    def read_subcommand(self, module: Module, call: ast.Call) -> None:
        """Read the parser of a subcommand."""
        name = module.literal(call.args[0]) if call.args else UNKNOWN
        if not isinstance(name, str) or len(call.args) != 2:  # noqa: PLR2004 - name and parser
            raise Unclear("a subcommand's name is not explicit", module.location(call))
        if any(keyword.arg != "help" for keyword in call.keywords):
            raise Unclear("a subcommand may have other names", module.location(call))
        nested = _CommandParsers(self.modules)
        self.reader.commands[name] = nested.read(module, call.args[1])
        if nested.commands:
            raise Unclear("a subcommand has subcommands of its own", module.location(call))

    def read_argument(self, module: Module, call: ast.Call) -> None:
        """Read an `add_argument` call."""
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        place = module.location(call)
        action = "store"
        if "action" in keywords:
            node = keywords["action"]
            node = node.func if isinstance(node, ast.Call) else node
            value = module.literal(node)
            action = value if isinstance(value, str) else module.dotted(node)
        type_name = module.dotted(keywords["type"]) if "type" in keywords else ""
        for option in add_argument.options(module, call, is_certain=True):
            if action in _FILE_ACTIONS:
                self.file_options.update(option.names)
            elif action in _NESTED_ACTIONS:
                self.prefixes.add(_dest(option))
            elif action not in _COUNTED_ACTIONS:
                raise Unclear(f"the action of `{option.display_name}` is not read", place)
            elif option.names:
                self.keys[_dest(option)] = _parameter(option, type_name, action)
            else:
                self.positionals.append(_parameter(option, type_name, action))

    def read_signature(self, module: Module, call: ast.Call, method: str) -> None:
        """Read a call that adds the parameters of a class, a function or a method."""
        place = module.location(call)
        at = 2 if method == "add_method_arguments" else 1
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        positional = module.literal(keywords.get("as_positional", ast.Constant(value=False)))
        is_explicit = len(call.args) in (at, at + 1) and positional is False
        if not is_explicit or not keywords.keys() <= _SIGNATURE_ARGUMENTS | {"default"}:
            raise Unclear(f"what `{method}` adds is not explicit", place)
        self.checks_required &= "default" not in keywords
        prefix = _nested_key(module, call, at, is_required=False)
        taken = self.signature(module, call, method)
        skipped = module.literal(keywords["skip"]) if "skip" in keywords else ()
        if not isinstance(skipped, set | list | tuple):
            raise Unclear(f"what `{method}` leaves out is not explicit", place)
        parameters = tuple(p for p in taken.parameters if p.name not in skipped)
        if taken.is_open or not all(isinstance(name, str) for name in skipped):
            if not prefix:
                raise Unclear(f"what `{method}` adds is not certain", place)
            self.prefixes.add(prefix)
        elif prefix:
            self.groups.add(prefix)
        self.keys.update(group_keys(prefix, taken._replace(parameters=parameters)))

    def signature(self, module: Module, call: ast.Call, method: str) -> CallSignature:
        """Return the parameters that a call adds."""
        if method != "add_method_arguments":
            return signature.of_node(self.modules, module, call.args[0])
        definition = self.modules.resolve(module, call.args[0])
        name = module.literal(call.args[1])
        if definition is None or not isinstance(name, str):
            return signature.OPEN
        return signature.of_method(definition, name)


def _nested_key(module: Module, call: ast.Call, at: int, *, is_required: bool = True) -> str:
    """Return the prefix that a call adds parameters below; empty for none."""
    node = call.args[at] if len(call.args) > at else None
    named = [k.value for k in call.keywords if k.arg == "nested_key"]
    value = module.literal(named[0] if named else node) if named or node is not None else None
    if isinstance(value, str) and value:
        return value
    if value is None and not is_required:
        return ""
    raise Unclear("the prefix of some arguments is not explicit", module.location(call))


def _dest(option: Option) -> str:
    """Return the key of an option: its first long name."""
    name = next((n for n in option.names if n.startswith("--")), None)
    return name[2:].replace("-", "_") if name else option.dest


def _parameter(option: Option, type_name: str, action: str) -> TypedParameter:
    """Return an option as a parameter with its spellings."""
    value_type = option.value_type or (signature.TEXT if type_name in ("", "str") else "")
    is_stored = action == "store"
    return TypedParameter(
        _dest(option) if option.names else option.dest,
        option.location,
        value_type if is_stored else "",
        has_default=not option.required,
        spellings=option.names,
        min_values=option.min_values,
        max_values=option.max_values,
        choices=option.choices if value_type == signature.TEXT and is_stored else (),
    )
