"""What the output of squeue, sacct and scontrol says about jobs, by recorded and written output."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from support import DATA

from safelaunch.runtime.engines.slurm import jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.runtime.engines.slurm.jobs import SlurmJob

    Parser = Callable[[str], list[SlurmJob]]

FOLDER = DATA / "slurm"
PARSERS: dict[str, Parser] = {
    "squeue": jobs.parse_squeue,
    "sacct": jobs.parse_sacct,
    "scontrol": jobs.parse_scontrol,
}
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.txt"))


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def parse(name: str) -> list[SlurmJob]:
    return PARSERS[name.rpartition("/")[2].split(".")[0].split("-")[0]](text(name))


def code(exit_code: int | None, signal: int | None) -> str:
    return f"{'' if exit_code is None else exit_code}:{signal or ''}"


def summary(job: SlurmJob) -> str:
    """Return state, exit codes, restarts and reason in a line."""
    codes = code(job.exit_code, job.signal), code(job.derived_exit_code, job.derived_signal)
    return " ".join([*job.words, *codes, str(job.restarts), job.reason]).strip()


def steps(job: SlurmJob) -> str:
    return ", ".join(f"{s.id} {s.state} {code(s.exit_code, s.signal)}" for s in job.steps)


# -- recorded output -------------------------------------------------------------------------------

ENDS_WITHOUT_ACCOUNTING = {
    "ok": "COMPLETED 0: 0: 0",
    "exit-3": "FAILED 3: 3: 0 NonZeroExitCode",
    "segv": "FAILED 139: 0:11 0 NonZeroExitCode",
    "one-task-fails": "FAILED 1: 1: 0 NonZeroExitCode",
    "batch-killed": "FAILED 0:9 0: 0 JobLaunchFailure",
    "comment, with | and blanks": "COMPLETED 0: 0: 0",
    "no-output-folder": "FAILED 0:53 0: 0 JobLaunchFailure",
    "oom-step": "FAILED 137: 0:9 0 NonZeroExitCode",
    "oom-swallowed": "COMPLETED 0: 0:9 0",
    "held": "PENDING 0: 0: 0 JobHeldUser",
    "begin-later": "PENDING 0: 0: 0 BeginTime",
    "partition-down": "PENDING 0: 0: 0 PartitionDown",
    "dependency-never": "PENDING 0: 0: 0 DependencyNeverSatisfied",
    "resources": "PENDING 0: 0: 0 Resources",
    "time-limit": "TIMEOUT 143: 0:15 0 TimeLimit",
    "cancelled-running": "CANCELLED 0:15 0:15 0",
    "cancelled-pending": "CANCELLED 0: 0: 0 JobHeldUser",
    "completing": "CANCELLED 0:9 0:9 0",
    "requeued": "PENDING 0: 0:15 1 BeginTime",
    "requeue-hold": "PENDING 0: 0:15 1 job requeued in held state",
    "suspended": "CANCELLED 0:9 0:9 0",
    "running": "RUNNING 0: 0: 0",
    "preempted": "PENDING 0: 0:15 1 BeginTime",
    "preempted-ends": "PREEMPTED 0:15 0:15 0",
    "urgent": "COMPLETED 0: 0: 0",
    "urgent-2": "COMPLETED 0: 0: 0",
    "node-fail": "NODE_FAIL 0:15 0:15 0 NodeDown",
}


@pytest.mark.parametrize("command", ["squeue", "scontrol"])
def test_the_controller_tells_each_end_without_accounting(command: str) -> None:
    listed = parse(f"22.05/no-accounting/{command}-end.txt")
    single = {job.comment: summary(job) for job in listed if not job.array and not job.het}
    assert single == ENDS_WITHOUT_ACCOUNTING


def test_accounting_tells_each_end_with_its_steps() -> None:
    ended = {job.comment: job for job in parse("22.05/accounting/sacct-end.txt")}
    assert {name: f"{summary(ended[name])} / {steps(ended[name])}" for name in (
        "ok", "segv", "no-output-folder", "oom-step", "oom-swallowed", "time-limit",
        "cancelled-running", "requeued", "preempted-ends", "node-fail",
    )} == {
        "ok": "COMPLETED 0: 0: 0 / batch COMPLETED 0:, 0 COMPLETED 0:",
        "segv": "FAILED 11: 0:11 0 / batch FAILED 11:, 0 CANCELLED 0:11",
        "no-output-folder": "FAILED 0:53 0: 0 / batch CANCELLED 0:53",
        "oom-step": "FAILED 1: 0:125 0 / batch FAILED 1:, 0 OUT_OF_MEMORY 0:125",
        "oom-swallowed": "COMPLETED 0: 0:125 0 / batch COMPLETED 0:, 0 OUT_OF_MEMORY 0:125",
        "time-limit": "TIMEOUT 0: 0: 0 / batch CANCELLED 0:15, 0 CANCELLED 0:15",
        "cancelled-running": "CANCELLED 0: 0: 0 / batch CANCELLED 0:15, 0 CANCELLED 0:15",
        "requeued": "REQUEUED 0: 0: 0 / batch CANCELLED 0:15, 0 CANCELLED 0:15",
        "preempted-ends": "PREEMPTED 0: 0: 0 / batch CANCELLED 0:15, 0 CANCELLED 0:15",
        "node-fail": "NODE_FAIL 0: 0: 0 / batch CANCELLED 0:15, 0 CANCELLED 0:15",
    }  # fmt: skip
    assert ended["cancelled-running"].cancelled_by == "0"


def test_a_job_that_was_queued_again_is_its_last_life() -> None:
    lives = {job.id: job for job in parse("22.05/accounting/sacct-requeued.txt")}
    again = {key: (summary(lives[key]), steps(lives[key])) for key in ("25", "29")}
    running = "batch RUNNING 0:, 0 RUNNING 0:"
    assert again == {
        "25": ("RUNNING 0: 0: 1 BeginTime", running),
        "29": ("RUNNING 0: 0: 1 ReqNodeNotAvail", running),
    }


def test_a_job_that_is_being_ended_shows_only_that() -> None:
    middle = {job.comment: job for job in parse("22.05/no-accounting/squeue-middle.txt")}
    assert (middle["completing"].state, middle["completing"].ended_at) == ("COMPLETING", None)


def test_times_are_expected_ones_until_they_have_come() -> None:
    jobs_by_name = {job.comment: job for job in parse("22.05/no-accounting/squeue-end.txt")}
    times = {
        name: (
            job.expected_at and job.expected_at - 1795827900,
            job.started_at and job.started_at - 1795827900,
            job.ended_at and job.ended_at - 1795827900,
            job.limit_at and job.limit_at - 1795827900,
            job.time_limit,
        )
        for name, job in jobs_by_name.items()
        if name in ("ok", "running", "resources", "held")
    }
    assert times == {
        "ok": (None, 3, 4, None, 1800),
        "running": (None, 7, None, 7207, 7200),
        "resources": (7207, None, None, None, 7200),
        "held": (None, None, None, None, 1800),
    }


# -- other releases --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("20.11/squeue.txt", {
            "401": "PENDING 0: 0: 0 QOSMaxGRESPerUser",
            "402": "PENDING 0: 0: 0 ReqNodeNotAvail, UnavailableNodes:gpu[01-04,07]",
            "403": "PENDING 0: 0: 0 (Nodes required for job are DOWN, DRAINED or reserved for jobs"
            " in higher priority partitions)",
            "404": "CONFIGURING 0: 0: 0",
            "405": "FAILED 0:53 0: 0 JobLaunchFailure",
            "406_7": "FAILED 1: 0:125 2 NonZeroExitCode",
        }),
        ("20.11/sacct.txt", {"410": "CANCELLED 0: 0: 0", "411": "TIMEOUT 0: 0: 2"}),
        ("20.11/scontrol.txt", {"420": "COMPLETING 1: 0:125 3"}),
        ("23.11/squeue.txt", {
            "501": "PENDING 0: 0: 0 AssocGrpGRES",
            "502": "FAILED 0:53 0: 0 JobLaunchFailure",
            "503": "RUNNING : : 1",
            "504+1": "OUT_OF_MEMORY 0:125 0:125 0 OutOfMemory",
        }),
        ("23.11/sacct.txt", {
            "510": "OUT_OF_MEMORY 0:125 0:125 0 OutOfMemory",
            "511": "BOOT_FAIL 0: 0: 0",
            "512": "DEADLINE 0: 0: 0 DeadLine",
        }),
        ("23.11/scontrol.txt", {
            "520_[0,2,4-20:4%2]": "PENDING 0: 0: 1 launch failed requeued held",
        }),
        ("25.11/squeue.txt", {
            "601": "EXPEDITING 0: 0: 1",
            "602": "SIGNALING 0: 0: 0",
            "603": "SPECIAL_EXIT 3: 3: 0 JobHeldUser",
            "604": "PENDING 0: 0: 0 NvidiaImexChannels",
        }),
        ("25.11/sacct.txt", {"610": "COMPLETED 0: 0: 1 BeginTime"}),
        ("25.11/scontrol.txt", {"620": "NODE_FAIL 0:15 0: 0 NodeDown"}),
    ],
)  # fmt: skip
def test_other_releases_are_understood(name: str, expected: dict[str, str]) -> None:
    assert {job.id: summary(job) for job in parse(name)} == expected


def test_texts_of_the_user_do_not_look_like_fields() -> None:
    [older], [newer] = parse("20.11/scontrol.txt"), parse("25.11/scontrol.txt")
    comments = [(job.user, job.comment) for job in (older, newer)]
    assert comments == [("ada", "llm-20, Extra words"), ("ada", "llm-20")]


# -- lines and values ------------------------------------------------------------------------------


def test_a_banner_is_no_job() -> None:
    banner = "Welcome to the cluster | read the news\n\nCLUSTER: big\n7 of 9 nodes are up\n1|2|3\n"
    for name in ("22.05/accounting/squeue-end.txt", "22.05/accounting/sacct-end.txt"):
        command = PARSERS[name.rpartition("/")[2].split("-")[0]]
        assert command(banner + text(name)) == parse(name)
    scontrol = "22.05/no-accounting/scontrol-end.txt"
    assert jobs.parse_scontrol(banner + text(scontrol)) == parse(scontrol)


def test_a_cluster_above_its_jobs_is_theirs() -> None:
    line = "7|7|N/A|N/A|gpu|ada|RUNNING|None|1|n1|0|0|0|1|2|3|1:00|"
    listed = jobs.parse_squeue(f"CLUSTER: east\n{line}\nCLUSTER: west\n{line}\n")
    assert [job.cluster for job in listed] == ["east", "west"]
    assert jobs.find(listed, "7;west") == listed[1]


@pytest.mark.parametrize("name", FILES)
def test_damaged_output_is_never_an_error(name: str) -> None:
    command = PARSERS[name.rpartition("/")[2].split(".")[0].split("-")[0]]
    rng = random.Random(name)  # noqa: S311 - a sample that can be repeated
    lines = text(name).splitlines()[:12]
    for _ in range(60):
        line = rng.choice(lines)
        start, size = rng.randrange(len(line)), rng.randrange(12)
        junk = rng.choice(
            ("", "|", "\x00", "9" * 5000, "=", " ", "\N{SUPERSCRIPT TWO}", "-:", "_[")
        )
        listed = command(line[:start] + junk + line[start + size :])
        assert {type(job) for job in listed} <= {jobs.SlurmJob}


@pytest.mark.parametrize(
    ("words", "state", "flags", "user"),
    [
        ("CANCELLED by 1000", "CANCELLED", [], "1000"),
        ("CANCELLED+", "CANCELLED", [], ""),
        ("COMPLETI", "COMPLETING", [], ""),
        ("COMPLET", "COMPLET", [], ""),  # COMPLETED or COMPLETING: not guessed
        ("PD", "PENDING", [], ""),
        ("RUNNING,COMPLETING", "RUNNING", ["COMPLETING"], ""),
        ("REQUEUED+PENDING", "PENDING", ["REQUEUED"], ""),
        ("SOMETHING_NEW", "SOMETHING_NEW", [], ""),
        ("", "", [], ""),
    ],
)
def test_a_state_is_read(words: str, state: str, flags: list[str], user: str) -> None:
    assert jobs.parse_state(words) == (state, flags, user)


@pytest.mark.parametrize(
    "words", ["Unknown", "N/A", "None", "", "0", "(null)", "2026-13", "T", "x"]
)
def test_a_time_that_is_not_said_is_none(words: str) -> None:
    assert jobs.parse_time(words) is None


def test_a_local_time_is_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert jobs.parse_time("2026-05-01T09:00:00") == 1777593600
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("30", 1800), ("30:00", 1800), ("1:30:00", 5400), ("2-00:00:00", 172800), ("1-12", 129600),
        ("UNLIMITED", None), ("Partition_Limit", None), ("NOT_SET", None), ("", None),
    ],
)  # fmt: skip
def test_a_time_limit_is_read(words: str, seconds: float | None) -> None:
    line = f"7|7|N/A|sl|gpu|ada|RUNNING|None|1|n1|0|0|0|1|2|N/A|{words}|"
    [job] = jobs.parse_squeue(line)
    assert (job.time_limit, job.limit_at) == (seconds, seconds and 2 + seconds)


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("7", "7"), ("7;sl", "7"), ("7;other", None), ("12_3", "15"), ("12_9", "12"),
        ("12_10", None), ("12_30", "12"), ("21", "21"), ("21+1", "22"), ("22", "22"), ("8", None),
    ],
)  # fmt: skip
def test_a_job_is_found_by_the_id_that_sbatch_prints(key: str, number: str | None) -> None:
    ids = [("7", "7"), ("12_[8-9,20-40:5%2]", "12"), ("12_3", "15"), ("21+0", "21"), ("21+1", "22")]
    rest = "N/A|sl|gpu|ada|RUNNING|None|1|n1|0|0|0|1|2|3|1:00|"
    listed = jobs.parse_squeue("".join(f"{name}|{raw}|{rest}\n" for name, raw in ids))
    job = jobs.find(listed, key)
    assert (job and job.number) == number


def test_a_job_survives_a_file() -> None:
    for job in parse("22.05/accounting/sacct-end.txt"):
        assert jobs.SlurmJob.from_json(job.to_json()).to_json() == job.to_json()
