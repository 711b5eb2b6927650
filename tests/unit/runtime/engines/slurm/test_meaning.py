"""What is shown of a run on Slurm: by the states of Slurm and of the run itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support import DATA

from safelaunch.runtime.engines.slurm import jobs, meaning, reasons
from safelaunch.runtime.engines.slurm.jobs import SlurmJob, SlurmStep
from safelaunch.runtime.records import AttemptRecord, Status
from safelaunch.runtime.signatures import classes

if TYPE_CHECKING:
    from safelaunch.runtime.engines.meaning import Meaning

NOW = 10_000.0
OWN = ("none", "running", "lost", "stopped", "failed", "succeeded")


def job(state: str = "RUNNING", **values: Any) -> SlurmJob:
    times: dict[str, Any] = {"submitted_at": NOW - 200, "started_at": NOW - 100} | values
    return SlurmJob(id="7", partition="gpu", node_list="n[1-2]", state=state, **times)


def status(own: str, class_name: str | None = "cuda-oom", **values: Any) -> Status | None:
    """Return the run's record, which began 90 s ago and ended, if it did, 10 s ago."""
    if own == "none":
        return None
    attempt = AttemptRecord(attempt=1, started_at=NOW - 90, class_name=class_name)
    ended = {"ended_at": NOW - 10} if own in ("stopped", "failed", "succeeded") else {}
    attempts = [attempt] if own == "failed" else [AttemptRecord(attempt=1, started_at=NOW - 90)]
    fields: dict[str, Any] = {"state": own, "attempts": attempts, **ended, **values}
    return Status(**fields)


def shown(engine: SlurmJob | None, own: Status | None) -> Meaning:
    return meaning.meaning(engine, own, now=NOW, uid=1000)


def brief(engine: SlurmJob | None, own: Status | None) -> str:
    """Return state and class."""
    result = shown(engine, own)
    return f"{result.state} {result.class_name or ''}".strip()


LIMITS = "`sacctmgr show qos` and `sacctmgr show assoc user=$USER` show the limits"
OOM_STEP = [SlurmStep(id="batch", state="COMPLETED"), SlurmStep(id="0", state="OUT_OF_MEMORY")]
OURS = {"stopped": "stopped", "failed": "failed cuda-oom", "succeeded": "succeeded"}


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (job("PENDING", started_at=None), {
            "none": "pending", "running": "running", "lost": "lost", **OURS}),
        (job("CONFIGURING"), {"none": "pending", "running": "running", "lost": "lost", **OURS}),
        (job("RUNNING"), {"none": "pending", "running": "running", "lost": "lost", **OURS}),
        (job("SUSPENDED"), {"none": "running", "running": "running", "lost": "lost", **OURS}),
        (job("STOPPED"), {"none": "running", "running": "running", "lost": "lost", **OURS}),
        (job("COMPLETING"), {"none": "running", "running": "running", "lost": "lost", **OURS}),
        (job("RUNNING", flags=["COMPLETING"]), {
            "none": "running", "running": "running", "lost": "lost", **OURS}),
        (job("COMPLETED"), {"none": "lost", "running": "lost", "lost": "lost", **OURS}),
        (job("FAILED", exit_code=1), {
            "none": "failed scheduler", "running": "lost", "lost": "lost", **OURS}),
        (job("FAILED", exit_code=0, signal=53), {
            "none": "failed scheduler", "running": "failed scheduler", "lost": "failed scheduler",
            **OURS}),
        (job("OUT_OF_MEMORY"), {
            "none": "failed host-oom", "running": "failed host-oom", "lost": "failed host-oom",
            **OURS}),
        (job("COMPLETED", steps=OOM_STEP), {
            "none": "failed host-oom", "running": "failed host-oom", "lost": "failed host-oom",
            **OURS}),
        (job("FAILED", exit_code=1, derived_exit_code=0, derived_signal=125), {
            "none": "failed host-oom", "running": "failed host-oom", "lost": "failed host-oom",
            **OURS}),
        (job("TIMEOUT"), {
            "none": "failed time-limit", "running": "failed time-limit",
            "lost": "failed time-limit", **OURS, "stopped": "failed time-limit"}),
        (job("PREEMPTED"), {"none": "stopped", "running": "stopped", "lost": "stopped", **OURS}),
        (job("NODE_FAIL"), {
            "none": "failed peer-lost", "running": "failed peer-lost", "lost": "failed peer-lost",
            **OURS, "stopped": "failed peer-lost"}),
        *((job(state), {
            "none": "failed scheduler", "running": "failed scheduler", "lost": "failed scheduler",
            **OURS, "stopped": "failed scheduler"})
          for state in ("BOOT_FAIL", "DEADLINE", "LAUNCH_FAILED", "RECONFIG_FAIL")),
        (job("CANCELLED"), {"none": "stopped", "running": "stopped", "lost": "stopped", **OURS}),
        (job("REVOKED"), {"none": "unknown", "running": "unknown", "lost": "unknown", **OURS}),
        (job("NEWER_THAN_THIS"), {
            "none": "unknown", "running": "unknown", "lost": "unknown", **OURS}),
        (SlurmJob(id="7", problem="squeue: away"), {
            "none": "unknown", "running": "unknown", "lost": "unknown", **OURS}),
        (None, {"none": "lost", "running": "lost", "lost": "lost", **OURS}),
        (job("PENDING", restarts=1, submitted_at=NOW - 20, started_at=None),
         dict.fromkeys(OWN, "pending")),
        (job("REQUEUED"), dict.fromkeys(OWN, "pending")),
        (job("REQUEUE_HOLD", restarts=2), dict.fromkeys(OWN, "pending")),
        (job("SPECIAL_EXIT", restarts=2), dict.fromkeys(OWN, "pending")),
    ],
    ids=lambda value: (value.state or "silent") if isinstance(value, SlurmJob) else None,
)  # fmt: skip
def test_the_state_follows_from_slurms_word_and_the_runs_own(
    engine: SlurmJob | None, expected: dict[str, str]
) -> None:
    assert {own: brief(engine, status(own)) for own in OWN} == expected


def test_a_completed_job_without_an_end_of_its_run_is_never_a_success() -> None:
    for own in ("none", "running", "lost", "unknown", "pending"):
        assert brief(job("COMPLETED"), status(own)) == "lost"


def test_every_word_of_slurm_has_a_meaning_for_every_record() -> None:
    words = [*jobs.BASE_STATES, *jobs.STATE_FLAGS, "WORD"]
    for word in words:
        for own in (*OWN, "unknown", "pending"):
            assert shown(job(word), status(own)).state != "own"
    unreachable = {word for row in meaning.TABLE for word in row[0]} - {
        *words, meaning.FORGOTTEN, meaning.SILENT, meaning.NEW_WORD, meaning.AGAIN, meaning.LATE,
        meaning.NO_OUTPUT, meaning.OOM,
    }  # fmt: skip
    assert unreachable == set()


def test_every_class_of_the_table_is_a_failure_class() -> None:
    assert {row[4] for row in meaning.TABLE if row[4]} <= set(classes.TABLE)


def test_a_kill_without_proof_is_out_of_memory_where_slurm_has_seen_that() -> None:
    engine = job("FAILED", exit_code=1, steps=OOM_STEP)
    assert brief(engine, status("failed", "killed")) == "failed host-oom"


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("SIGTERM from pid 7 (slurmstepd, root)", ["running"] * 5 + ["pending", "stopped"]),
        ("`safelaunch stop` (ann)", ["stopped"] * 5 + ["pending", "stopped"]),
    ],
)
def test_a_run_that_slurm_has_ended_is_over_once_slurm_says_that_it_does_not_go_on(
    origin: str, expected: list[str]
) -> None:
    own = status("stopped", stopped_by="SIGTERM", stop_origin=origin)
    going = [job(state) for state in ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED")]
    ending = job("PREEMPTED", flags=["COMPLETING"])
    again = job("PENDING", restarts=1, submitted_at=NOW - 10, started_at=None)
    words = [*going, ending, again, job("PREEMPTED")]
    assert [shown(word, own).state for word in words] == expected


def test_a_job_whose_dependency_cannot_be_satisfied_was_cancelled_for_that() -> None:
    engine = job("CANCELLED", reason="DependencyNeverSatisfied")
    assert "the job that it depends on has failed" in shown(engine, None).reason


# -- several lives ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "state"),
    [(NOW - 1000, "pending"), (NOW - 101, "pending"), (NOW - 10, "stopped")],
    ids=["an earlier life", "while it was queued again", "after its second start"],
)
def test_an_answer_that_is_older_than_the_runs_end_does_not_hide_it(
    ended: float, state: str
) -> None:
    engine = job("PENDING", restarts=1, submitted_at=NOW - 150, started_at=None)
    assert shown(engine, status("stopped", ended_at=ended)).state == state


@pytest.mark.parametrize(("life", "state"), [(0, "pending"), (1, "running"), (2, "running")])
def test_a_node_that_has_joined_since_the_requeue_is_newer_than_slurms_answer(
    life: int, state: str
) -> None:
    engine = job("PENDING", restarts=1, submitted_at=NOW - 150, started_at=None)
    assert meaning.meaning(engine, status("running"), life=life, now=NOW).state == state


@pytest.mark.parametrize("own", ["stopped", "failed", "running"])
def test_the_record_of_an_earlier_life_is_not_that_of_this_one(own: str) -> None:
    engine = job("RUNNING", restarts=1, started_at=NOW - 20)
    earlier = status(own, ended_at=None if own == "running" else NOW - 300)
    assert earlier is not None
    earlier.attempts = [AttemptRecord(attempt=1, started_at=NOW - 900)]
    assert shown(engine, earlier).state == "pending"


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "words", "remedy"),
    [
        (job("PENDING", reason="Priority"), "jobs of higher priority are before it (Priority)", ""),
        (
            job("PENDING", reason="Resources", expected_at=NOW + 7200),
            "it waits for nodes that are free (Resources); Slurm expects it to start in 2 h", "",
        ),
        (job("PENDING", reason="JobHeldUser"), "it is held (JobHeldUser)",
         "`scontrol release 7` lets it start"),
        (job("PENDING", reason="JobHeldAdmin"), "an administrator holds it (JobHeldAdmin)",
         "ask who has held it; only an administrator can release it"),
        (job("PENDING", reason="DependencyNeverSatisfied"),
         "the job that it depends on has failed: it will never start (DependencyNeverSatisfied)",
         "stop it and start it again once the other job can succeed"),
        (job("PENDING", reason="PartitionDown"), "partition gpu is down (PartitionDown)",
         "`sinfo -p gpu` shows its state; ask the administrator, or use another partition"),
        (job("PENDING", reason="QOSMaxGRESPerUser"),
         "a limit of its QOS is reached: it waits for other jobs to end (QOSMaxGRESPerUser)",
         LIMITS),
        (job("PENDING", reason="QOSMaxWallDurationPerJobLimit"),
         "it asks for more, or less, than one job of its QOS may (QOSMaxWallDurationPerJobLimit)",
         f"stop it, and ask for less; {LIMITS}"),
        (job("PENDING", reason="AssocGrpGRES"),
         "a limit of its account or user is reached: it waits for other jobs to end (AssocGrpGRES)",
         LIMITS),
        (job("PENDING", reason="ReqNodeNotAvail, UnavailableNodes:n[1-2]"),
         "a node that it needs cannot be used (ReqNodeNotAvail, UnavailableNodes:n[1-2])",
         "`sinfo -R` shows why; wait for the node, or do not ask for it"),
        (job("PENDING", reason="Something New"), "Slurm gives this reason (Something New)",
         "https://slurm.schedmd.com/job_reason_codes.html explains it"),
        (job("REQUEUE_HOLD", restarts=1, reason="job_requeued_in_held_state"),
         "queued again (1 time): it was queued again and is held (job requeued in held state)",
         "look why it was held, then `scontrol release 7`"),
        (job("TIMEOUT", time_limit=3600.0), "the time limit of its job was reached (1 h 0 min)",
         "ask for more time (`time` in `slurm:`), or resume from the last checkpoint"),
        (job("CANCELLED", cancelled_by="1000"), "its job was cancelled by your user (`scancel`)",
         ""),
        (job("CANCELLED", cancelled_by="7"), "its job was cancelled by user 7", ""),
        (job("CANCELLED", cancelled_by="0"), "its job was cancelled by root", ""),
        (job("CANCELLED"), "its job was cancelled", ""),
        (job("BOOT_FAIL"), "Slurm could not run its job: BOOT_FAIL", ""),
        (job("FAILED", exit_code=127, reason="NonZeroExitCode"),
         "its job ended before the run began: FAILED, exit code 127 (NonZeroExitCode)",
         "read slurm.log in the folder of the run"),
        (job("NODE_FAIL"), "a node failed, one of n[1-2]",
         "`sinfo -R` shows which; resume from the last checkpoint, without it"),
        (SlurmJob(id="7", problem="squeue: {away}"), "squeue: {away}", ""),
    ],
)  # fmt: skip
def test_a_reason_says_what_to_do(engine: SlurmJob, words: str, remedy: str) -> None:
    result = shown(engine, None)
    assert (result.reason, result.remedy) == (words, remedy)


def test_a_job_that_runs_without_a_report_is_told_after_a_minute() -> None:
    late, early = shown(job(), None), shown(job(started_at=NOW - 59), None)
    assert late.reason == "its job runs on n[1-2] for 100 s, and no supervisor has reported"
    assert early.reason == "its nodes are prepared: n[1-2]"


def test_every_recorded_reason_for_waiting_is_known() -> None:
    listed = jobs.parse_squeue((DATA / "slurm/22.05/no-accounting/squeue-end.txt").read_text())
    waiting = [job.reason for job in listed if job.state == "PENDING"]
    assert len(set(waiting)) > 5
    words = [reasons.describe(job)[0] for job in listed if job.state == "PENDING"]
    assert [text for text in words if text.startswith("Slurm gives")] == []
