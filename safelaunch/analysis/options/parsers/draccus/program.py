"""Reads calls of draccus and pyrallis: `@draccus.wrap()`, `pyrallis.parse(Config)` and LeRobot's.

Source: argparsing.py of draccus 0.10 and 0.11.6 and of pyrallis 0.3.1; LeRobot 0.4 and 0.6,
configs/parser.py: `wrap` takes `--policy.path PATH` and all below `--policy.` out of the words.
"""

# ruff: noqa: PLC0415 - the rules are imported only for a program that has such a call

from __future__ import annotations

import ast
import os
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import ScriptOptions
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from safelaunch.analysis.options.parsers.draccus.rules import Dialect
    from safelaunch.analysis.python.names import Definition, Function, Module, Modules
    from safelaunch.analysis.python.trees import SourceLine

KINDS = ("draccus", "pyrallis")
_CALLS = frozenset(f"{kind}{part}.parse" for kind in KINDS for part in ("", ".argparsing"))
_DECORATORS = frozenset(f"{kind}{part}.wrap" for kind in KINDS for part in ("", ".argparsing"))
_LEROBOT_DECORATOR = "configs.parser.wrap"
_LEROBOT_MARKS = ("draccus.parse(", "filter_path_args")
# What converts values in another way, or reads them in another format.
_CHANGES = (b"decode.register", b"set_config_type", b"with_config_type", b"register_decoder")
_PARSE_ARGUMENTS = ("config_class", "config_path", "args")
_HARMLESS = frozenset({"prog", "preferred_help", "exit_on_error"})


def is_main(module: Module, function: Function) -> bool:
    """Whether a function has a decorator that parses the command line when it is called."""
    return any(_is_main(module, decorator) for decorator in function.decorator_list)


def is_call(module: Module, call: ast.Call) -> bool:
    """Whether a call parses the words of the command line itself, and not others."""
    if module.dotted(call.func) not in _CALLS:
        return False
    words = next((k.value for k in call.keywords if k.arg == "args"), None)
    place = _PARSE_ARGUMENTS.index("args")
    if words is None and len(call.args) > place:
        words = call.args[place]
    return words is None or module.literal(words) is None


def read_main(
    modules: Modules, module: Module, function: Function, files: Iterable[str]
) -> ScriptOptions:
    """Return the rules of a function with the decorator; raise Unclear if it is not explicit."""
    decorator = function.decorator_list[0]
    place = module.location(decorator)
    if not _is_main(module, decorator):
        raise Unclear("a decorator above the one that parses the options may change it", place)
    keywords: dict[str | None, ast.expr] = {}
    if isinstance(decorator, ast.Call):
        keywords |= zip(("config_path",), decorator.args, strict=False)
        keywords |= {keyword.arg: keyword.value for keyword in decorator.keywords}
    first = next(iter([*function.args.posonlyargs, *function.args.args]), None)
    if first is None or first.annotation is None:
        raise Unclear("the class of the options has no name", place)
    if _name(module, decorator).endswith(_LEROBOT_DECORATOR):
        text = modules.text("lerobot.configs.parser")
        if not all(mark in text for mark in _LEROBOT_MARKS):
            raise Unclear("this version of LeRobot's parser is not known", place)
    _check_explicit(modules, keywords, files, place)
    definition = modules.resolve_class(module, first.annotation)
    dialect = _dialect(modules, module, _name(module, decorator), keywords)
    return _options(modules, definition, dialect, files, place)


def read(modules: Modules, module: Module, call: ast.Call, files: Iterable[str]) -> ScriptOptions:
    """Return the rules of `parse(Config)`; raise Unclear if the call is not explicit."""
    place = module.location(call)
    if len(call.args) > len(_PARSE_ARGUMENTS):
        raise Unclear("the parser gets more arguments than a class", place)
    keywords: dict[str | None, ast.expr] = dict(zip(_PARSE_ARGUMENTS, call.args, strict=False))
    keywords |= {keyword.arg: keyword.value for keyword in call.keywords}
    keywords.pop("args", None)
    target = keywords.pop("config_class", None)
    _check_explicit(modules, keywords, files, place)
    definition = None if target is None else modules.resolve_class(module, target)
    dialect = _dialect(modules, module, module.dotted(call.func), keywords)
    return _options(modules, definition, dialect, files, place)


def _check_explicit(
    modules: Modules,
    keywords: Mapping[str | None, ast.expr],
    files: Iterable[str],
    place: SourceLine,
) -> None:
    """Raise Unclear where other arguments, or code of the program, change what is accepted."""
    if not keywords.keys() <= {"config_path", *_HARMLESS}:
        raise Unclear("the parser gets more arguments than a class", place)
    for path in files:
        data = modules.trees.data(path) or b""
        if any(mark in data for mark in _CHANGES):
            raise Unclear("the program converts options by functions of its own", place)


def _dialect(
    modules: Modules, module: Module, name: str, keywords: Mapping[str | None, ast.expr]
) -> Dialect:
    """Return how a function of that name parses."""
    from safelaunch.analysis.options.parsers.draccus.rules import Dialect

    path = keywords.get("config_path")
    is_draccus = not name.startswith("pyrallis")
    is_lerobot = name.endswith(_LEROBOT_DECORATOR)
    text = modules.text("draccus.argparsing") if is_draccus else ""
    return Dialect(
        name=KINDS[0] if is_draccus else KINDS[1],
        is_lerobot=is_lerobot,
        allows_abbreviations="allow_abbrev" not in text,
        has_file=path is not None and module.literal(path) is not None,
        has_plugins=is_lerobot and _has_plugins(modules),
    )


def _options(
    modules: Modules,
    config: Definition | None,
    dialect: Dialect,
    files: Iterable[str],
    place: SourceLine,
) -> ScriptOptions:
    """Return the rules of a class of options."""
    from safelaunch.analysis.options.parsers.draccus.config_classes import ConfigClasses
    from safelaunch.analysis.options.parsers.draccus.rules import DraccusRules

    if config is None:
        raise Unclear("the class of the options is not read", place)
    classes = ConfigClasses(modules, files, is_draccus=dialect.is_draccus)
    classes.fields(config)
    rules = DraccusRules(classes, config, dialect, place)
    return ScriptOptions(dialect.name, place, rules=rules)


def _has_plugins(modules: Modules) -> bool:
    """Whether packages may be installed that LeRobot imports by their name, to add choices."""
    folders = modules.library_folders()
    if folders is None:
        return True
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        if any(name.startswith("lerobot_") for name in names):
            return True
    return False


def _is_main(module: Module, decorator: ast.expr) -> bool:
    name = _name(module, decorator)
    return name in _DECORATORS or name.endswith(_LEROBOT_DECORATOR)


def _name(module: Module, decorator: ast.expr) -> str:
    return module.dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
