"""Reads the options of an argparse or HfArgumentParser parser by following every use of it.

The rule: every use of the parser must be understood. A use that is not (a library adds options,
the parser is stored in an attribute) makes all options unclear, and then none is reported.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import ARGPARSE, HF, Option, ScriptOptions, SettingsFile
from safelaunch.analysis.options.parsers import (
    add_argument,
    hf_arguments,
    hf_settings,
    library_functions,
    megatron_factory,
)
from safelaunch.analysis.python import calls, parameters
from safelaunch.analysis.python.names import Function, Module, Modules, Scope
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Container

    from safelaunch.analysis.python.names import Definition
    from safelaunch.analysis.python.parameters import Callers
    from safelaunch.analysis.python.trees import SourceLine

_ARGPARSE = frozenset({"argparse.ArgumentParser"})
# Its parsers take values from files and variables too, so no option is required of the words.
_CONFIGARGPARSE = frozenset({"configargparse.ArgumentParser", "configargparse.ArgParser"})
_CONFIGARGPARSE_ARGUMENTS = frozenset((
    "default_config_files", "auto_env_var_prefix", "add_config_file_help", "add_env_var_help",
    "ignore_unknown_config_file_keys", "config_file_parser_class", "config_file_open_func",
))  # fmt: skip
_HF = frozenset(
    {
        *("transformers.HfArgumentParser", "transformers.hf_argparser.HfArgumentParser"),
        *hf_settings.TRL_PARSERS,
    }
)
_PLAIN_ARGUMENTS = frozenset((
    "prog", "usage", "description", "epilog", "formatter_class", "conflict_handler",
    "argument_default", "exit_on_error", "color", "suggest_on_error",
))  # fmt: skip
_HF_ARGUMENTS = frozenset({"dataclass_types", "parsers", "ignore_extra_args"})
_ADD_NAMES = ("add", "add_arg")  # of configargparse
_GROUPS = frozenset({"add_argument_group", "add_mutually_exclusive_group"})
PARSE_METHODS = frozenset({"parse_args", "parse_args_into_dataclasses", "parse_args_and_config"})
_ARGS_AND_NAMESPACE = 2
_REMAINING = "return_remaining_strings"
# Attributes of a parser that do not change its options.
_HARMLESS = frozenset((
    "print_help", "print_usage", "format_help", "format_usage", "error", "exit", "get_default",
    "set_defaults", "description", "epilog", "usage", "prog", "formatter_class", "_optionals",
    "_positionals", "_action_groups", "parse_json_file", "parse_yaml_file", "parse_dict",
))  # fmt: skip
_HARMLESS_CALLS = ("print", "isinstance", "type", "id", "repr", "argcomplete.autocomplete")


def read(
    modules: Modules,
    module: Module,
    call: ast.Call,
    callers: Callers,
    dead: Container[ast.AST] = (),
) -> ScriptOptions:
    """Return the options of the parser whose `parse_args` is called, or raise Unclear.

    `callers`: {function: the call that reached it}; `dead`: statements that do not run.
    """
    reader = _ParserReader(modules, callers, dead)
    check_parse(module, call, callers)
    assert isinstance(call.func, ast.Attribute)  # noqa: S101 - narrows the type for mypy
    reader.read_parser(module, call.func.value, is_certain=True)
    options = reader.options
    if reader.has_other_sources:
        options = [option._replace(required=False) for option in options]
    settings: tuple[SettingsFile, ...] = ()
    if reader.kind == HF and reader.constructor is not None:
        settings = hf_settings.trl_config(modules, module, call, reader.constructor)
        settings += hf_settings.single_files(modules, module, call.func.value)
    return ScriptOptions(
        reader.kind,
        reader.location or module.location(call),
        tuple(options),
        allows_abbreviations=reader.allows_abbreviations,
        settings=settings,
        ignores_unknown=_drops_unknown(module, call),
    )


def check_parse(module: Module, call: ast.Call, callers: Callers) -> None:
    """Raise Unclear if a call parses other words than sys.argv, or returns unknown options."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    for value in (*call.args[:1], *(v for k, v in keywords.items() if k == "args")):
        if not _is_command_line(module, value, callers):
            raise Unclear("it does not parse the command line", module.location(call))
    is_dropped = _drops_unknown(module, call)
    if len(call.args) > _ARGS_AND_NAMESPACE or any(
        name not in ("args", "namespace", "look_for_args_file")
        and not (is_dropped and name == _REMAINING)
        and module.literal(value) not in (False, None)
        for name, value in keywords.items()
    ):
        raise Unclear("it returns unknown options instead of refusing them", module.location(call))


def _drops_unknown(module: Module, call: ast.Call) -> bool:
    """Whether a call returns the unknown options, and nothing reads them."""
    remaining = (k.value for k in call.keywords if k.arg == _REMAINING)
    if not any(module.literal(value) is True for value in remaining):
        return False
    statement = module.parents.get(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = targets[0].elts if len(targets) == 1 and isinstance(targets[0], ast.Tuple) else []
    last = names[-1] if names else None
    return isinstance(last, ast.Name) and not any(
        isinstance(node.ctx, ast.Load) for node in module.names_by_id.get(last.id, [])
    )


def _is_command_line(module: Module, value: ast.expr, callers: Callers) -> bool:
    """Whether an argument of `parse_args` is None or `sys.argv[1:]`, directly or as a parameter."""
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
        bounds = value.slice
        is_rest = module.literal(bounds.lower) == 1 and bounds.upper is None and bounds.step is None
        return is_rest and module.dotted(value.value) == "sys.argv"
    if not isinstance(value, ast.Name):
        return module.literal(value) is None
    scope = module.owner(value)
    if isinstance(scope, ast.Module) or scope not in callers:
        return False
    if calls.assignments(module, scope, value.id):
        return False
    caller, call = callers[scope]
    argument = calls.argument_for(call, scope, value.id)
    if argument is not None:
        return _is_command_line(caller, argument, callers)
    return module.literal(calls.default_value(scope, value.id)) is None


class _ParserReader:
    """Collects the options of one parser from all code that adds to it."""

    def __init__(self, modules: Modules, callers: Callers, dead: Container[ast.AST]) -> None:
        self.modules = modules
        self.callers = callers
        self.dead = dead
        self.options: list[Option] = []
        self.allows_abbreviations = True
        self.has_other_sources = False
        self.kind = ARGPARSE
        self.constructor: ast.Call | None = None
        self.location: SourceLine | None = None
        self.visited: set[tuple[str, ast.AST, str]] = set()
        self.open_functions: list[ast.AST] = []

    def read_parser(self, module: Module, node: ast.expr, *, is_certain: bool) -> None:
        """Read the parser that an expression evaluates to."""
        if isinstance(node, ast.Name):
            self.read_variable(module, module.owner(node), node.id, is_certain=is_certain)
            return
        if not isinstance(node, ast.Call):
            raise Unclear("the parser is not a plain variable", module.location(node))
        name = module.dotted(node.func)
        if name in _ARGPARSE | _HF | _CONFIGARGPARSE:
            self.read_constructor(module, node, is_hf=name in _HF, is_certain=is_certain)
            return
        definition = self.modules.resolve(module, node.func)
        if definition is None or not isinstance(definition.node, Function):
            shown = name.lstrip("?.") or "a call"
            raise Unclear(f"`{shown}` creates the parser", module.location(node))
        self.read_returned(module, node, definition.module, definition.node, is_certain=is_certain)

    def read_constructor(
        self, module: Module, call: ast.Call, *, is_hf: bool, is_certain: bool
    ) -> None:
        """Read the call that creates the parser."""
        self.location = self.location or module.location(call)
        has_help = True
        plain = _PLAIN_ARGUMENTS | _HF_ARGUMENTS if is_hf else _PLAIN_ARGUMENTS
        if module.dotted(call.func) in _CONFIGARGPARSE:
            self.has_other_sources = True
            plain |= _CONFIGARGPARSE_ARGUMENTS
        for keyword in call.keywords:
            value = module.literal(keyword.value)
            if keyword.arg == "parents" and isinstance(keyword.value, ast.List | ast.Tuple):
                for parent in keyword.value.elts:
                    self.read_parser(module, parent, is_certain=is_certain)
            elif keyword.arg == "add_help" and isinstance(value, bool):
                has_help = value
            elif keyword.arg == "allow_abbrev" and isinstance(value, bool):
                self.allows_abbreviations = value
            elif keyword.arg not in plain:
                why = f"the parser is created with `{keyword.arg or '**'}`"
                raise Unclear(why, module.location(call))
        if has_help and not any("--help" in option.names for option in self.options):
            self.options.append(Option("help", ("-h", "--help"), module.location(call), 0, 0))
        if is_hf:
            self.kind = HF
            self.constructor = call
            self.options += hf_arguments.options(self.modules, module, call)

    def read_returned(
        self,
        module: Module,
        call: ast.Call,
        defining_module: Module,
        node: Function,
        *,
        is_certain: bool,
    ) -> None:
        """Read the parser that a function of the project returns."""
        if node.decorator_list or node in self.open_functions:
            raise Unclear(f"`{node.name}` is not a plain function", defining_module.location(node))
        values = {id(v): v for v in calls.returned_values(defining_module, node)}
        names = {v.id for v in values.values() if isinstance(v, ast.Name)}
        self.open_functions.append(node)
        if len(names) == 1 and all(isinstance(v, ast.Name) for v in values.values()):
            name = names.pop()
            argument = calls.argument_for(call, node, name)
            if argument is not None:
                self.read_parser(module, argument, is_certain=is_certain)
                self.read_uses(defining_module, node, name, is_certain=is_certain)
            else:
                self.read_variable(defining_module, node, name, is_certain=is_certain, call=call)
        elif len(values) == 1 and not names:
            self.read_parser(defining_module, next(iter(values.values())), is_certain=is_certain)
        else:
            why = f"`{node.name}` returns more than the parser"
            raise Unclear(why, defining_module.location(node))
        self.open_functions.pop()

    def read_variable(
        self,
        module: Module,
        scope: Scope,
        name: str,
        *,
        is_certain: bool,
        call: ast.Call | None = None,
    ) -> None:
        """Read a parser that is stored in a variable: its creation and each use of it.

        `call`: the call of the function that is the scope.
        """
        values = []
        for node in calls.assignments(module, scope, name):
            if call is not None and calls.is_unreachable(module, node, scope, call):
                continue
            statement = module.parents[node]
            value = getattr(statement, "value", None)
            if not isinstance(statement, ast.Assign | ast.AnnAssign) or value is None:
                raise Unclear(f"`{name}` is not a plain variable", module.location(node))
            if not _is_parsed(value, name) and not calls.receives(value, name):
                values.append(value)
        if len(values) != 1:
            raise Unclear(f"`{name}` is assigned in {len(values)} places", module.location(scope))
        runs_always = is_certain and calls.runs_unconditionally(module, values[0], scope)
        self.read_parser(module, values[0], is_certain=runs_always)
        self.read_uses(module, scope, name, is_certain=is_certain)

    def read_uses(self, module: Module, scope: Scope, name: str, *, is_certain: bool) -> None:
        """Read every use of a variable that holds the parser or a group of its options."""
        if (module.path, scope, name) in self.visited:
            return
        self.visited.add((module.path, scope, name))
        statements = (module.parents[node] for node in calls.assignments(module, scope, name))
        assigns = (n for n in statements if isinstance(n, ast.Assign))
        # after that line the name holds the parsed arguments
        last = min((n.lineno for n in assigns if _is_parsed(n.value, name)), default=None)
        if name in module.shared:
            raise Unclear(f"`{name}` is a global or nonlocal variable", module.location(scope))
        for node in module.names_by_id.get(name, []):
            if module.owner(node) is not scope or parameters.is_below(module, node, self.dead):
                continue
            if isinstance(node.ctx, ast.Load) and (last is None or node.lineno <= last):
                runs_always = is_certain and calls.runs_unconditionally(module, node, scope)
                self.read_use(module, scope, node, is_certain=runs_always)

    def read_use(self, module: Module, scope: Scope, node: ast.expr, *, is_certain: bool) -> None:
        """Read one use of the parser, or raise Unclear."""
        parent = module.parents[node]
        if isinstance(parent, ast.Attribute):
            self.read_attribute(module, scope, parent, is_certain=is_certain)
        elif isinstance(parent, ast.Call) and parent.func is not node:
            self.follow_argument(module, scope, parent, node, is_certain=is_certain)
        elif isinstance(parent, ast.keyword):
            call = module.parents[parent]
            if isinstance(call, ast.Call):
                self.follow_argument(module, scope, call, node, is_certain=is_certain)
        elif isinstance(parent, ast.List | ast.Tuple):
            # `parents=[parser]`: read_constructor() reads it
            keyword = module.parents[parent]
            if not isinstance(keyword, ast.keyword) or keyword.arg != "parents":
                raise Unclear("the parser is stored in a list", module.location(node))
        elif not isinstance(parent, ast.Return | ast.Expr):
            raise Unclear("the use of the parser is not understood", module.location(node))

    def read_attribute(
        self, module: Module, scope: Scope, node: ast.Attribute, *, is_certain: bool
    ) -> None:
        """Read an attribute or a method call of the parser."""
        call = module.parents[node]
        if isinstance(call, ast.Call) and call.func is node:
            if node.attr in ("add_argument", *(_ADD_NAMES if self.has_other_sources else ())):
                self.options += add_argument.options(module, call, is_certain=is_certain)
                return
            if node.attr in _GROUPS:
                self.read_group(module, scope, call, is_certain=is_certain)
                return
            if node.attr in PARSE_METHODS:
                check_parse(module, call, self.callers)
                return
        if node.attr not in _HARMLESS:
            raise Unclear(f"`{node.attr}` of the parser", module.location(node))

    def read_group(self, module: Module, scope: Scope, call: ast.Call, *, is_certain: bool) -> None:
        """Read a group of options."""
        parent = module.parents[call]
        if isinstance(parent, ast.Attribute):
            self.read_attribute(module, scope, parent, is_certain=is_certain)
            return
        if isinstance(parent, ast.Expr):
            return
        targets = parent.targets if isinstance(parent, ast.Assign) else []
        if len(targets) != 1 or not isinstance(targets[0], ast.Name):
            raise Unclear("the use of an option group is not understood", module.location(call))
        name = targets[0].id
        for node in calls.assignments(module, scope, name):
            value = getattr(module.parents[node], "value", None)
            func = getattr(value, "func", None)
            if getattr(func, "attr", "") not in (*_GROUPS, megatron_factory.METHOD):
                raise Unclear(f"`{name}` is not only an option group", module.location(node))
        self.read_uses(module, scope, name, is_certain=is_certain)

    def follow_argument(
        self, module: Module, scope: Scope, call: ast.Call, node: ast.expr, *, is_certain: bool
    ) -> None:
        """Follow the parser into a function of the project."""
        name = module.dotted(call.func)
        if name in library_functions.FUNCTIONS and _is_alias(module, call, node):
            self.options += library_functions.options(name, module.location(call))
        elif name not in _HARMLESS_CALLS:
            self.follow_function(module, scope, call, node, is_certain=is_certain)

    def follow_function(
        self, module: Module, scope: Scope, call: ast.Call, node: ast.expr, *, is_certain: bool
    ) -> None:
        """Follow the parser into the function that a call names."""
        name = module.dotted(call.func)
        maker = megatron_factory.factory(self.modules, module, call)
        if maker is not None:
            self.options += megatron_factory.options(self.modules, module, maker)
            self.read_group(module, scope, call, is_certain=is_certain)
            return
        definitions = [self.modules.resolve(module, call.func)]
        if isinstance(call.func, ast.Name) and module.is_local(call.func):
            arguments = parameters.values(module, call.func, self.callers)
            definitions = [self.modules.resolve(*value) for value in arguments]
            is_certain = False
        for definition in definitions:
            if definition is None:
                shown = name.lstrip("?.") or "a call"
                why = f"`{shown}` receives the parser and is not part of the project"
                raise Unclear(why, module.location(call))
            self.follow_definition(module, scope, call, node, definition, is_certain=is_certain)

    def follow_definition(
        self,
        module: Module,
        scope: Scope,
        call: ast.Call,
        node: ast.expr,
        definition: Definition,
        *,
        is_certain: bool,
    ) -> None:
        """Follow the parser into a function of the project."""
        function = definition.node
        if not isinstance(function, Function) or function.decorator_list:
            raise Unclear(f"`{function.name}` receives the parser", module.location(call))
        param = calls.parameter_for(call, function, node)
        if param is None:
            why = f"`{function.name}` receives the parser in an unclear way"
            raise Unclear(why, module.location(call))
        for stored in calls.assignments(definition.module, function, param):
            value = getattr(definition.module.parents[stored], "value", None)
            if value is None or not calls.receives(value, param):
                raise Unclear(f"`{param}` is assigned again", definition.module.location(stored))
        self.read_uses(definition.module, function, param, is_certain=is_certain)
        parent = module.parents[call]
        target = parent.targets[0] if isinstance(parent, ast.Assign) else None
        values = calls.returned_values(definition.module, function)
        is_alias = {getattr(value, "id", None) for value in values} == {param}
        if not isinstance(target, ast.Name):
            return
        if target.id == getattr(node, "id", None) and not is_alias:
            why = f"`{target.id}` is assigned the result of `{function.name}`"
            raise Unclear(why, module.location(call))
        if target.id != getattr(node, "id", None) and is_alias:
            self.read_uses(module, scope, target.id, is_certain=is_certain)


def _is_alias(module: Module, call: ast.Call, node: ast.expr) -> bool:
    """Whether the result of a call is unused, or assigned to the name of its argument again."""
    parent = module.parents[call]
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    return isinstance(parent, ast.Expr) or [getattr(t, "id", "") for t in targets] == [
        getattr(node, "id", None)
    ]


def _is_parsed(value: ast.expr, name: str) -> bool:
    """Whether a value is `NAME.parse_args()`, as in `args = args.parse_args()`."""
    func = getattr(value, "func", None)
    if not isinstance(func, ast.Attribute) or func.attr not in PARSE_METHODS:
        return False
    return isinstance(func.value, ast.Name) and func.value.id == name
