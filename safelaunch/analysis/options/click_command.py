"""The options of a click command: what its decorators say."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import CLICK, FLOAT, INT, Flags, Option
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from safelaunch.analysis.python.names import Function, Module

_READINGS = {"int": INT, "float": FLOAT, "click.INT": INT, "click.FLOAT": FLOAT}
_KEEPING = frozenset({"click.pass_context", "click.pass_obj"})


def is_command(module: Module, node: Function) -> bool:
    """Whether a function is a command of its own."""
    return any(module.dotted(_plain(d)) == "click.command" for d in node.decorator_list)


def _plain(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def read(module: Module, node: Function) -> Flags:
    """Return the options of a command; raise Unclear where the text does not say them."""
    place = module.place(node)
    options = []
    for decorator in node.decorator_list:
        name = module.dotted(_plain(decorator))
        if name == "click.command":
            _check_settings(module, decorator)
        elif name in ("click.option", "click.argument") and isinstance(decorator, ast.Call):
            options.append(_option(module, decorator, is_option=name == "click.option"))
        elif name == "click.version_option" and isinstance(decorator, ast.Call):
            if any(not isinstance(w.arg, str) for w in decorator.keywords):
                raise Unclear("an option's name is worked out as it runs", place)
            options.append(Option("version", ("--version",), place, 0, 0))
        elif name not in _KEEPING:
            raise Unclear(f"`{name or 'a decorator'}` may add options", place)
    options.append(Option("help", ("--help",), place, 0, 0))
    return Flags(CLICK, place, tuple(options), abbreviates=False)


def _check_settings(module: Module, decorator: ast.expr) -> None:
    words = decorator.keywords if isinstance(decorator, ast.Call) else []
    for word in words:
        if word.arg not in ("name", "help", "short_help", "epilog", "no_args_is_help"):
            raise Unclear(f"the command is made with `{word.arg or '**'}`", module.place(decorator))


def _option(module: Module, call: ast.Call, *, is_option: bool) -> Option:
    names = [module.literal(arg) for arg in call.args]
    said = {word.arg: word.value for word in call.keywords}
    if not names or None in said or "cls" in said or not all(isinstance(n, str) for n in names):
        raise Unclear("an option's name is worked out as it runs", module.place(call))
    place = module.place(call)
    if not is_option:
        return Option(names[0], (), place, None, None)
    pairs = [name for name in names if name.startswith("-")]
    flags = tuple(part.strip() for name in pairs for part in name.split("/") if part.strip())
    is_switch = any("/" in name for name in pairs) or _is_true(module, said, "is_flag")
    is_switch = is_switch or _is_true(module, said, "count")
    count = module.literal(said["nargs"]) if "nargs" in said else 1
    if type(count) is not int or count < 1:
        raise Unclear("an option's `nargs` is worked out as it runs", place)
    is_counted = not {"flag_value", "callback"} & said.keys() and "is_flag" not in said
    least = most = 0 if is_switch else count if is_counted else None
    kind = said.get("type")
    reading = "" if kind is None else _READINGS.get(module.dotted(kind), "")
    must = _is_true(module, said, "required") and not {"default", "envvar", "prompt"} & said.keys()
    return Option(
        dest=max(flags, key=len, default="").lstrip("-"),
        names=flags,
        place=place,
        least=least,
        most=most,
        reading=reading,
        choices=_choices(module, kind),
        required=must,
    )


def _is_true(module: Module, said: dict[str | None, ast.expr], name: str) -> bool:
    return name in said and module.literal(said[name]) is True


def _choices(module: Module, kind: ast.expr | None) -> tuple[str, ...]:
    is_choice = isinstance(kind, ast.Call) and module.dotted(kind.func) == "click.Choice"
    if not is_choice or not isinstance(kind, ast.Call) or len(kind.args) != 1 or kind.keywords:
        return ()
    found = module.literal(kind.args[0])
    known = isinstance(found, list | tuple) and all(isinstance(word, str) for word in found)
    return tuple(found) if known else ()
