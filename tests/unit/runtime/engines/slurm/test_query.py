"""How Slurm is asked, and what is made of its answers."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import REPOSITORY

from safelaunch.runtime.commands import NOT_RUN, CommandResult
from safelaunch.runtime.engines.slurm import query
from safelaunch.runtime.engines.slurm.jobs import SACCT_FIELDS, SlurmJob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    Look = Callable[..., Mapping[str, SlurmJob | None]]

NO_JOB = "slurm_load_jobs error: Invalid job id specified"
DISABLED = "Slurm accounting storage is disabled"
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


def squeue(number: int, state: str = "RUNNING") -> str:
    return f"{number}|{number}|N/A|N/A|gpu|ada|{state}|None|1|n1|0|0|0|1|2|3|1:00|\n"


def sacct(number: int, state: str) -> str:
    step = f"{number}.0|{number}.0|||ada|OUT_OF_MEMORY||1|n1|0:125||1|2|3||\n"
    assert step.count("|") == len(SACCT_FIELDS) - 1
    return f"{number}|{number}|sl|gpu|ada|{state}|None|1|n1|0:0|0:0|1|2|3|1|\n{step}"


def scontrol(number: int, state: str) -> str:
    return f"JobId={number} JobName=x UserId=ada(1) JobState={state} Reason=None Restarts=0\n"


class Slurm:
    """Answers by command, and the calls that were made."""

    def __init__(self, **answers: str | CommandResult) -> None:
        self.answers = answers
        self.calls: list[list[str]] = []
        self.now = 1000.0

    def run(self, argv: Sequence[str]) -> CommandResult:
        self.calls.append(list(argv))
        answer = self.answers[argv[0]]
        return answer if isinstance(answer, CommandResult) else CommandResult(0, answer, "")

    def clock(self) -> float:
        return self.now

    def commands(self) -> list[str]:
        """Return the calls since the last question, each as its command, cluster and jobs."""
        calls, self.calls = self.calls, []
        shown = ("--clusters", "--jobs", "7", "8", "9")
        return [" ".join([c[0], *(word for word in c if word.startswith(shown))]) for c in calls]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    def ask(slurm: Slurm, *keys: str) -> Mapping[str, SlurmJob | None]:
        return query.look(keys, slurm.run, folder=str(tmp_path), clock=slurm.clock)

    return ask


def error(words: str, code: int = 1) -> CommandResult:
    return CommandResult(code, "", words)


def states(answers: Mapping[str, SlurmJob | None]) -> dict[str, str | None]:
    """Return {job: state, or the problem}."""
    return {key: (job.state or job.problem) if job else None for key, job in answers.items()}


# -- the commands ----------------------------------------------------------------------------------


def test_one_call_asks_about_all_jobs_that_squeue_lists(look: Look) -> None:
    slurm = Slurm(squeue=squeue(7) + squeue(8, "PENDING"))
    assert states(look(slurm, "7", "8")) == {"7": "RUNNING", "8": "PENDING"}
    assert slurm.commands() == ["squeue --jobs=7,8"]


def test_accounting_is_asked_once_about_what_squeue_does_not_list(look: Look) -> None:
    slurm = Slurm(squeue=squeue(7), sacct=sacct(8, "COMPLETED") + sacct(9, "FAILED"))
    answers = look(slurm, "7", "8", "9")
    assert states(answers) == {"7": "RUNNING", "8": "COMPLETED", "9": "FAILED"}
    assert slurm.commands() == ["squeue --jobs=7,8,9", "sacct --jobs=8,9"]


def test_accounting_adds_the_steps_of_a_job_that_squeue_lists_as_ended(look: Look) -> None:
    slurm = Slurm(squeue=squeue(7, "CANCELLED"), sacct=sacct(7, "CANCELLED by 1000"))
    job = look(slurm, "7")["7"]
    assert job is not None
    assert (job.source, job.cancelled_by, job.steps[0].state) == ("squeue", "1000", "OUT_OF_MEMORY")


def test_accounting_of_an_earlier_life_adds_nothing(look: Look) -> None:
    slurm = Slurm(squeue=squeue(7, "FAILED"), sacct=sacct(7, "PREEMPTED"))
    job = look(slurm, "7")["7"]
    assert job is not None
    assert (job.state, job.steps) == ("FAILED", ())


def test_without_accounting_scontrol_tells_of_what_squeue_does_not_list(look: Look) -> None:
    slurm = Slurm(squeue=error(NO_JOB), sacct=error(DISABLED), scontrol=scontrol(7, "FAILED"))
    assert states(look(slurm, "7")) == {"7": "FAILED"}
    assert slurm.commands() == ["squeue --jobs=7", "sacct --jobs=7", "scontrol 7"]


def test_a_cluster_is_asked_by_its_name(look: Look) -> None:
    line = squeue(7).replace("N/A|gpu", "east|gpu")
    slurm = Slurm(squeue=line, sacct="", scontrol=error(NO_JOB))
    assert states(look(slurm, "7;east", "7;west")) == {"7;east": "RUNNING", "7;west": None}
    west = [f"{words} --clusters=west" for words in ("squeue", "sacct", "scontrol")]
    assert slurm.commands() == [
        "squeue --clusters=east --jobs=7",
        f"{west[0]} --jobs=7",
        f"{west[1]} --jobs=7",
        f"{west[2]} 7",
    ]


@pytest.mark.parametrize("key", ["", "x", "7 --all", "7,8", "7_[1-3]", "-7", "7_"])
def test_a_key_that_names_no_job_is_an_error(look: Look, key: str) -> None:
    with pytest.raises(ValueError, match="no job id"):
        look(Slurm(), key)


# -- what is no end --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (
            {"squeue": error(AWAY), "sacct": ""},
            f"squeue: {AWAY}",
        ),
        (
            {"squeue": error(AWAY), "sacct": error("Connection refused")},
            f"squeue: {AWAY}; sacct: Connection refused",
        ),
        (
            {"squeue": error("`squeue` did not answer within 30 s", NOT_RUN), "sacct": ""},
            "`squeue` did not answer within 30 s",
        ),
        (
            {"squeue": error(AWAY), "sacct": sacct(7, "PREEMPTED")},
            f"squeue: {AWAY}",
        ),
        (
            {"squeue": error(AWAY), "sacct": sacct(7, "RUNNING")},
            f"squeue: {AWAY}",
        ),
        (
            {"squeue": "", "sacct": "", "scontrol": ""},
            "scontrol: exit code 0, no answer",
        ),
        (
            {"squeue": "Welcome | to\n", "sacct": "", "scontrol": "Welcome to the cluster"},
            "scontrol: Welcome to the cluster",
        ),
        (
            {"squeue": "", "sacct": sacct(7, "RUNNING"), "scontrol": error(NO_JOB)},
            "sacct has it as RUNNING, and Slurm's controller has no such job",
        ),
    ],
)
def test_what_slurm_does_not_say_is_unknown_with_its_words(
    look: Look, answers: dict[str, str | CommandResult], words: str
) -> None:
    assert states(look(Slurm(**answers), "7")) == {"7": words}


def test_an_end_in_accounting_counts_where_the_controller_is_away(look: Look) -> None:
    slurm = Slurm(squeue=error(AWAY), sacct=sacct(7, "TIMEOUT"))
    assert states(look(slurm, "7")) == {"7": "TIMEOUT"}


def test_only_a_controller_that_has_no_such_job_has_forgotten_it(look: Look) -> None:
    slurm = Slurm(squeue="", sacct="", scontrol=error(NO_JOB))
    assert look(slurm, "7") == {"7": None}


def test_a_controller_that_is_late_is_not_asked_for_each_job(look: Look) -> None:
    slurm = Slurm(squeue="", sacct="", scontrol=error("`scontrol` did not answer", NOT_RUN))
    answers = states(look(slurm, "7", "8", "9"))
    assert answers["9"] == "squeue does not list the job"
    assert slurm.commands().count("scontrol 7") == 1
    assert len(slurm.calls) == 0


# -- how often -------------------------------------------------------------------------------------


def test_an_answer_holds_for_ten_seconds(look: Look) -> None:
    slurm = Slurm(squeue=squeue(7))
    for now in (1000.0, 1009.9, 1010.1, 1015.0, 1000.0):  # the last: a clock that was set back
        slurm.now = now
        assert states(look(slurm, "7")) == {"7": "RUNNING"}
    assert len(slurm.commands()) == 3


def test_a_job_that_was_not_asked_about_yet_is_asked_about_at_once(look: Look) -> None:
    slurm = Slurm(squeue=squeue(7) + squeue(8))
    look(slurm, "7")
    look(slurm, "8")
    assert slurm.commands() == ["squeue --jobs=7", "squeue --jobs=7,8"]


def test_a_job_that_others_watch_is_part_of_the_call(look: Look) -> None:
    slurm = Slurm(squeue=squeue(7) + squeue(8))
    look(slurm, "7", "8")
    slurm.now += 11
    look(slurm, "8")
    slurm.now += 55
    look(slurm, "8")
    assert slurm.commands()[1:] == ["squeue --jobs=7,8", "squeue --jobs=8"]


def test_a_problem_holds_as_long_as_an_answer(look: Look) -> None:
    slurm = Slurm(squeue=error(AWAY), sacct="")
    for _ in range(3):
        look(slurm, "7")
    assert slurm.commands() == ["squeue --jobs=7", "sacct --jobs=7"]


def test_a_forgotten_job_is_not_asked_about_again(look: Look) -> None:
    slurm = Slurm(squeue="", sacct="", scontrol=error(NO_JOB))
    look(slurm, "7")
    slurm.now += 100
    look(slurm, "7")
    assert len(slurm.commands()) == 3


def test_what_nobody_asks_about_is_dropped(look: Look, tmp_path: Path) -> None:
    slurm = Slurm(squeue=squeue(7) + squeue(8))
    look(slurm, "7")
    slurm.now += 601
    look(slurm, "8")
    data = json.loads((tmp_path / "slurm-jobs.json").read_text())
    assert list(data["answers"]) == ["8"]


# -- the file --------------------------------------------------------------------------------------


def test_only_its_owner_may_read_the_answers(look: Look, tmp_path: Path) -> None:
    look(Slurm(squeue=squeue(7)), "7")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"slurm-jobs.json": 0o600, "slurm-jobs.json.lock": 0o600}


@pytest.mark.parametrize(
    "damage",
    ["", "[]", '{"answers": 3}', '{"answers": {"7": {"job": 3, "asked_at": 1000}}}', "\x00" * 50],
)
def test_a_damaged_file_is_written_anew(look: Look, tmp_path: Path, damage: str) -> None:
    (tmp_path / "slurm-jobs.json").write_text(damage)
    assert states(look(Slurm(squeue=squeue(7)), "7")) == {"7": "RUNNING"}


def test_a_home_that_cannot_be_written_hides_no_answer() -> None:
    slurm = Slurm(squeue=squeue(7))
    answers = query.look(["7"], slurm.run, folder="/proc/none", clock=slurm.clock)
    assert states(answers) == {"7": "RUNNING"}


ASK = "import sys; from safelaunch.runtime.engines.slurm import query; query.look(sys.argv[1:])"


def test_processes_share_a_call_that_ignores_the_users_filters(tmp_path: Path) -> None:
    tools, log = tmp_path / "bin", tmp_path / "log"
    tools.mkdir()
    script = tools / "squeue"
    shown = '"$SLURM_TIME_FORMAT ${SQUEUE_USERS-none} ${SLURM_CONF-none}"'
    script.write_text(f"#!/bin/sh\necho {shown} >>{log}\nsleep 0.2\necho '{squeue(7).strip()}'\n")
    script.chmod(0o755)
    environ = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "SAFELAUNCH_HOME": str(tmp_path / "home"),
        "SQUEUE_USERS": "somebody",
        "SLURM_CONF": "kept",
    }
    asking = [subprocess.Popen([sys.executable, "-c", ASK, "7"], env=environ) for _ in range(5)]
    assert [process.wait(60) for process in asking] == [0] * 5
    assert log.read_text() == "%s none kept\n"
