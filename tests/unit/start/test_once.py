"""The same key starts one run, and says what differs where it does not."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from safelaunch import api
from safelaunch.errors import ConfigError, Refused
from safelaunch.runs.access import LocalRun
from safelaunch.start.conditions.once import StartKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from safelaunch.model import Plan
    from safelaunch.runs.access import RunAccess

RUN = "job-20260101-000000-abcd"


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "t.py").touch()
    (tmp_path / "job.yaml").write_text("launcher: python\nscript: t.py\nargs: {lr: 1}\n")
    return api.plan(str(tmp_path / "job.yaml"))


@pytest.fixture
def key(tmp_path: Path) -> Iterator[StartKey]:
    taken = StartKey(str(tmp_path), "ci-7")
    yield taken
    taken.release()


def run_of(key: StartKey, plan: Plan, home: Path) -> RunAccess | None:
    return key.run_of(plan, str(home), LocalRun)


def record(key: StartKey, plan: Plan, home: Path, **status: object) -> None:
    """Record a run of the key with that status."""
    key.record(RUN, plan)
    node = home / "runs" / RUN / "node-0"
    (node / "logs").mkdir(parents=True)
    (node / "status.json").write_text(json.dumps({"version": 1, "id": RUN, **status}))


def test_a_key_that_is_new_has_no_run(key: StartKey, plan: Plan, tmp_path: Path) -> None:
    assert run_of(key, plan, tmp_path) is None


def test_a_key_has_the_run_that_it_started(key: StartKey, plan: Plan, tmp_path: Path) -> None:
    record(key, plan, tmp_path, state="failed", attempts=[{"attempt": 1}])
    run = run_of(key, plan, tmp_path)
    assert run is not None
    assert run.id == RUN


def test_a_start_that_left_nothing_frees_its_key(key: StartKey, plan: Plan, tmp_path: Path) -> None:
    key.record(RUN, plan)
    assert run_of(key, plan, tmp_path) is None


def test_a_run_that_never_started_frees_its_key(key: StartKey, plan: Plan, tmp_path: Path) -> None:
    key.record(RUN, plan)
    node = tmp_path / "runs" / RUN / "node-0"
    node.mkdir(parents=True)
    os.utime(node, (1e9, 1e9))  # and no supervisor since
    assert run_of(key, plan, tmp_path) is None


def test_another_plan_is_refused_and_the_difference_named(
    key: StartKey, plan: Plan, tmp_path: Path
) -> None:
    record(key, plan, tmp_path, state="failed", attempts=[{"attempt": 1}])
    other = api.plan(str(tmp_path / "job.yaml"), sets=["args.lr=2"])
    with pytest.raises(Refused, match=r"nodes\[0\]\.argv\[\d\]: 1 -> 2"):
        run_of(key, other, tmp_path)


def test_a_second_process_waits_for_the_first(plan: Plan, tmp_path: Path) -> None:
    first = StartKey(str(tmp_path), "ci-8")

    def end_first(message: str) -> None:
        assert "under way" in message
        record(first, plan, tmp_path, state="succeeded", attempts=[{"attempt": 1}])
        first.release()

    second = StartKey(str(tmp_path), "ci-8", end_first)
    run = run_of(second, plan, tmp_path)
    second.release()
    assert run is not None


@pytest.mark.parametrize("text", ["", "  ", "x" * 201, "a\nb", "\x1b[2J"])
def test_a_key_that_nobody_could_read_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="printable"):
        StartKey(str(tmp_path), text)
