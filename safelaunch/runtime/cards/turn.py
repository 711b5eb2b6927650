"""Whose turn it is: which cards a run of the queue may take now. Pure.

The order is strict: priority first, then the time of the start. Who cannot go yet reserves what is
free of the cards that would do for it, so that a job which wants four cards does not starve behind
jobs that want one. Who is behind goes first only with cards that nobody before it could use.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Demand(NamedTuple):
    """What a run waits for: so many of these cards."""

    number: int
    cards: frozenset[str]

    def select(self, free: Sequence[str]) -> list[str]:
        """Return which of the free cards it takes, or all that it may use where they are few."""
        return [card for card in free if card in self.cards][: self.number]


def choose(free: Sequence[str], ahead: Iterable[Demand], own: Demand) -> list[str] | None:
    """Return the cards of a run, None where it is not its turn; `ahead` are those before it."""
    rest = list(free)
    if len(own.select(rest)) < own.number:
        return None
    for demand in ahead:
        selected = demand.select(rest)
        rest = [card for card in rest if card not in selected]
        if len(own.select(rest)) < own.number:
            return None
    return own.select(rest)
