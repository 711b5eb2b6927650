"""Reads programs of `jsonargparse.CLI(...)`: parameters of functions and classes as arguments.

Source: jsonargparse 4.28 and 4.53, _cli.py and _signatures.py: a required parameter is a positional
argument, or an option with `as_positional=False`; a class has its methods as subcommands.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import ScriptOptions
from safelaunch.analysis.options.parsers.jsonargparse import signature
from safelaunch.analysis.options.parsers.jsonargparse.rules import ConfigKeys, DottedOptionRules
from safelaunch.analysis.python.names import Definition, Function
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from safelaunch.analysis.options.parsers.jsonargparse.signature import CallSignature
    from safelaunch.analysis.python.names import Module, Modules

KIND = "jsonargparse"
CALLS = frozenset({"jsonargparse.CLI", "jsonargparse.auto_cli"})
# what changes nothing of the arguments
_HARMLESS = frozenset({"config_help", "fail_untyped", "instantiators", "description", "prog"})
# names that the parser itself has
_RESERVED = frozenset({"config", "print_config", "help", "subcommand"})


def read(
    modules: Modules,
    module: Module,
    call: ast.Call,
    cwd: str | None,
    files: Iterable[str],
) -> ScriptOptions:
    """Return the rules of `CLI(...)`; raise Unclear if the text is not explicit."""
    place = module.location(call)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    components = call.args[0] if call.args else keywords.pop("components", None)
    if components is None or len(call.args) > 1 or isinstance(components, ast.Starred):
        raise Unclear("what `jsonargparse.CLI` runs is not explicit", place)
    if "args" in keywords and module.literal(keywords["args"]) is None:
        del keywords["args"]
    is_positional = module.literal(keywords.pop("as_positional", ast.Constant(value=True)))
    changes = sorted(str(name) for name in keywords if name not in _HARMLESS)
    if changes or not isinstance(is_positional, bool):
        name = (changes or ["as_positional"])[0]
        raise Unclear(f"`{name}` changes the parser of `jsonargparse.CLI`", place)
    if any(b"set_parsing_settings" in (modules.trees.data(path) or b"") for path in files):
        raise Unclear("the program changes jsonargparse's settings", place)
    reader = _ComponentReader(modules, module, is_positional=is_positional)
    return ScriptOptions(KIND, place, rules=reader.rules(components, cwd))


class _ComponentReader:
    """Reads the functions and classes that a call of `CLI` runs."""

    def __init__(self, modules: Modules, module: Module, *, is_positional: bool) -> None:
        self.modules = modules
        self.module = module
        self.is_positional = is_positional

    def rules(self, components: ast.expr, cwd: str | None) -> DottedOptionRules:
        """Return the rules of a function, a class, or several of them by name."""
        place = self.module.location(components)
        if isinstance(components, ast.List) and len(components.elts) == 1:
            components = components.elts[0]
        if isinstance(components, ast.List | ast.Dict):
            commands: dict[str, ConfigKeys] = {}
            for name, node in self.named(components):
                definition = self.definition(node)
                if isinstance(definition.node, ast.ClassDef) and _methods(definition):
                    raise Unclear("a subcommand has subcommands of its own", place)
                commands[name] = self.keys(definition)
            return DottedOptionRules(commands, place, cwd, _with_commands(ConfigKeys({}), commands))
        definition = self.definition(components)
        keys = self.keys(definition)
        methods = _methods(definition) if isinstance(definition.node, ast.ClassDef) else ()
        if not methods:
            return DottedOptionRules({"": keys}, place, cwd)
        if keys.positionals is None:
            raise Unclear("which argument is the subcommand is not certain", place)
        commands = {
            name: self.keys_of(signature.of_method(definition, name), definition)
            for name in methods
        }
        return DottedOptionRules(commands, place, cwd, _with_commands(keys, commands))

    def named(self, components: ast.List | ast.Dict) -> Iterator[tuple[str, ast.expr]]:
        """Yield the names of subcommands, each with its function."""
        if isinstance(components, ast.List):
            for node in components.elts:
                definition = self.definition(node)
                yield definition.node.name, node
            return
        for key, node in zip(components.keys, components.values, strict=True):
            name = self.module.literal(key)
            if not isinstance(name, str) or name.startswith("_") or "." in name:
                place = self.module.location(components)
                raise Unclear("a subcommand's name is not explicit", place)
            yield name, node

    def definition(self, node: ast.expr) -> Definition:
        """Return the function or class that an expression names."""
        definition = self.modules.resolve(self.module, node)
        if definition is None:
            raise Unclear("what `jsonargparse.CLI` runs is not read", self.module.location(node))
        module = definition.module
        for use in module.names_by_id.get(definition.node.name, []):
            if _is_changed(module, use):
                name = definition.node.name
                raise Unclear(f"the program changes `{name}`", module.location(use))
        return definition

    def keys(self, definition: Definition) -> ConfigKeys:
        """Return the arguments of a function, or those that create a class."""
        node = definition.node
        if isinstance(node, ast.ClassDef) and not node.bases and not node.decorator_list:
            names = {part.name for part in node.body if isinstance(part, Function)}
            if names.isdisjoint(("__init__", "__new__")) and not node.keywords:
                return ConfigKeys({})
        return self.keys_of(signature.of_definition(self.modules, definition), definition)

    def keys_of(self, taken: CallSignature, definition: Definition) -> ConfigKeys:
        """Return the options and positional arguments of parameters."""
        place = definition.module.location(definition.node)
        names = {parameter.name for parameter in taken.parameters}
        if taken.is_open or names & _RESERVED:
            raise Unclear(f"what `{definition.node.name}` takes is not certain", place)
        keys, positionals, is_certain = {}, [], True
        for parameter in taken.parameters:
            is_required = not parameter.has_default and not parameter.accepts_none
            if is_required and self.is_positional:
                positionals.append(parameter)
                is_plain = bool(parameter.value_type) and not parameter.name.startswith("_")
                # a keyword-only one is positional in 4.28, an option in 4.53
                is_certain &= is_plain and not parameter.is_keyword_only
            else:
                keys[parameter.name] = parameter
        if not is_certain:  # a dataclass is no positional argument, a list is
            every = {parameter.name: parameter for parameter in taken.parameters}
            return ConfigKeys(every, positionals=None, checks_required=False)
        return ConfigKeys(keys, positionals=tuple(positionals))


def _with_commands(keys: ConfigKeys, commands: Mapping[str, ConfigKeys]) -> ConfigKeys:
    """Return keys of which a file may also have those of the subcommands."""
    return keys._replace(open_prefixes=frozenset({"subcommand", *commands}))


def _is_changed(module: Module, use: ast.Name) -> bool:
    """Whether a use of a class or function sets one of its attributes."""
    parent = module.parents.get(use)
    if isinstance(parent, ast.Attribute):
        return not isinstance(parent.ctx, ast.Load)
    return isinstance(parent, ast.Call) and module.dotted(parent.func) == "setattr"


def _methods(definition: Definition) -> tuple[str, ...]:
    """Return the public methods of a class; raise Unclear if there may be others."""
    module, cls = definition
    names = []
    for part in cls.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            if not part.name.startswith("_"):
                names.append(part.name)
        elif not (isinstance(part, ast.Pass | ast.Expr) or _is_plain_value(part)):
            raise Unclear(f"the members of `{cls.name}` are not certain", module.location(part))
    if not isinstance(cls, ast.ClassDef) or cls.bases or cls.keywords or cls.decorator_list:
        raise Unclear(f"`{cls.name}` may have more methods", module.location(cls))
    return tuple(sorted(names))


def _is_plain_value(statement: ast.stmt) -> bool:
    """Whether a statement of a class binds what cannot be called."""
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None or isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
