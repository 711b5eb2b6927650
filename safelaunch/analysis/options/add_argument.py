"""One call of `add_argument` as an option. Read only where the text says all of it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import BOOL, FLOAT, INT, Option
from safelaunch.analysis.python.names import UNKNOWN
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from safelaunch.analysis.python.names import Module

_SWITCHES = frozenset(
    {"store_true", "store_false", "store_const", "append_const", "count", "help", "version"}
)
_VALUED = frozenset({"store", "append", "extend"})
_COUNTS: dict[object, tuple[int, int | None]] = {
    None: (1, 1),
    "?": (0, 1),
    "*": (0, None),
    "+": (1, None),
}
_READINGS = {"int": INT, "float": FLOAT, "bool": BOOL, "str": ""}


def option(module: Module, call: ast.Call, *, is_certain: bool) -> Option:
    """Return the option that a call adds; raise Unclear where its name is not in the text.

    `is_certain`: the call is made whatever happens, so what it requires is required.
    """
    place = module.place(call)
    names = [module.literal(arg) for arg in call.args if not isinstance(arg, ast.Starred)]
    said = {word.arg: word.value for word in call.keywords if word.arg}
    is_whole = len(said) == len(call.keywords)
    if len(names) != len(call.args) or not names or not all(isinstance(n, str) for n in names):
        raise Unclear("an option's name is worked out as it runs", place)
    flags = tuple(name for name in names if name.startswith("-"))
    if not flags and (len(names) != 1 or not is_whole):
        raise Unclear("a positional word that is not clear", place)
    dest = module.literal(said.get("dest"))
    name = max(flags, key=len).lstrip("-").replace("-", "_") if flags else names[0]
    least, most = _counts(module, said) if is_whole else (None, None)
    if module.dotted(said.get("action", call)) == "argparse.BooleanOptionalAction":
        flags += tuple("--no-" + flag[2:] for flag in flags if flag.startswith("--"))
    reading = _reading(module, said)
    must = module.literal(said.get("required")) is True if flags else least != 0
    return Option(
        dest=dest if isinstance(dest, str) else name,
        names=flags,
        place=place,
        least=least,
        most=most,
        reading=reading or "",
        choices=_choices(module, said, reading) if is_whole else (),
        required=must and is_whole and is_certain,
        is_on=bool(module.literal(said["default"])) if "default" in said else False,
    )


def _counts(module: Module, said: dict[str, ast.expr]) -> tuple[int | None, int | None]:
    """Return how many values follow, or (None, None)."""
    action = "store" if "action" not in said else module.literal(said["action"])
    if module.dotted(said.get("action", ast.Constant(""))) == "argparse.BooleanOptionalAction":
        return 0, 0
    if isinstance(action, str) and action in _SWITCHES:
        return 0, 0
    if not isinstance(action, str) or action not in _VALUED:
        return None, None
    nargs = module.literal(said["nargs"]) if "nargs" in said else None
    if isinstance(nargs, int) and not isinstance(nargs, bool) and nargs > 0:
        return nargs, nargs
    if nargs is not None and not isinstance(nargs, str):
        return None, None
    return _COUNTS.get(nargs, (None, None))


def _reading(module: Module, said: dict[str, ast.expr]) -> str | None:
    """Return how a value is read, "" for text, None where that is not known."""
    if "type" not in said:
        return ""
    name = module.dotted(said["type"])
    return None if name in module.bindings else _READINGS.get(name)


def _choices(module: Module, said: dict[str, ast.expr], reading: str | None) -> tuple[str, ...]:
    """Return the choices as words; none where a value is changed before it is compared."""
    found = module.literal(said["choices"]) if "choices" in said else UNKNOWN
    if not isinstance(found, list | tuple | set | dict) or reading not in ("", INT):
        return ()
    wanted = int if reading == INT else str
    if not all(type(choice) is wanted for choice in found):
        return ()
    words = [str(choice) for choice in found]
    return tuple(sorted(words) if isinstance(found, set) else words)
