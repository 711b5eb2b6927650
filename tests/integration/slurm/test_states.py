"""The states of real jobs, as Slurm tells them and as a run would show them."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest
from support.workspace import wait_for

from safelaunch.runtime.engines.slurm import query
from safelaunch.runtime.engines.slurm.jobs import SlurmJob
from safelaunch.runtime.engines.slurm.meaning import meaning
from safelaunch.runtime.records import Status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.slurm import Slurm

    from safelaunch.runtime.engines.meaning import Meaning

SLEEP = "srun sleep 600"
UID = 1000  # of a user that looks on; the jobs are root's


class Case(NamedTuple):
    """A job in a state, and what is shown of its run, which has recorded nothing."""

    slurm: str  # state
    shown: str  # state, and class
    reason: str  # part of it


CASES = {
    "ok": Case("COMPLETED", "lost", "completed, and no end was recorded"),
    "exit-3": Case("FAILED", "failed scheduler", "exit code 3"),
    "no-output-folder": Case("FAILED", "failed scheduler", "there is no log"),
    "running": Case("RUNNING", "pending", "its nodes are prepared: n1"),
    "full": Case("PENDING", "pending", "it waits for nodes that are free (Resources)"),
    "held": Case("PENDING", "pending", "it is held (JobHeldUser)"),
    "later": Case("PENDING", "pending", "not start before its time (BeginTime); Slurm expects"),
    "down": Case("PENDING", "pending", "partition down is down (PartitionDown)"),
    "never": Case("PENDING", "pending", "it will never start (DependencyNeverSatisfied)"),
    "array_1": Case("PENDING", "pending", "it is held (JobHeldUser)"),
    "het+1": Case("COMPLETED", "lost", "completed, and no end was recorded"),
    "cancelled": Case("CANCELLED", "stopped", "its job was cancelled"),
    "cancelled-waiting": Case("CANCELLED", "stopped", "its job was cancelled"),
    "requeued": Case("PENDING", "pending", "queued again (1 time)"),
    "held-again": Case("PENDING", "pending", "queued again (1 time): it was queued again and is"),
}


def submit_all(slurm: Slurm) -> dict[str, str]:
    """Submit the jobs of all cases, and do to them what brings their state about."""
    failed = slurm.submit(script="exit 3")
    jobs = {
        "ok": slurm.submit(),
        "exit-3": failed,
        "no-output-folder": slurm.submit(output=str(slurm.folder / "absent" / "log")),
        "running": slurm.submit("--nodelist=n1", script=SLEEP),
        "held": slurm.submit("--hold"),
        "later": slurm.submit("--begin=now+1hour"),
        "down": slurm.submit("--partition=down"),
        "array_1": slurm.submit("--hold", "--array=0-2") + "_1",
        "het+1": slurm.submit("--nodes=1", ":", "--nodes=1") + "+1",
        "never": slurm.submit(f"--dependency=afterok:{failed}"),
        "cancelled-waiting": slurm.submit("--hold"),
    }
    ended = {name: slurm.submit("--nodelist=n2", script=SLEEP) for name in (
        "cancelled", "requeued", "held-again",
    )}  # fmt: skip
    for job in ended.values():
        wait_for(lambda job=job: slurm.run("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING", job)  # type: ignore[misc]
    slurm.run("scancel", jobs["cancelled-waiting"], ended["cancelled"])
    slurm.run("scontrol", "requeue", ended["requeued"])
    slurm.run("scontrol", "requeuehold", ended["held-again"])
    return {**jobs, **ended, "full": slurm.submit("--nodelist=n1", "--exclusive")}


class Watch:
    """Asks again and again as if ten seconds had passed, for all jobs at once."""

    def __init__(self, folder: Path, jobs: dict[str, str]) -> None:
        self.jobs = jobs
        self._folder = folder
        self._hours = itertools.count(0, 3600)

    def look(self) -> dict[str, SlurmJob | None]:
        now = time.time() + next(self._hours)
        keys = list(self.jobs.values())
        answers = query.look(keys, folder=str(self._folder), clock=lambda: now)
        return {name: answers[key] for name, key in self.jobs.items()}

    def settled(self, cases: dict[str, Case]) -> dict[str, SlurmJob]:
        """Return the jobs, once each has the state and the reason of its case."""
        last: dict[str, str] = {}

        def settled() -> dict[str, SlurmJob]:
            jobs = {name: job for name, job in self.look().items() if job is not None}
            last.clear()
            for name, case in cases.items():
                job = jobs.get(name, SlurmJob())
                words = f"{job.state} {job.problem}: {shown(job).reason}"
                if job.state != case.slurm or case.reason not in words:
                    last[name] = words
            return {} if last else jobs

        try:
            return wait_for(settled, "state of each job")  # type: ignore[no-any-return]
        except AssertionError as e:
            raise AssertionError(f"other states: {last}") from e


def shown(job: SlurmJob | None, status: Status | None = None) -> Meaning:
    return meaning(job, status, uid=UID)


@pytest.fixture(scope="module")
def watch(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(slurm.config))
        yield Watch(tmp_path_factory.mktemp("home"), submit_all(slurm))


@pytest.fixture(scope="module")
def jobs(watch: Watch) -> dict[str, SlurmJob]:
    return watch.settled(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_job_is_shown_as_it_is(name: str, jobs: dict[str, SlurmJob]) -> None:
    result = shown(jobs[name])
    assert f"{result.state} {result.class_name or ''}".strip() == CASES[name].shown


@pytest.mark.parametrize(
    ("name", "own", "state"),
    [
        ("ok", "succeeded", "succeeded"),
        ("ok", "running", "lost"),
        ("exit-3", "failed", "failed"),
        ("running", "running", "running"),
        ("requeued", "stopped", "pending"),
        ("cancelled", "stopped", "stopped"),
    ],
)
def test_the_runs_own_record_counts_where_it_can(
    name: str, own: str, state: str, jobs: dict[str, SlurmJob]
) -> None:
    ended = None if own == "running" else time.time()
    status = Status(state=own, started_at=time.time(), ended_at=ended)
    assert shown(jobs[name], status).state == state


def test_a_job_that_slurm_does_not_have_is_forgotten(watch: Watch, tmp_path: Path) -> None:
    running = watch.jobs["running"]
    answers = query.look(["999999", running], folder=str(tmp_path))
    assert answers["999999"] is None
    assert answers[running] is not None


@pytest.mark.usefixtures("slurm")
def test_a_slurm_that_cannot_be_asked_leaves_a_job_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "slurm.conf"
    config.write_text("ClusterName=without-a-controller\n")
    monkeypatch.setenv("SLURM_CONF", str(config))
    job = query.look(["1"], folder=str(tmp_path))["1"]
    assert job is not None
    assert (job.state, job.problem.startswith("squeue: ")) == ("", True)
    assert shown(job).state == "unknown"


# -- with accounting -------------------------------------------------------------------------------

ACCOUNTED = {
    **CASES,
    "cancelled": Case("CANCELLED", "stopped", "its job was cancelled by root"),
    "cancelled-waiting": Case("CANCELLED", "stopped", "its job was cancelled"),
}


@pytest.mark.slurm_accounting
def test_with_accounting_each_job_is_shown_as_it_is_with_its_steps(
    slurm_with_accounting: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm_with_accounting.config))
    watch = Watch(tmp_path, submit_all(slurm_with_accounting))
    states = {
        name: f"{shown(job).state} {shown(job).class_name or ''}".strip()
        for name, job in watch.settled(ACCOUNTED).items()
    }
    assert states == {name: case.shown for name, case in ACCOUNTED.items()}
    # a job that was cancelled at once may have no step
    expected = {"ok": ["batch COMPLETED"], "exit-3": ["batch FAILED"]}
    wait_for(lambda: first_steps(watch, *expected) == expected, "record of the steps")


def first_steps(watch: Watch, *names: str) -> dict[str, list[str]]:
    """Return the first step of jobs, which accounting has some time after their ends."""
    jobs = {name: job or SlurmJob() for name, job in watch.look().items() if name in names}
    return {name: [f"{s.id} {s.state}" for s in jobs[name].steps[:1]] for name in names}
