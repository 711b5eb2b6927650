"""`dataclass(frozen=True, slots=True)` for classes of which a program makes objects of a part only.

Each command uses some of the nouns in model.py, and the standard library compiles the methods of
all and describes all fields: 27 ms of each start of the command line, a fifth of it. Here
`__init__` is compiled when the first object is made, and the fields are described when `replace` or
`fields` first asks, which leaves 3 ms. The classes are dataclasses: `fields`, `replace` and
`is_dataclass` of the standard library work on them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, slots: bool) -> Callable[[type], type]:
        """Return the decorator; both options are as type checkers have to see them."""
        if not (frozen and slots):
            raise TypeError("a class that is not frozen, or has no slots, is dataclasses.dataclass")
        return _decorate


class _Fields:
    """The `__dataclass_fields__` of a class until they are asked for: the standard library's."""

    def __get__(self, _instance: object, owner: Any) -> dict[str, dataclasses.Field[Any]]:
        # a type that is a text would be searched for `ClassVar`, and `inspect` would make a __doc__
        body = {
            "__annotations__": dict.fromkeys(owner.field_names, object),
            "__doc__": "its fields",
        }
        twin = type(owner.__name__, (), body | owner.field_defaults)
        dataclasses.dataclass(init=False, repr=False, eq=False)(twin)
        fields = {field.name: field for field in dataclasses.fields(twin)}
        for name, field in fields.items():
            field.type = owner.__annotations__[name]
        owner.__dataclass_fields__ = fields
        return fields


class _Methods:
    """What a class needs no code of its own for."""

    field_names: tuple[str, ...]
    compared_fields: tuple[str, ...]
    field_defaults: dict[str, Any]  # values, and descriptions by `field`

    def __init__(self, *values: object, **keywords: object) -> None:
        cls: Any = type(self)
        cls.__init__ = _init(cls)
        cls.__init__(self, *values, **keywords)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.compared_fields)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.compared_fields))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.field_names)
        return f"{type(self).__qualname__}({shown})"

    def __setattr__(self, name: str, _value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


_METHODS = {
    name: vars(_Methods)[name]
    for name in ("__init__", "__eq__", "__hash__", "__repr__", "__setattr__", "__delattr__")
}


def _decorate(cls: type) -> type:
    """Return a class of this name, with slots, in the place of the decorated one."""
    names = tuple(cls.__annotations__)
    body = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    defaults = {name: body.pop(name) for name in names if name in body}
    field_objects = {k: v for k, v in defaults.items() if isinstance(v, dataclasses.Field)}
    body |= {"__slots__": names, "__match_args__": names, "__dataclass_fields__": _Fields()}
    body |= {"__qualname__": cls.__qualname__, "field_names": names, "field_defaults": defaults}
    body["compared_fields"] = tuple(
        n for n in names if n not in field_objects or field_objects[n].compare
    )
    return type(cls)(cls.__name__, cls.__bases__, body | _METHODS)


def _init(cls: type[_Methods]) -> Any:
    """Return the `__init__` of a class, whose signature alone is compiled: that is what takes time.

    Raises TypeError where a field without a default follows one that has one.
    """
    names, missing = cls.field_names, dataclasses.MISSING
    setters = [getattr(cls, name).__set__ for name in names]
    defaults: list[Any] = []
    factories: dict[int, Any] = {}
    for number, name in enumerate(names):
        default = cls.field_defaults.get(name, missing)
        if isinstance(default, dataclasses.Field):
            if default.default_factory is not missing:
                factories[number] = default.default_factory
            default = default.default
        if default is not missing or number in factories:
            defaults.append(default)
        elif defaults:
            raise TypeError(f"{cls.__name__}: `{name}` has no default, but follows one that has")

    def fill(self: object, values: tuple[object, ...]) -> None:
        for set_field, value in zip(setters, values):  # noqa: B905 - of equal length
            set_field(self, value)
        for number, factory in factories.items():
            if values[number] is missing:
                setters[number](self, factory())

    parameters = "".join(f"{name}, " for name in names)
    init = eval(f"lambda self, {parameters}: fill(self, ({parameters}))", {"fill": fill})  # noqa: S307 - our own names
    init.__name__, init.__qualname__ = "__init__", f"{cls.__qualname__}.__init__"
    init.__defaults__ = tuple(defaults)
    return init
