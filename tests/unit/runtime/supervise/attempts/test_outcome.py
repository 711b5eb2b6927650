"""How what outlives the launcher decides the end of a run."""

from __future__ import annotations

import pytest

from safelaunch.runtime.monitor.leftovers import LeftoverEnd
from safelaunch.runtime.rank_exits import RankExit
from safelaunch.runtime.records import LeftoverProcess
from safelaunch.runtime.supervise.attempts.outcome import leftover_failure


def end(pid: int, wait_status: int | None) -> LeftoverEnd:
    return LeftoverEnd(LeftoverProcess(pid=pid, command="python w.py"), wait_status)


def rank(pid: int, code: int | None) -> RankExit:
    start = RankExit(pid, 0, 1)
    start.code = code
    return start


def what(ends: list[LeftoverEnd], ranks: list[RankExit], single: str | None = "shell") -> str:
    failure = leftover_failure(ends, ranks, single)
    return failure.what if failure is not None else ""


@pytest.mark.parametrize(
    ("status", "words"),
    [(3 << 8, "exited with code 3"), (9, "killed (SIGKILL)"), (11, "segmentation fault (SIGSEGV)")],
)
def test_a_program_that_fails_after_the_launcher_fails_the_run(status: int, words: str) -> None:
    expected = f"python w.py (pid 7), which had outlived the launcher, {words}"
    assert what([end(6, 0), end(7, status)], [rank(5, 0)]) == expected


@pytest.mark.parametrize("status", [0, 15, 2])
def test_a_program_that_ends_well_or_is_told_to_end_fails_nothing(status: int) -> None:
    assert what([end(7, status)], [rank(5, 0)]) == ""


def test_how_a_rank_failed_is_left_to_its_record() -> None:
    assert what([end(7, 3 << 8)], [rank(7, 3)]) == ""


def test_an_idle_program_fails_the_run_where_nothing_else_has_finished() -> None:
    assert "(pid 7) outlived the launcher, and was ended after 5 min" in what([end(7, None)], [])


@pytest.mark.parametrize(("ranks", "single"), [([rank(5, 0)], "shell"), ([], "main"), ([], None)])
def test_an_idle_server_beside_what_has_finished_fails_nothing(
    ranks: list[RankExit], single: str | None
) -> None:
    assert what([end(7, None)], ranks, single) == ""
