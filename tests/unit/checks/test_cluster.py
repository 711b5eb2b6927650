"""What Slurm says before a start, as results of checks: recorded answers of sbatch and sacctmgr."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.checks import cluster
from safelaunch.model import Origin, Slurm

if TYPE_CHECKING:
    from safelaunch.checks.registry import CheckResult

TAKEN = "sbatch: Job 2 to start at 2026-11-22T10:00:00 using 4 processors on nodes n[1-2]"
NO_NODE = "allocation failure: Requested node configuration is not available\n"
NOT_RUN = -1
REFUSED = "sbatch: error: Node count specification invalid\nallocation failure: Node count wrong\n"


def results(
    block: Slurm | None = None,
    code: int = 0,
    err: str = TAKEN,
    accounts: tuple[str, ...] = (),
    away: str = "",
) -> dict[str, CheckResult]:
    answer = {**answered(code, err, away), "accounts": accounts}
    checked = cluster.results("login", block or Slurm(), answer)
    return {result.id: result for result in checked}


def answered(code: int, err: str, away: str = "") -> dict[str, Any]:
    return {"test": [code, "", err], "partitions": ["gpu (2 nodes)"], "away": away}


def block(**keys: Any) -> Slurm:
    return Slurm(**keys, origins=dict.fromkeys(keys, Origin("job.yaml", 3, 5)))


def test_a_job_that_slurm_takes_has_the_expected_start() -> None:
    result = results()["slurm-request"]
    assert (result.status, result.evidence.partition(" to start")[0]) == ("ok", "Job 2")


def test_a_job_that_slurm_does_not_take_fails_with_its_words_and_what_there_is() -> None:
    result = results(code=1, err=REFUSED)["slurm-request"]
    assert result.status == "fail"
    assert result.evidence.endswith("Node count specification invalid; Node count wrong")
    assert result.hint == "partitions: gpu (2 nodes)"


def test_an_account_of_somebody_else_is_a_warning_with_the_nearest_name() -> None:
    answers = results(block(account="p132", qos="long"), accounts=("p123|normal,long",))
    assert answers["slurm-account"].status == "warn"
    assert "job.yaml:3:5" in answers["slurm-account"].evidence
    assert "p123" in answers["slurm-account"].hint
    assert answers["slurm-qos"].status == "ok"


def test_without_accounting_nothing_is_said_of_accounts() -> None:
    assert list(results(block(account="p132"))) == ["slurm-request"]


@pytest.mark.parametrize(("away", "status"), [("n[1-2]", "warn"), ("", "fail")])
def test_a_job_that_may_wait_for_nodes_that_are_away_is_not_refused(away: str, status: str) -> None:
    result = results(code=1, err=NO_NODE, away=away)["slurm-request"]
    assert (result.status, away in result.hint) == (status, True)


@pytest.mark.parametrize(
    ("code", "err", "statuses"),
    [(0, TAKEN, ["ok"]), (1, REFUSED, ["fail"]), (1, NO_NODE, ["warn"]), (NOT_RUN, "busy", [])],
)
def test_before_a_start_only_a_clear_refusal_prevents_it(
    code: int, err: str, statuses: list[str]
) -> None:
    shown = cluster.quick_results("login", answered(code, err))
    assert [result.status for result in shown] == statuses
