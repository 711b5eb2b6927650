from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.cards.turn import Demand, choose

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL = frozenset("0123")


def demand(number: int, cards: str = "0123") -> Demand:
    return Demand(number, frozenset(cards))


@pytest.mark.parametrize(
    ("free", "ahead", "own", "cards"),
    [
        ("0123", [], demand(2), "01"),
        ("13", [], demand(2), "13"),
        ("3", [], demand(2), None),
        ("0123", [demand(2)], demand(2), "23"),  # both go at once
        ("0123", [demand(3)], demand(2), None),
        ("012", [demand(4)], demand(1), None),  # strict order: it must not starve
        ("0123", [demand(1), demand(2)], demand(1), "3"),
        ("0123", [demand(2, "01")], demand(2, "23"), "23"),
        ("023", [demand(2, "01")], demand(2, "23"), "23"),  # of no use for who waits before it
        ("023", [demand(2, "01")], demand(2, "03"), None),
        ("", [], demand(1), None),
    ],
)
def test_who_goes_takes_no_card_that_would_do_for_who_is_before_it(
    free: str, ahead: list[Demand], own: Demand, cards: str | None
) -> None:
    expected = None if cards is None else list(cards)
    assert choose(list(free), ahead, own) == expected


def test_the_runs_before_are_numbers_for_only_until_nothing_is_left() -> None:
    numbers = []

    def ahead() -> Iterator[Demand]:
        for number in range(100):
            numbers.append(number)
            yield demand(1)

    assert choose(list("0123"), ahead(), demand(1)) is None
    assert len(numbers) == 4
