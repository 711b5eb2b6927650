"""What the ends of the ranks say together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.workspace import wait_for

from safelaunch.runtime.rank_exits import Exits, RankExit

if TYPE_CHECKING:
    from pathlib import Path


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


def test_without_pidfds_the_end_of_a_rank_that_is_not_reaped_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    (tmp_path / "ranks").mkdir()
    program = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE) as rank:
        (tmp_path / "ranks" / "rank-0.1.0").write_text(f"{rank.pid}\n")
        ends = Exits(str(tmp_path), 1)
        ends.update()
        assert ends.running() == {rank.pid}
        os.kill(rank.pid, signal.SIGTERM)
        wait_for(lambda: ends.update() or ends.has_failed(), "end of the rank")
    (start,) = ends.by_rank[0]
    assert (start.code, start.signal) == (143, "SIGTERM")
