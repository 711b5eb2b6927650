"""Reads the options of a click command, or of the commands of a group, from their decorators."""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import CLICK, FLOAT, INT, Option, ScriptOptions
from safelaunch.analysis.python.names import Function
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from safelaunch.analysis.python.names import Module

_VALUE_TYPES = {"int": INT, "float": FLOAT, "click.INT": INT, "click.FLOAT": FLOAT}
_HARMLESS_DECORATORS = frozenset({"click.pass_context", "click.pass_obj"})
_NAME_ENDS = ("-command", "-cmd", "-group", "-grp")
_COMMAND_ARGUMENTS = ("name", "help", "short_help", "epilog", "no_args_is_help")


def is_command(module: Module, node: Function) -> bool:
    """Whether a function has the decorator `click.command` or `click.group`."""
    return _has(module, node, "click.command") or _has(module, node, "click.group")


def _has(module: Module, node: Function, name: str) -> bool:
    return any(module.dotted(_decorator_name(d)) == name for d in node.decorator_list)


def _decorator_name(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def read(module: Module, node: Function) -> ScriptOptions:
    """Return the options of a command or group; raise Unclear if the text is not explicit."""
    if not _has(module, node, "click.group"):
        return _command(module, node, "click.command")
    # the options of the group itself come first, and then nothing is judged
    for decorator in node.decorator_list:
        keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
        is_group = module.dotted(_decorator_name(decorator)) == "click.group"
        if is_group and any(
            k.arg not in (*_COMMAND_ARGUMENTS, "invoke_without_command") for k in keywords
        ):
            raise Unclear("the group is created with more arguments", module.location(decorator))
    commands: dict[str, ScriptOptions] = {}
    for function in (n for n in module.tree.body if isinstance(n, Function)):
        if _has(module, function, f"{node.name}.command"):
            name = _command_name(module, function, f"{node.name}.command")
            with contextlib.suppress(Unclear):
                commands[name] = _command(module, function, f"{node.name}.command")
    if not commands:
        raise Unclear("the commands of the group are not in its file", module.location(node))
    return ScriptOptions(CLICK, module.location(node), commands=commands)


def _command_name(module: Module, node: Function, decorator_name: str) -> str:
    """Return the word that selects a command; an empty one if it is computed."""
    for decorator in node.decorator_list:
        if module.dotted(_decorator_name(decorator)) == decorator_name:
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
            named = [keyword.value for keyword in keywords if keyword.arg == "name"]
            named += decorator.args[:1] if isinstance(decorator, ast.Call) else []
            name = module.literal(named[0]) if named else None
            if named:
                return name if isinstance(name, str) else ""
    stem = node.name.lower().replace("_", "-")
    for end in _NAME_ENDS:  # since click 8.2
        stem = stem.removesuffix(end)
    return stem


def _command(module: Module, node: Function, command_name: str) -> ScriptOptions:
    """Return the options of a function with the decorator of this name."""
    place = module.location(node)
    options = []
    for decorator in node.decorator_list:
        name = module.dotted(_decorator_name(decorator))
        if name == command_name:
            for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
                if keyword.arg not in _COMMAND_ARGUMENTS:
                    why = f"the command is created with `{keyword.arg or '**'}`"
                    raise Unclear(why, module.location(decorator))
        elif name in ("click.option", "click.argument") and isinstance(decorator, ast.Call):
            options.append(_option(module, decorator, is_option=name == "click.option"))
        elif name == "click.version_option" and isinstance(decorator, ast.Call):
            if any(not isinstance(keyword.arg, str) for keyword in decorator.keywords):
                raise Unclear("an option's name is computed at run time", place)
            options.append(Option("version", ("--version",), place, 0, 0))
        elif name not in _HARMLESS_DECORATORS:
            raise Unclear(f"`{name or 'a decorator'}` may add options", place)
    options.append(Option("help", ("--help",), place, 0, 0))
    return ScriptOptions(CLICK, place, tuple(options), allows_abbreviations=False)


def _option(module: Module, call: ast.Call, *, is_option: bool) -> Option:
    names = [module.literal(arg) for arg in call.args]
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    place = module.location(call)
    is_literal = bool(names) and all(isinstance(name, str) for name in names)
    if not is_literal or None in keywords or "cls" in keywords:
        raise Unclear("an option's name is computed at run time", place)
    if not is_option:
        return Option(names[0], (), place, None, None)
    spellings = [name for name in names if name.startswith("-")]
    flags = tuple(part.strip() for name in spellings for part in name.split("/") if part.strip())
    is_switch = any("/" in name for name in spellings) or _is_true(module, keywords, "is_flag")
    is_switch = is_switch or _is_true(module, keywords, "count")
    count = module.literal(keywords["nargs"]) if "nargs" in keywords else 1
    if type(count) is not int or count < 1:
        raise Unclear("an option's `nargs` is computed at run time", place)
    is_counted = not {"flag_value", "callback"} & keywords.keys() and "is_flag" not in keywords
    min_values = max_values = 0 if is_switch else count if is_counted else None
    kind = keywords.get("type")
    value_type = "" if kind is None else _VALUE_TYPES.get(module.dotted(kind), "")
    has_other_source = {"default", "envvar", "prompt"} & keywords.keys()
    return Option(
        dest=max(flags, key=len, default="").lstrip("-"),
        names=flags,
        location=place,
        min_values=min_values,
        max_values=max_values,
        value_type=value_type,
        choices=_choices(module, kind),
        required=_is_true(module, keywords, "required") and not has_other_source,
    )


def _is_true(module: Module, keywords: dict[str | None, ast.expr], name: str) -> bool:
    return name in keywords and module.literal(keywords[name]) is True


def _choices(module: Module, kind: ast.expr | None) -> tuple[str, ...]:
    is_choice = isinstance(kind, ast.Call) and module.dotted(kind.func) == "click.Choice"
    if not is_choice or not isinstance(kind, ast.Call) or len(kind.args) != 1 or kind.keywords:
        return ()
    choices = module.literal(kind.args[0])
    are_texts = isinstance(choices, list | tuple) and all(isinstance(word, str) for word in choices)
    return tuple(choices) if are_texts else ()
