"""Reads the options that Google's Fire derives from a function: its parameters.

Source: fire/core.py (0.7): `--x`, `-x`, dashes as underscores, `--nox` for false, one letter for
the only parameter that starts with it; unknown ones are refused after the function has returned.
"""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import FIRE, Option, ScriptOptions
from safelaunch.analysis.python.names import Function, Module, Modules
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIRE_CALLS = frozenset({"fire.Fire", "fire.core.Fire"})
# Decorators that keep the signature that Fire sees: it follows `__wrapped__`.
_HARMLESS_DECORATORS = (
    "torch.distributed.elastic.multiprocessing.errors.record", "torch.no_grad",
    "torch.inference_mode", "torch.enable_grad",
)  # fmt: skip


def read(modules: Modules, module: Module, call: ast.Call) -> ScriptOptions:
    """Return the options of `fire.Fire(...)`; raise Unclear if the text is not explicit."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    place = module.location(call)
    if len(call.args) > 1 or not keywords.keys() <= {"component", "name", "serialize"}:
        raise Unclear("Fire gets more arguments than the component to run", place)
    component = call.args[0] if call.args else keywords.get("component")
    if component is None:
        nodes = (node for node in module.tree.body if isinstance(node, Function))
        functions = {node.name: module.top_level(node.name) for node in nodes}
        return ScriptOptions(FIRE, place, commands=dict(_commands(module, functions)))
    if isinstance(component, ast.Dict):
        commands: dict[str, ScriptOptions] = {}
        for key, value in zip(component.keys, component.values, strict=True):
            name, definition = module.literal(key), modules.resolve(module, value)
            if isinstance(name, str) and definition is not None:
                commands.update(_commands(definition.module, {name: definition.node}))
        return ScriptOptions(FIRE, place, commands=commands)
    target = modules.resolve(module, component)
    if target is None or not isinstance(target.node, Function):
        raise Unclear("Fire runs an object whose members are commands", place)
    return _function_options(target.module, target.node)


def _commands(
    module: Module, functions: Mapping[str, ast.AST | None]
) -> Iterator[tuple[str, ScriptOptions]]:
    """Yield (name, options) of the functions that can be read; skip the others."""
    for name, node in functions.items():
        with contextlib.suppress(Unclear):
            if isinstance(node, Function):
                yield name, _function_options(module, node)


def _function_options(module: Module, node: Function) -> ScriptOptions:
    args, place = node.args, module.location(node)
    if args.kwarg is not None:
        raise Unclear(f"`{node.name}` takes any option by `**{args.kwarg.arg}`", place)
    for decorator in node.decorator_list:
        plain = decorator.func if isinstance(decorator, ast.Call) else decorator
        if module.dotted(plain) not in _HARMLESS_DECORATORS:
            raise Unclear(f"a decorator of `{node.name}` may change what it takes", place)
    ordered = [*args.posonlyargs, *args.args]
    missing: list[ast.expr | None] = [None] * (len(ordered) - len(args.defaults))
    pairs = [*zip(ordered, [*missing, *args.defaults], strict=True)]
    pairs += zip(args.kwonlyargs, args.kw_defaults, strict=True)
    options = [
        Option(
            arg.arg,
            (f"--{arg.arg}",),
            module.location(arg),
            min_values=0,
            required=default is None,
            default_is_true=module.literal(default) is True,
        )
        for arg, default in pairs
    ]
    if args.vararg is not None:
        options.append(Option(args.vararg.arg, (), module.location(node), 0, None))
    return ScriptOptions(FIRE, place, tuple(options), allows_abbreviations=False)
