from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.runtime.records import AttemptRecord, Failure, RecoveryPolicy
from safelaunch.runtime.supervise.attempts import recovery

if TYPE_CHECKING:
    from safelaunch.runtime.messages.ends import Decision

POLICY: dict[str, Any] = {
    "max_restarts": 3,
    "backoff": 10.0,
    "backoff_max": 35.0,
    "budget": None,
    "classes": {},
    "checkpoint": None,
    "progress": None,
    "no_progress": 2,
    "ladder": False,
}
FAULT = "cuda-illegal-memory-access"
RUNGS = ["NCCL_SHM_DISABLE=1", "NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1", "NCCL_DEBUG=INFO"]


def attempt(**values: Any) -> AttemptRecord:
    record = {"started_at": 100.0, "rung": 0, "steps": 0, "checkpoint": None, **values}
    return AttemptRecord.from_json(record)


def decide(
    name: str | None,
    *attempts: AttemptRecord,
    rungs: int = 0,
    now: float = 1000.0,
    **policy: Any,
) -> Decision:
    failure = Failure(class_name=name)
    rules = RecoveryPolicy.from_json({**POLICY, **policy})
    return recovery.decide(rules, list(attempts) or [attempt()], failure, now, 100.0, rungs)


@pytest.mark.parametrize(
    ("name", "restart", "action"),
    [("nccl-timeout", "useless", "stop"), ("cuda-unavailable", "may-help", "restart")],
)
def test_what_the_signature_says_of_a_restart_counts_more_than_its_class(
    name: str, restart: str, action: str
) -> None:
    failure = Failure(class_name=name, restart=restart)
    rules = RecoveryPolicy.from_json(POLICY)
    assert recovery.decide(rules, [attempt()], failure, 1000.0, 100.0, 0).action == action


def test_without_a_policy_nothing_is_restarted() -> None:
    decision = recovery.decide(None, [attempt()], Failure(class_name="nccl-timeout"), 1.0, 0.0, 0)
    assert (decision.action, decision.why) == ("stop", "no restart: the job has no `recovery:`")


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("nccl-timeout", "restart"),
        ("port-in-use", "restart"),
        ("hang", "restart"),
        ("user-code-exception", "stop"),
        ("module-not-found", "stop"),
        ("argument-error", "stop"),
        ("a-class-of-tomorrow", "stop"),
    ],
)
def test_the_class_decides(name: str, action: str) -> None:
    assert decide(name).action == action


@pytest.mark.parametrize(
    ("name", "action"), [("user-code-exception", "restart"), ("nccl-timeout", "stop")]
)
def test_the_table_of_the_job_beats_the_default(name: str, action: str) -> None:
    assert decide(name, classes={name: action}).action == action


@pytest.mark.parametrize("evidence", [{"steps": 7}, {"checkpoint": 500.0}, {"progressed": True}])
def test_an_unknown_failure_after_progress_is_retried(evidence: dict[str, Any]) -> None:
    assert decide(None, attempt(**evidence)).action == "restart"


@pytest.mark.parametrize("evidence", [{}, {"checkpoint": 50.0}])
def test_an_unknown_failure_before_any_progress_is_not_retried(evidence: dict[str, Any]) -> None:
    assert decide(None, attempt(**evidence)).action == "stop"


def test_a_reason_to_restart_claims_only_the_progress_that_was_made() -> None:
    moved, stuck = attempt(steps=50), attempt(steps=50)
    text = [decide(None, *attempts).why for attempts in ([moved], [moved, stuck])]
    assert text == [
        "restart 1 of 3: no known cause, and it had made progress",
        "restart 2 of 3: no known cause, and an earlier attempt had made progress",
    ]


@pytest.mark.parametrize(("code", "action"), [(0, "stop"), (None, "restart")])
def test_a_training_that_ended_well_but_for_success_is_not_made_again(
    code: int | None, action: str
) -> None:
    failure = Failure(exit_code=code, unmet=["100 steps, 5 were seen in the log"])
    decision = recovery.decide(
        RecoveryPolicy.from_json(POLICY), [attempt(steps=5)], failure, 1000.0, 100.0, 0
    )
    assert decision.action == action
    assert (decision.why == recovery.UNMET) == (action == "stop")


def test_the_delay_doubles_up_to_its_cap() -> None:
    attempts = [attempt(steps=n) for n in range(1, 5)]
    delays = [decide("nccl-timeout", *attempts[:n], max_restarts=9).delay for n in (1, 2, 3, 4)]
    assert delays == [10.0, 20.0, 35.0, 35.0]


def test_after_thousands_of_restarts_the_delay_is_still_a_number() -> None:
    attempts = [attempt(steps=n) for n in range(3000)]
    assert decide("nccl-timeout", *attempts, max_restarts=9999).delay == 35.0


def test_max_restarts_ends_it() -> None:
    attempts = [attempt(steps=n) for n in (1, 2, 3, 4)]
    assert decide("nccl-timeout", *attempts[:3]).action == "restart"
    assert "max_restarts" in decide("nccl-timeout", *attempts).why


def test_the_budget_counts_the_pause_before_the_restart() -> None:
    late = decide("nccl-timeout", budget=909.0)
    assert (late.action, "`budget` of 15m9s" in late.why) == ("stop", True)
    assert decide("nccl-timeout", budget=911.0).action == "restart"


def test_a_clock_that_is_set_back_spends_no_budget() -> None:
    decision = decide("nccl-timeout", budget=60.0, now=-5000.0)
    assert decision.action == "restart"


def test_attempts_in_a_row_without_progress_end_it() -> None:
    attempts = [attempt(steps=50), attempt(steps=50), attempt(steps=40)]
    assert decide("nccl-timeout", *attempts[:2]).action == "restart"
    decision = decide("nccl-timeout", *attempts)
    assert (decision.action, "`no_progress`" in decision.why) == ("stop", True)


@pytest.mark.parametrize(
    "last", [{"steps": 51}, {"checkpoint": 901.0}, {"progressed": True}], ids=str
)
def test_coming_further_than_before_is_progress(last: dict[str, Any]) -> None:
    attempts = [attempt(steps=50, checkpoint=900.0), attempt(), attempt(**last)]
    assert decide("nccl-timeout", *attempts).action == "restart"


@pytest.mark.parametrize(("seconds", "action"), [(-2.0, "stop"), (-1.5, "restart")])
def test_a_checkpoint_of_the_first_seconds_counts_though_file_systems_cut_times(
    seconds: float, action: str
) -> None:
    attempts = attempt(started_at=900.0, checkpoint=900.0 + seconds)
    assert decide(None, attempts).action == action


def test_the_same_checkpoint_as_before_is_no_progress() -> None:
    attempts = [attempt(checkpoint=900.0)] * 3
    assert decide("nccl-timeout", *attempts).action == "stop"


@pytest.mark.parametrize(("rung", "after"), [(0, 1), (1, 2), (2, 3)])
def test_an_illegal_access_goes_a_rung_up(rung: int, after: int) -> None:
    decision = decide(FAULT, attempt(rung=rung), rungs=3, ladder=True)
    assert (decision.action, decision.rung) == ("restart", after)


def test_at_the_top_of_the_ladder_it_stops_and_says_what_to_check() -> None:
    decision = decide(FAULT, attempt(rung=3), rungs=3, ladder=True)
    assert (decision.action, ">= 2.26.5" in decision.why) == ("stop", True)


def test_a_ladder_does_not_climb_past_max_restarts() -> None:
    attempts = [attempt(rung=0), attempt(rung=1)]
    assert decide(FAULT, *attempts, rungs=3, ladder=True, max_restarts=1).action == "stop"


def test_the_job_may_forbid_the_ladder_s_class() -> None:
    decision = decide(FAULT, rungs=3, ladder=True, classes={FAULT: "stop"})
    assert decision.action == "stop"


def test_another_failure_keeps_the_rung() -> None:
    attempts = [attempt(), attempt(rung=1, steps=5)]
    decision = decide("nccl-timeout", *attempts, rungs=3, ladder=True)
    assert (decision.action, decision.rung) == ("restart", 1)


def test_a_new_rung_is_not_held_back_by_failures_below_it() -> None:
    attempts = [attempt(rung=0), attempt(rung=1), attempt(rung=2)]
    decision = decide(FAULT, *attempts, rungs=3, ladder=True, no_progress=1)
    assert (decision.action, decision.rung) == ("restart", 3)


def test_without_a_ladder_the_class_s_own_default_holds() -> None:
    decision = decide(FAULT, attempt(steps=3), rungs=3)
    assert (decision.action, decision.rung) == ("restart", 0)


# -- advice


def test_the_rung_that_got_through_is_told_with_its_variables() -> None:
    text = recovery.advice([attempt(), attempt(rung=2)], RUNGS, True)
    assert text is not None
    cure = "rung 2 (NCCL_SHM_DISABLE=1 NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1) succeeded"
    assert text.startswith(cure)


def test_the_top_rung_is_not_called_a_cure() -> None:
    text = recovery.advice([attempt(rung=3)], RUNGS, True)
    assert text is not None
    assert "the fault may come again" in text


def test_when_all_rungs_failed_the_build_is_named() -> None:
    text = recovery.advice([attempt(rung=3, **{"class": FAULT})], RUNGS, False)
    assert text is not None
    assert text.startswith("all rungs of the NCCL ladder failed")


@pytest.mark.parametrize(
    ("last", "succeeded"),
    [
        ({"rung": 0}, True),
        ({"rung": 1, "class": FAULT}, False),
        ({"rung": 3, "class": "user-code-exception"}, False),
    ],
)
def test_there_is_no_advice_where_the_ladder_has_taught_nothing(
    last: dict[str, Any], succeeded: bool
) -> None:
    assert recovery.advice([attempt(**last)], RUNGS, succeeded) is None
