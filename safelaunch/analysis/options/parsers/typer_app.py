"""Reads the options that typer derives from the parameters of functions.

Source: typer 0.29.2, `get_click_param` of typer/main.py: a parameter with a default is an option
`--its-name`, one without is positional; a bool has `--x` and `--no-x`; a list may be repeated.
"""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.option_model import CLICK, FLOAT, INT, Option, ScriptOptions
from safelaunch.analysis.python.names import Function
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.analysis.python.names import Module, Modules

RUN = "typer.run"
_APP = "typer.Typer"
_APP_ARGUMENTS = frozenset((
    "name", "help", "epilog", "short_help", "add_completion", "no_args_is_help", "hidden",
    "deprecated", "rich_markup_mode", "rich_help_panel", "pretty_exceptions_enable",
    "pretty_exceptions_show_locals", "pretty_exceptions_short", "suggest_commands",
))  # fmt: skip
_COMMAND_ARGUMENTS = frozenset((
    "name", "help", "epilog", "short_help", "no_args_is_help", "hidden", "deprecated",
    "rich_help_panel",
))  # fmt: skip
# With these an option has other values, or none is required.
_OWN_VALUES = {"count", "parser", "click_type", "is_flag", "flag_value", "callback", "is_eager"}
_OTHER_SOURCES = {"envvar", "prompt", "default_factory"}
_CONTEXTS = ("typer.Context", "click.Context", "typer.CallbackParam")
_VALUE_TYPES = {"int": INT, "float": FLOAT}
_LISTS = ("list", "List", "Sequence", "set", "Set")


class _Command(NamedTuple):
    """A function with `@app.command()`, and the name that selects it."""

    name: str
    node: Function
    is_plain: bool


def is_call(module: Module, call: ast.Call) -> bool:
    """Whether a call is `typer.run(...)`, or `app()` of a Typer of the same file."""
    return module.dotted(call.func) == RUN or _app(module, call.func) is not None


def read(modules: Modules, module: Module, call: ast.Call) -> ScriptOptions:
    """Return the options of `typer.run(f)` or `app()`; raise Unclear if not explicit."""
    place = module.location(call)
    if module.dotted(call.func) == RUN:
        target = modules.resolve(module, call.args[0]) if len(call.args) == 1 else None
        if target is None or not isinstance(target.node, Function):
            raise Unclear("what typer runs is not part of the project", place)
        return _options(modules, target.module, target.node)
    app = _app(module, call.func)
    if app is None or call.args or call.keywords or not isinstance(call.func, ast.Name):
        raise Unclear("the call of the Typer is not understood", place)
    if app.args or not {keyword.arg for keyword in app.keywords} <= _APP_ARGUMENTS:
        raise Unclear("the Typer is created with more arguments", module.location(app))
    commands, has_callback = _commands(module, call.func.id)
    if len(commands) == 1 and not has_callback:
        if not commands[0].is_plain:
            raise Unclear("the command is created with more arguments", place)
        return _options(modules, module, commands[0].node)
    result: dict[str, ScriptOptions] = {}
    for command in commands:
        with contextlib.suppress(Unclear):
            if command.is_plain:
                result[command.name] = _options(modules, module, command.node)
    if not result:
        raise Unclear("the commands of the Typer are not in its file", place)
    return ScriptOptions(CLICK, place, commands=result)


def _app(module: Module, node: ast.expr) -> ast.Call | None:
    """Return the call that creates the Typer of a variable of the file, or None."""
    if not isinstance(node, ast.Name) or module.bindings.get(node.id) != 1:
        return None
    stores = [n for n in module.names_by_id.get(node.id, []) if isinstance(n.ctx, ast.Store)]
    value = getattr(module.parents[stores[0]], "value", None) if len(stores) == 1 else None
    is_app = isinstance(value, ast.Call) and module.dotted(value.func) == _APP
    return value if is_app and isinstance(value, ast.Call) else None


def _commands(module: Module, app: str) -> tuple[list[_Command], bool]:
    """Return the commands of a Typer, and whether it has a callback; raise Unclear for others."""
    commands: list[_Command] = []
    has_callback = False
    for name in module.names_by_id[app]:
        if not isinstance(name.ctx, ast.Load):
            continue
        attribute = module.parents[name]
        if isinstance(attribute, ast.Call) and attribute.func is name:
            continue
        decorator = module.parents[attribute]
        node = module.parents.get(decorator)
        kind = attribute.attr if isinstance(attribute, ast.Attribute) else ""
        is_decorator = isinstance(node, Function) and decorator in node.decorator_list
        if not is_decorator or kind not in ("command", "callback"):
            raise Unclear("the use of the Typer is not understood", module.location(name))
        if kind == "callback":
            has_callback = True
        elif isinstance(node, Function) and isinstance(decorator, ast.Call):
            commands.append(_command(module, node, decorator))
    return commands, has_callback


def _command(module: Module, node: Function, decorator: ast.Call) -> _Command:
    keywords = {keyword.arg: keyword.value for keyword in decorator.keywords}
    named = decorator.args[0] if decorator.args else keywords.get("name")
    name = node.name.lower().replace("_", "-") if named is None else module.literal(named)
    is_plain = keywords.keys() <= _COMMAND_ARGUMENTS and isinstance(name, str)
    return _Command(str(name), node, is_plain and len(node.decorator_list) == 1)


def _options(modules: Modules, module: Module, node: Function) -> ScriptOptions:
    """Return the options of a function."""
    args, place = node.args, module.location(node)
    if args.vararg or args.kwarg or args.posonlyargs:
        raise Unclear(f"the options of `{node.name}` are not certain", place)
    missing: list[ast.expr | None] = [None] * (len(args.args) - len(args.defaults))
    pairs = [*zip(args.args, [*missing, *args.defaults], strict=True)]
    pairs += zip(args.kwonlyargs, args.kw_defaults, strict=True)
    options = [option for arg, value in pairs for option in _option(modules, module, arg, value)]
    options.append(Option("help", ("--help",), place, 0, 0))
    options += [Option(n[2:], (n,), place, None, None) for n in _COMPLETION]
    return ScriptOptions(CLICK, place, tuple(options), allows_abbreviations=False)


_COMPLETION = ("--install-completion", "--show-completion")


def _option(
    modules: Modules, module: Module, arg: ast.arg, default: ast.expr | None
) -> Iterator[Option]:
    """Yield the option or positional argument of a parameter."""
    annotation, place = arg.annotation, module.location(arg)
    if annotation is None or isinstance(annotation, ast.Constant):
        raise Unclear(f"the type of `{arg.arg}` is not certain", place)
    info: ast.Call | None = None
    has_default = default is not None
    words: list[ast.expr] = []
    if isinstance(annotation, ast.Subscript) and module.dotted(annotation.value).endswith(
        "Annotated"
    ):
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
        calls = [part for part in parts[1:] if isinstance(part, ast.Call)]
        infos = [c for c in calls if module.dotted(c.func).startswith("typer.")]
        if not parts or len(infos) > 1 or len(infos) < len(parts) - 1:
            raise Unclear(f"the type of `{arg.arg}` is not certain", place)
        annotation, info = parts[0], infos[0] if infos else None
        words = [] if info is None else list(info.args)
    elif isinstance(default, ast.Call) and module.dotted(default.func).startswith("typer."):
        info = default
        words = info.args[1:]
        keywords = {keyword.arg: keyword.value for keyword in info.keywords}
        first = info.args[0] if info.args else keywords.get("default", ast.Constant(...))
        has_default = module.literal(first) is not ...
    if module.dotted(annotation) in _CONTEXTS:
        return
    kind = "" if info is None else module.dotted(info.func).rpartition(".")[2]
    keywords = {} if info is None else {k.arg: k.value for k in info.keywords}
    if None in keywords or kind not in ("", "Option", "Argument"):
        raise Unclear(f"the option of `{arg.arg}` is not certain", place)
    if kind == "Argument" or (not kind and not has_default):
        yield Option(arg.arg, (), place, None, None)
        return
    is_required = not has_default and not keywords.keys() & _OTHER_SOURCES
    shape = _named(modules, module, annotation, frozenset(map(str, keywords)))
    is_bool = module.dotted(_without_none(module, annotation)) == "bool"
    names = _names(module, words, arg, is_bool=is_bool)
    yield shape._replace(dest=arg.arg, names=names, location=place, required=is_required)


def _names(
    module: Module, words: list[ast.expr], arg: ast.arg, *, is_bool: bool
) -> tuple[str, ...]:
    """Return the spellings of an option."""
    spelled = [module.literal(word) for word in words]
    if not all(isinstance(word, str) for word in spelled):
        raise Unclear("an option's name is computed at run time", module.location(arg))
    dashed = arg.arg.replace("_", "-")
    names = [part.strip() for word in spelled if word[:1] == "-" for part in word.split("/")]
    if not names:
        names = [f"--{dashed}", *([f"--no-{dashed}"] if is_bool else [])]
    return tuple(filter(None, names))


def _named(
    modules: Modules, module: Module, annotation: ast.expr, keywords: frozenset[str]
) -> Option:
    """Return an option without its names, of a parameter with this type."""
    inner = _without_none(module, annotation)
    low: int | None = 1
    high: int | None = 1
    kind = module.dotted(inner.value if isinstance(inner, ast.Subscript) else inner)
    kind = kind.rpartition(".")[2]
    if keywords & _OWN_VALUES:
        low = high = None
    elif module.dotted(inner) == "bool":
        low = high = 0
    elif kind in ("tuple", "Tuple"):
        low = high = None
    item = inner.slice if isinstance(inner, ast.Subscript) and kind in _LISTS else inner
    value_type = "" if low is None else _VALUE_TYPES.get(module.dotted(item), "")
    choices = () if keywords else _choices(modules, module, item)
    return Option("", (), module.location(annotation), low, high, value_type, choices)


def _without_none(module: Module, node: ast.expr) -> ast.expr:
    """Return X of `Optional[X]` and `X | None`."""
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
        return node.left
    is_optional = isinstance(node, ast.Subscript) and module.dotted(node.value).endswith("Optional")
    return node.slice if is_optional and isinstance(node, ast.Subscript) else node


def _choices(modules: Modules, module: Module, node: ast.expr) -> tuple[str, ...]:
    """Return the values of an enumeration of texts."""
    definition = modules.resolve(module, node)
    if definition is None or not isinstance(definition.node, ast.ClassDef):
        return ()
    bases = [definition.module.dotted(base) for base in definition.node.bases]
    if not any(base.startswith("enum.") for base in bases):
        return ()
    assigned = [part.value for part in definition.node.body if isinstance(part, ast.Assign)]
    values = [definition.module.literal(value) for value in assigned]
    are_texts = bool(values) and all(isinstance(value, str) for value in values)
    return tuple(values) if are_texts else ()
