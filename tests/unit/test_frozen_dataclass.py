from __future__ import annotations

import dataclasses
import inspect
from dataclasses import field

import pytest

from safelaunch import model
from safelaunch.frozen_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """A class with each kind of field."""

    x: int
    y: int = 2
    names: list[str] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True)
class Empty:
    """A class without fields."""


def test_fields_are_set_by_position_by_name_and_by_default() -> None:
    assert (Point(1).x, Point(1, 3).y, Point(x=4, y=5).x, Point(1).y) == (1, 3, 4, 2)


def test_a_factory_makes_a_new_value_for_each() -> None:
    assert Point(1).names is not Point(1).names
    assert Point(1, 2, ["a"]).names == ["a"]


@pytest.mark.parametrize("words", [{}, {"x": 1, "z": 2}], ids=["missing", "unknown"])
def test_wrong_fields_are_refused(words: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="__init__"):
        Point(**words)  # type: ignore[arg-type]


def test_a_field_without_a_default_behind_one_that_has_it_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Wrong:
        x: int = 1
        y: int  # type: ignore[misc]

    with pytest.raises(TypeError, match="`y` has no default"):
        Wrong(1, 2)


def test_equality_and_hash_are_those_of_the_compared_fields() -> None:
    assert Point(1, 2, ["a"]) == Point(1, 2, ["b"])
    assert hash(Point(1, 2, ["a"])) == hash(Point(1, 2, ["b"]))
    assert Point(1) != Point(2)
    assert Point(1) != object()


def test_a_field_is_neither_set_nor_deleted() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del Point(1).x


def test_there_is_no_room_for_another_attribute() -> None:
    assert not hasattr(Point(1), "__dict__")


def test_the_standard_library_takes_it_for_a_dataclass() -> None:
    assert dataclasses.is_dataclass(Point)
    assert [f.name for f in dataclasses.fields(Point)] == ["x", "y", "names"]
    assert dataclasses.replace(Point(1, names=["a"]), x=3) == Point(3, 2)


def test_it_is_shown_as_a_dataclass_is() -> None:
    assert repr(Point(1)) == "Point(x=1, y=2, names=[])"
    assert repr(Empty()) == "Empty()"


def test_a_pattern_takes_it_apart() -> None:
    match Point(1, 5):
        case Point(1, y):
            assert y == 5
        case _:
            pytest.fail("no match")


@pytest.mark.parametrize(
    "noun", [c for c in vars(model).values() if inspect.isclass(c) and hasattr(c, "field_names")]
)
def test_a_noun_takes_its_fields_as_the_standard_library_describes_them(noun: type) -> None:
    with pytest.raises(TypeError, match="unexpected"):  # the first call compiles `__init__`
        noun(no_such_field=1)
    described = [
        (f.name, f.default is f.default_factory is dataclasses.MISSING)
        for f in dataclasses.fields(noun)
    ]
    parameters = inspect.signature(noun).parameters.values()
    assert [(p.name, p.default is p.empty) for p in parameters] == described
