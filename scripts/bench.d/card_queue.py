"""The queue for the cards of a machine: many starts of two users, some of them killed."""

from __future__ import annotations

import random
import sys
from statistics import median
from typing import TYPE_CHECKING

from kills import tests
from rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

STARTS = 200
KILLS = 20
CARDS = 8
HANDOVER = 1.0  # seconds
IN_TURN = 20  # runs one after another, on a machine that is else idle


def card_queue() -> Iterator[Row]:
    """Yield how many starts got cards of their own, and how soon the next one follows."""
    tests("support.signals").restore_interrupts()
    trial = tests("support.cards.queue_trial")
    seed = random.randrange(1 << 16)  # noqa: S311 - no secret
    accounts = "two accounts" if trial.CAN_CHANGE else "two homes of one account"
    with trial.machine(CARDS) as machine:
        outcome = machine.trial(STARTS, KILLS, seed)
    for line in outcome.wrong[:10]:
        print(f"seed {seed}: {line}", file=sys.stderr)
    ended = outcome.succeeded + outcome.killed
    yield Row(
        f"{STARTS} starts of {accounts} with `queue` on {CARDS} pretended cards, {outcome.killed} "
        "supervisors killed while they wait or run: all others succeed, no card is given twice",
        f"{ended - len(outcome.wrong)}/{outcome.starts}",
        "all",
        not outcome.wrong and ended == outcome.starts,
    )
    yield _handovers("while all of them wait", outcome.handovers)
    with trial.machine(1) as machine:
        yield _handovers("with a few in the queue", machine.trial(IN_TURN, seed=seed).handovers)


def _handovers(when: str, seconds: list[float]) -> Row:
    middle, worst = median(seconds), max(seconds)
    return Row(
        f"from one run's end to the start of the next on its cards, {when}, {len(seconds)} times",
        f"median {middle:.2f} s, at most {worst:.2f} s",
        f"median <= {HANDOVER:g} s",
        middle <= HANDOVER,
    )
