"""What the ends of the ranks say together."""

from __future__ import annotations

import pytest

from safelaunch.runtime.rank_exits import Exits, RankExit


def exits(*codes: int | str | None) -> Exits:
    """Return the ends of starts of rank 0: a code, None where nobody saw it, or `alive`."""
    result = Exits("/none", 1)
    for pid, code in enumerate(codes, 7):
        start = RankExit(pid, 0, 1)
        if code != "alive":
            start.code, start.died_ns = (code if isinstance(code, int) else None), 2
        result.by_rank.setdefault(0, []).append(start)
    return result


@pytest.mark.parametrize(
    ("codes", "failed"),
    [((), False), ((0, "alive"), False), ((0, 3, "alive"), True), ((None,), True)],
)
def test_a_rank_has_failed_that_has_not_ended_with_0(
    codes: tuple[int | str | None, ...], failed: bool
) -> None:
    assert exits(*codes).has_failed() is failed


def test_a_start_runs_until_its_end_was_seen() -> None:
    assert exits(0, "alive", 3, "alive").running() == {8, 10}
