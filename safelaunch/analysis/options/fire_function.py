"""The options that Google's Fire makes of a function: its parameters, by name or in order.

Source: fire/core.py (0.7): `--x`, `-x`, dashes as underscores, `--nox` for false, one letter for
the only parameter that begins so; unknown ones are left over until the function has returned.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import FIRE, Flags, Option
from safelaunch.analysis.python.names import Function, Module, Modules
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAMES = frozenset({"fire.Fire", "fire.core.Fire"})
# Decorators that keep what Fire sees: it follows `__wrapped__`.
_KEEPING = frozenset(
    {"torch.distributed.elastic.multiprocessing.errors.record", "torch.no_grad"}
    | {"torch.inference_mode", "torch.enable_grad"}
)


def read(modules: Modules, module: Module, call: ast.Call) -> Flags:
    """Return the options of `fire.Fire(...)`; raise Unclear where the text does not say them."""
    said = {word.arg: word.value for word in call.keywords}
    place = module.place(call)
    if len(call.args) > 1 or not said.keys() <= {"component", "name", "serialize"}:
        raise Unclear("Fire gets more than what it shall run", place)
    component = call.args[0] if call.args else said.get("component")
    if component is None:
        names = (n.name for n in module.tree.body if isinstance(n, Function))
        functions = {name: module.top(name) for name in names}
        return Flags(FIRE, place, commands=dict(_commands(module, functions)))
    if isinstance(component, ast.Dict):
        named = {
            module.literal(key): v for key, v in zip(component.keys, component.values, strict=True)
        }
        found = {name: modules.resolve(module, value) for name, value in named.items()}
        commands: dict[str, Flags] = {}
        for name, it in found.items():
            if isinstance(name, str) and it is not None and isinstance(it.node, Function):
                commands.update(_commands(it.module, {name: it.node}))
        return Flags(FIRE, place, commands=commands)
    target = modules.resolve(module, component)
    if target is None or not isinstance(target.node, Function):
        raise Unclear("Fire runs an object whose parts are commands", place)
    return _of_function(target.module, target.node)


def _commands(
    module: Module, functions: Mapping[str, ast.AST | None]
) -> Iterator[tuple[str, Flags]]:
    """Yield the functions that can be read; of the others nothing is said."""
    for name, node in functions.items():
        if isinstance(node, Function):
            try:
                yield name, _of_function(module, node)
            except Unclear:
                continue


def _of_function(module: Module, node: Function) -> Flags:
    args, place = node.args, module.place(node)
    if args.kwarg is not None:
        raise Unclear(f"`{node.name}` takes any option by `**{args.kwarg.arg}`", place)
    for decorator in node.decorator_list:
        plain = decorator.func if isinstance(decorator, ast.Call) else decorator
        if module.dotted(plain) not in _KEEPING:
            raise Unclear(f"a decorator of `{node.name}` may change what it takes", place)
    ordered = [*args.posonlyargs, *args.args]
    missing: list[ast.expr | None] = [None] * (len(ordered) - len(args.defaults))
    pairs = [*zip(ordered, [*missing, *args.defaults], strict=True)]
    pairs += zip(args.kwonlyargs, args.kw_defaults, strict=True)
    options = [
        Option(
            arg.arg,
            (f"--{arg.arg}",),
            module.place(arg),
            least=0,
            required=default is None,
            is_on=module.literal(default) is True,
        )
        for arg, default in pairs
    ]
    if args.vararg is not None:
        options.append(Option(args.vararg.arg, (), module.place(node), 0, None))
    return Flags(FIRE, place, tuple(options), abbreviates=False)
