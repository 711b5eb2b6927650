from __future__ import annotations

import pytest

from safelaunch.runtime.progress.watchdog import GAP, Watchdog
from safelaunch.runtime.records import HangPolicy

POLICY = {"action": "report", "first_progress": 1000.0, "factor": 10.0, "floor": 100.0}


class Job:
    """A job on a clock of its own, looked at each second."""

    def __init__(self, policy: dict[str, object] | None = POLICY) -> None:
        self.dog = Watchdog(None if policy is None else HangPolicy.from_json(policy))
        self.now = 5000.0
        self.bytes = 0
        self.steps = 0
        self.times: list[float] = []
        self.alarms: list[float] = []
        self.observe()

    def observe(self) -> bool:
        suspicions = self.dog.observe(self.now, self.bytes, self.steps, self.times)
        if suspicions:
            self.alarms.append(self.now)
        return suspicions

    def wait(self, seconds: float, chatty: bool = False) -> bool:
        """Let time pass; whether a suspicion began."""
        before = len(self.alarms)
        for _ in range(int(seconds)):
            self.now += 1
            self.bytes += chatty
            self.observe()
        return len(self.alarms) > before

    def step(self, seconds: float = 1.0, count: int = 1) -> None:
        for _ in range(count):
            self.wait(seconds - 1)
            self.now += 1
            self.bytes += 80
            self.steps += 1
            self.times.append(seconds)
            self.observe()


def test_before_two_steps_only_first_progress_counts() -> None:
    job = Job()
    job.step()
    assert not job.wait(999)
    assert job.wait(1)


def test_a_job_that_never_shows_a_step_is_suspected_after_first_progress() -> None:
    job = Job()
    assert not job.wait(999)
    assert job.wait(1)


def test_fast_steps_get_the_floor() -> None:
    job = Job()
    job.step(1.0, 5)
    assert not job.wait(99)
    assert job.wait(1)
    assert job.dog.silent == 100


def test_slow_steps_get_a_multiple_of_their_median() -> None:
    job = Job()
    job.step(50.0, 4)
    job.step(90.0)
    assert not job.wait(499)
    assert job.wait(1)


@pytest.mark.parametrize("seconds", [391.0, 6707.0])
def test_steps_as_slow_as_those_of_areal_are_not_suspected(seconds: float) -> None:
    job = Job({"action": "stop", "first_progress": 10800.0, "factor": 10.0, "floor": 300.0})
    job.step(seconds, 3)
    assert job.alarms == []


def test_a_suspicion_begins_once() -> None:
    job = Job()
    job.step(1.0, 3)
    job.wait(500)
    assert len(job.alarms) == 1


def test_output_ends_a_suspicion_and_tells_how_long_it_was() -> None:
    job = Job()
    job.step(1.0, 3)
    job.wait(140)
    job.wait(1, chatty=True)
    assert (job.dog.resumed(), job.dog.silent, job.dog.is_quiet()) == (True, 141, True)


def test_the_end_of_a_suspicion_is_told_once() -> None:
    job = Job()
    job.step(1.0, 3)
    job.wait(140)
    job.wait(1, chatty=True)
    job.wait(1)
    assert not job.dog.resumed()


def test_after_a_false_suspicion_the_job_gets_twice_that_time() -> None:
    job = Job()
    job.step(1.0, 3)
    job.wait(140)
    job.step()
    assert not job.wait(281)
    assert job.wait(1)


@pytest.mark.parametrize("step", [True, False])
def test_a_second_suspicion_begins_after_either_sign_of_life(step: bool) -> None:
    job = Job()
    job.step(1.0, 3)
    job.wait(100)
    if step:
        job.step()
    else:
        job.wait(1, chatty=True)
    job.wait(300)
    assert len(job.alarms) == 2


def test_output_without_steps_is_no_silence() -> None:
    job = Job()
    job.step(1.0, 3)
    assert not job.wait(999, chatty=True)


def test_output_without_steps_is_reported_after_first_progress() -> None:
    job = Job()
    job.step(1.0, 3)
    assert job.wait(1000, chatty=True)
    assert (job.dog.kind, job.dog.silent) == ("stepless", 1000)


def test_output_without_steps_never_ends_a_job() -> None:
    job = Job()
    job.step(1.0, 3)
    job.wait(3000, chatty=True)
    assert job.dog.is_quiet()


def test_a_silent_job_may_be_ended() -> None:
    job = Job()
    job.step(1.0, 3)
    job.wait(100)
    assert not job.dog.is_quiet()


def test_only_a_step_ends_the_suspicion_about_steps() -> None:
    job = Job()
    job.step(1.0, 3)
    job.wait(1500, chatty=True)
    assert job.dog.kind == "stepless"
    job.step()
    assert (job.dog.resumed(), job.dog.silent) == (True, 1501)


def test_a_job_without_recognised_steps_may_print_for_ever() -> None:
    job = Job()
    assert not job.wait(5000, chatty=True)


def test_a_suspended_machine_was_not_silent() -> None:
    job = Job()
    job.step(1.0, 3)
    job.wait(50)
    job.now += 8 * 3600
    assert not job.observe()
    assert not job.wait(49)
    assert job.wait(1)


def test_a_clock_that_is_set_back_starts_no_suspicion() -> None:
    job = Job()
    job.step(1.0, 3)
    job.now -= 3600
    job.observe()
    assert not job.wait(99)
    assert job.wait(1)


def test_a_slow_look_counts_as_time() -> None:
    job = Job()
    job.step(1.0, 3)
    for _ in range(3):
        job.now += GAP
        job.observe()
    job.wait(10)
    assert len(job.alarms) == 1


def test_switched_off_it_suspects_nothing() -> None:
    job = Job(None)
    job.step(1.0, 3)
    assert not job.wait(2000)
    assert job.dog.is_quiet()


def test_the_pace_of_now_counts_not_that_of_the_start() -> None:
    job = Job()
    job.step(1.0, 60)
    job.step(30.0, 120)
    assert not job.wait(299)
    assert job.wait(1)
