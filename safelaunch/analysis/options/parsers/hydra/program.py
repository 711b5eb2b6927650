"""Reads the decorator `@hydra.main` of a program."""

# ruff: noqa: PLC0415 - the rules are imported only for a program that has the decorator

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import HYDRA, ScriptOptions
from safelaunch.analysis.python.module_search import find_module
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.analysis.python.names import Function, Module, Modules

DECORATOR = "hydra.main"
_ARGUMENTS = ("config_path", "config_name", "version_base")
# What adds configurations, or folders to the search path, in code.
_CODE_CONFIGS = re.compile(rb"ConfigStore|hydra_zen|SearchPathPlugin")


def read(
    modules: Modules,
    module: Module,
    function: Function,
    files: Iterable[str],
    working_dir: str | None,
) -> ScriptOptions:
    """Return the rules of a function with the decorator; raise Unclear if it is not explicit."""
    from safelaunch.analysis.options.parsers.hydra.rules import HydraProgram, HydraRules

    decorators = [d for d in function.decorator_list if _is_main(module, d)]
    place = module.location(decorators[0])
    if len(function.decorator_list) > 1 and decorators[0] is not function.decorator_list[0]:
        raise Unclear("a decorator above `hydra.main` may change it", place)
    call = decorators[0]
    values: dict[str, str | None] = {}
    if isinstance(call, ast.Call):
        arguments = [*zip(_ARGUMENTS, call.args, strict=False)]
        arguments += [(keyword.arg or "", keyword.value) for keyword in call.keywords]
        for name, node in arguments:
            value = module.literal(node)
            if name not in _ARGUMENTS or not isinstance(value, str | None):
                raise Unclear("an argument of `hydra.main` is computed at run time", place)
            values[name] = value
    base = values.get("version_base", "1.1")
    is_legacy = base is not None and re.match(r"1\.[01](?:\D|$)", base) is not None
    has_code_configs = any(_CODE_CONFIGS.search(modules.trees.data(p) or b"") for p in files)
    if is_legacy and has_code_configs:
        raise Unclear("Hydra 1.1 merges configurations of code and files by their names", place)

    def package_folder(name: str) -> str | None:
        folders: tuple[str, ...] = tuple(modules.folders)
        for part in name.split("."):
            package = find_module(part, folders)
            if package is None:
                return None
            folders = package.folders
        return folders[0] if len(folders) == 1 else None

    default = "." if is_legacy else None
    program = HydraProgram(
        location=place,
        folder=os.path.dirname(os.path.realpath(module.path)),
        config_path=values.get("config_path", default),
        config_name=values.get("config_name"),
        working_dir=working_dir,
        package_folder=package_folder,
        uses_yml=is_legacy,
        has_code_configs=has_code_configs,
    )
    return ScriptOptions(HYDRA, place, rules=HydraRules(program))


def is_main(module: Module, function: Function) -> bool:
    """Whether a function has the decorator."""
    return any(_is_main(module, decorator) for decorator in function.decorator_list)


def _is_main(module: Module, decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return module.dotted(name) == DECORATOR
