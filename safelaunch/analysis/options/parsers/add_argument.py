"""Reads an `add_argument` call as options, as far as its text is explicit."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from safelaunch.analysis.option_model import BOOL, FLOAT, INT, Option
from safelaunch.analysis.python.names import UNKNOWN, Function
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from safelaunch.analysis.python.names import Module

_SWITCH_ACTIONS = frozenset(
    {"store_true", "store_false", "store_const", "append_const", "count", "help", "version"}
)
_VALUE_ACTIONS = frozenset({"store", "append", "extend"})
_COUNTS = {None: (1, 1), "?": (0, 1), "*": (0, None), "+": (1, None)}
_VALUE_TYPES = {"int": INT, "float": FLOAT, "bool": BOOL, "str": ""}


def options(module: Module, call: ast.Call, *, is_certain: bool) -> list[Option]:
    """Return the options that a call adds; raise Unclear if a name is not a literal.

    It is one option, or one for each turn of a loop over literals. `is_certain`: the call always
    runs, so an option that it marks as required is required.
    """
    if not any(isinstance(arg, ast.JoinedStr) for arg in call.args):
        return [_option(module, call, {}, is_certain=is_certain)]
    turns: list[dict[str, str]] = [{}]
    node: ast.AST | None = call
    while node is not None and not isinstance(node, Function):
        node = module.parents.get(node)
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            name = node.target.id
            inside = (n for part in node.body for n in ast.walk(part) if isinstance(n, ast.Name))
            is_same = not any(n.id == name and isinstance(n.ctx, ast.Store) for n in inside)
            is_display = isinstance(node.iter, ast.List | ast.Tuple) and is_same
            values = module.literal(node.iter) if is_display else UNKNOWN
            if not isinstance(values, list | tuple) or not all(isinstance(v, str) for v in values):
                raise Unclear("an option's name is computed at run time", module.location(call))
            turns = [{name: value} | turn for value in values for turn in turns]
    return [_option(module, call, turn, is_certain=is_certain) for turn in turns]


def _name(module: Module, node: ast.expr, values: dict[str, str]) -> Any:
    """Return a name of an option, also `f"--{prefix}.lr"` with the values of loop variables."""
    if not isinstance(node, ast.JoinedStr):
        return module.literal(node)
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
            continue
        name = part.value if isinstance(part, ast.FormattedValue) else None
        is_plain = isinstance(part, ast.FormattedValue) and part.format_spec is None
        is_plain = is_plain and getattr(part, "conversion", -1) == -1
        if not is_plain or not isinstance(name, ast.Name) or name.id not in values:
            return UNKNOWN
        parts.append(values[name.id])
    return "".join(parts)


def _option(module: Module, call: ast.Call, values: dict[str, str], *, is_certain: bool) -> Option:
    """Return the option that a call adds with these values of loop variables."""
    place = module.location(call)
    names = [_name(module, arg, values) for arg in call.args if not isinstance(arg, ast.Starred)]
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    is_whole = len(keywords) == len(call.keywords)
    if len(names) != len(call.args) or not names or not all(isinstance(n, str) for n in names):
        raise Unclear("an option's name is computed at run time", place)
    flags = tuple(name for name in names if name.startswith("-"))
    if not flags and (len(names) != 1 or not is_whole):
        raise Unclear("a positional argument is unclear", place)
    dest = module.literal(keywords.get("dest"))
    name = max(flags, key=len).lstrip("-").replace("-", "_") if flags else names[0]
    min_values, max_values = _value_counts(module, keywords) if is_whole else (None, None)
    if module.dotted(keywords.get("action", call)) == "argparse.BooleanOptionalAction":
        flags += tuple("--no-" + flag[2:] for flag in flags if flag.startswith("--"))
    value_type = _value_type(module, keywords)
    is_required = module.literal(keywords.get("required")) is True if flags else min_values != 0
    return Option(
        dest=dest if isinstance(dest, str) else name,
        names=flags,
        location=place,
        min_values=min_values,
        max_values=max_values,
        value_type=value_type or "",
        choices=_choices(module, keywords, value_type) if is_whole else (),
        required=is_required and is_whole and is_certain,
        default_is_true="default" in keywords and bool(module.literal(keywords["default"])),
        has_choices="choices" in keywords and module.literal(keywords["choices"]) is not None,
    )


def _value_counts(module: Module, keywords: dict[str, ast.expr]) -> tuple[int | None, int | None]:
    """Return the minimum and maximum number of values, or (None, None) if not known."""
    action = "store" if "action" not in keywords else module.literal(keywords["action"])
    if module.dotted(keywords.get("action", ast.Constant(""))) == "argparse.BooleanOptionalAction":
        return 0, 0
    if isinstance(action, str) and action in _SWITCH_ACTIONS:
        return 0, 0
    if not isinstance(action, str) or action not in _VALUE_ACTIONS:
        return None, None
    nargs = module.literal(keywords["nargs"]) if "nargs" in keywords else None
    if isinstance(nargs, int) and not isinstance(nargs, bool) and nargs > 0:
        return nargs, nargs
    if nargs is not None and not isinstance(nargs, str):
        return None, None
    return _COUNTS.get(nargs, (None, None))


def _value_type(module: Module, keywords: dict[str, ast.expr]) -> str | None:
    """Return the type of the values, "" for text, None if not known."""
    if "type" not in keywords:
        return ""
    name = module.dotted(keywords["type"])
    return None if name in module.bindings else _VALUE_TYPES.get(name)


def _choices(
    module: Module, keywords: dict[str, ast.expr], value_type: str | None
) -> tuple[str, ...]:
    """Return the choices as text; none if a value is converted before it is compared."""
    choices = module.literal(keywords["choices"]) if "choices" in keywords else UNKNOWN
    if not isinstance(choices, list | tuple | set | dict) or value_type not in ("", INT):
        return ()
    choice_type = int if value_type == INT else str
    if not all(type(choice) is choice_type for choice in choices):
        return ()
    words = [str(choice) for choice in choices]
    return tuple(sorted(words) if isinstance(choices, set) else words)
