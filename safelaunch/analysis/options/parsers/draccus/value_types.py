"""Types of fields, and the values that draccus and pyrallis convert to them.

Source: decoding.py of draccus 0.10 and 0.11.6 and of pyrallis 0.3.1. A value is read as YAML 1.1
first, so that `1e5` is text, and `yes` is true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

INT, FLOAT, BOOL, TEXT, PATH = "int", "float", "bool", "str", "path"
LIST, TUPLE, MAPPING, UNION, ENUM, LITERAL = "list", "tuple", "dict", "union", "enum", "literal"
UNKNOWN, NONE = "unknown", "none"

_EXPECTED = {
    INT: "a whole number",
    FLOAT: "a number",
    BOOL: "`true` or `false`",
    TEXT: "text",
    PATH: "a path",
    LIST: "a list such as `[a, b]`",
    TUPLE: "a list such as `[a, b]`",
    MAPPING: "a mapping such as `{a: 1}`",
}


class ValueType(NamedTuple):
    """The type of a field: of its items, the members of a union, or the values of a choice.

    `names`: of the members of an enumeration; None where they are not certain. `is_open`: a tuple
    of any length.
    """

    kind: str
    items: tuple[ValueType, ...] = ()
    values: tuple[object, ...] = ()
    names: tuple[str, ...] = ()
    is_open: bool = False

    @property
    def expected(self) -> str:
        """What a value must be, for messages."""
        if self.kind == UNION:
            return " or ".join(dict.fromkeys(item.expected for item in self.items))
        if self.kind in (ENUM, LITERAL):
            values = [*self.names, *self.values] if self.kind == ENUM else self.values
            return "one of " + ", ".join(f"`{value}`" for value in dict.fromkeys(values))
        return "`null`" if self.kind == NONE else _EXPECTED.get(self.kind, "another value")


ANY = ValueType(UNKNOWN)


def is_accepted(value_type: ValueType, value: object, *, is_draccus: bool) -> bool:
    """Whether a value that YAML has read becomes one of a type."""
    if value_type.kind == UNION:
        members = [item for item in value_type.items if item.kind != NONE]
        if value is None and (len(members) < len(value_type.items) or is_draccus):
            return True
        return any(is_accepted(item, value, is_draccus=is_draccus) for item in members)
    if value is None and is_draccus and value_type.kind in (INT, FLOAT, BOOL, TEXT, PATH):
        return True  # 0.11 passes it on, 0.10 refuses some
    check = (_DRACCUS if is_draccus else _PYRALLIS).get(value_type.kind)
    if check is not None:
        return check(value)
    return _is_accepted_collection(value_type, value, is_draccus=is_draccus)


def _is_accepted_collection(value_type: ValueType, value: object, *, is_draccus: bool) -> bool:
    if value_type.kind == LIST:
        item = (*value_type.items, ANY)[0]
        return isinstance(value, list) and all(
            is_accepted(item, part, is_draccus=is_draccus) for part in value
        )
    if value_type.kind == TUPLE:
        parts = list(value) if isinstance(value, list | str | dict) else None
        types = value_type.items
        if value_type.is_open:
            types = (*value_type.items, ANY)[:1] * len(parts or ())
        return (
            parts is not None
            and len(types) == len(parts)
            and all(
                is_accepted(kind, part, is_draccus=is_draccus)
                for kind, part in zip(types, parts, strict=True)
            )
        )
    if value_type.kind == ENUM:
        is_name = isinstance(value, str) and value in value_type.names
        return is_name or (is_draccus and any(value == member for member in value_type.values))
    if value_type.kind == LITERAL:
        return not is_draccus or _is_literal(value_type.values, value)
    return value_type.kind != MAPPING or isinstance(value, list | dict)


def _is_literal(values: tuple[object, ...], value: object) -> bool:
    """Whether draccus takes a value for one of `Literal[...]`, with conversions of text."""
    for choice in values:
        if value == choice and type(value) is type(choice):
            return True
        if not isinstance(value, str) or isinstance(choice, str):
            continue
        if isinstance(choice, bool):
            if value.lower() == str(choice).lower():
                return True
        elif isinstance(choice, int | float) and _converts(type(choice), value, choice):
            return True
    return False


def _converts(kind: type[int | float], text: str, choice: object) -> bool:
    try:
        return bool(kind(text) == choice)
    except ValueError:
        return False


def _is_int(value: object) -> bool:
    return not isinstance(value, float) and _is_number(int, value)


def _is_number(kind: Callable[..., object], value: object) -> bool:
    if not isinstance(value, int | float | str):
        return False
    try:
        kind(value)
    except (ValueError, OverflowError):
        return False
    return True


def _is_bool(value: object) -> bool:
    return value is True or value is False or value in ("true", "false")


_DRACCUS: dict[str, Callable[[object], bool]] = {
    INT: _is_int,
    FLOAT: lambda value: _is_number(float, value),
    BOOL: _is_bool,
    TEXT: lambda _: True,
    PATH: lambda value: isinstance(value, str),
    UNKNOWN: lambda _: True,
}
_PYRALLIS: dict[str, Callable[[object], bool]] = {
    **_DRACCUS,
    INT: lambda value: _is_number(int, value),
    BOOL: lambda _: True,
}
