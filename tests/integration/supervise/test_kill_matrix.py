"""One case of each row of the kill matrix; `scripts/bench matrix` runs all forty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.faults.kill_matrix import CASES, Case, run_case

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.train, pytest.mark.tmux]

ROWS = (
    Case("HUP", "client", "torchrun"),
    Case("TERM", "tmux", "accelerate"),
    Case("KILL", "supervisor", "torchrun"),
    Case("INT", "launcher", "accelerate"),
    Case("KILL", "rank", "torchrun"),
)


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_a_signal_ends_what_it_should_and_no_more(case: Case, tmp_path: Path) -> None:
    assert case in CASES
    assert run_case(case, str(tmp_path)) is None
