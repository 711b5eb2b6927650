"""Patterns are matched in bounded time, whatever their stars."""

from __future__ import annotations

import pytest

from safelaunch.importer.budget import Budget
from safelaunch.importer.findings import Stop
from safelaunch.importer.words.patterns import ShellPattern


def pattern(text: str, budget: Budget | None = None) -> ShellPattern:
    return ShellPattern([(char, False) for char in text], budget or Budget())


@pytest.mark.parametrize(
    ("stars", "text"),
    [("*a" * 30 + "*b", "a" * 5000), ("*c" * 4 + "*d", "abc" * 100_000), ("*" * 900, "x" * 5000)],
)
def test_many_stars_take_no_more_steps_than_characters(stars: str, text: str) -> None:
    assert pattern(stars).matches(text) == (set(stars) == {"*"})


def test_an_end_is_found_without_trying_each_beginning() -> None:
    text = "abc" * 50_000
    assert pattern("*c*c*c").at_end(text, longest=True) == 0
    assert pattern("c*c").at_end(text, longest=False) == len(text) - 4
    assert pattern("*d").at_end(text, longest=True) is None


def test_work_that_grows_with_the_square_is_refused() -> None:
    with pytest.raises(Stop, match="too much work"):
        list(pattern("a*d", Budget(1_000_000)).finds("a" * 10_000))
