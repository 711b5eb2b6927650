"""One case of each row of the kill matrix; `scripts/bench matrix` runs all forty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.faults import warm_kills
from support.faults.kill_matrix import CASES, DIRECT, Case, run_case

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.tmux

# what becomes of these three is not for the launcher to decide: the stand-in for it will do
OUTSIDE = (
    Case("HUP", "client", "torchrun"),
    Case("TERM", "tmux", "torchrun"),
    Case("KILL", "supervisor", "torchrun"),
)
INSIDE = (Case("INT", "launcher", "accelerate"), Case("KILL", "rank", "torchrun"))


# of ranks without a launcher one of each row: a start takes a second
DIRECT_SAMPLE = (
    Case("TERM", "client", "torchrun", "direct"),
    Case("KILL", "tmux", "accelerate", "direct"),
    Case("KILL", "supervisor", "torchrun", "direct"),
    Case("TERM", "launcher", "accelerate", "direct"),
    Case("KILL", "launcher", "torchrun", "direct"),
    Case("TERM", "rank", "torchrun", "direct"),
)


@pytest.mark.parametrize("case", OUTSIDE, ids=str)
def test_a_signal_to_what_runs_a_launcher_leaves_the_job(case: Case, tmp_path: Path) -> None:
    assert case in CASES
    assert run_case(case, str(tmp_path), real=False) is None


@pytest.mark.train
@pytest.mark.parametrize("case", INSIDE, ids=str)
def test_a_signal_to_a_real_launcher_or_its_rank_ends_the_job(case: Case, tmp_path: Path) -> None:
    assert case in CASES
    assert run_case(case, str(tmp_path)) is None


@pytest.mark.train
@pytest.mark.parametrize("case", DIRECT_SAMPLE, ids=str)
def test_a_signal_to_a_part_of_a_direct_start_has_its_stated_end(
    case: Case, tmp_path: Path
) -> None:
    assert case in DIRECT
    assert run_case(case, str(tmp_path)) is None


WARM_SAMPLE = (
    warm_kills.WarmCase("TERM", "process that keeps the imports", 1),
    warm_kills.WarmCase("KILL", "process that keeps the imports", 2),
    warm_kills.WarmCase("KILL", "supervisor", 2),
    warm_kills.WarmCase("TERM", "starter of the ranks", 2),
    warm_kills.WarmCase("INT", "rank", 2),
)


@pytest.mark.parametrize("case", WARM_SAMPLE, ids=str)
def test_a_signal_to_a_part_of_a_run_that_keeps_its_imports_has_its_stated_end(
    case: warm_kills.WarmCase, tmp_path: Path
) -> None:
    assert case in warm_kills.CASES
    assert warm_kills.run_case(case, str(tmp_path)) is None
