from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from support.inputs.fuzzed_jobs import FLAGS, JOBS, VALID, lay_out, plan_job

from safelaunch.config.resolve import Flags

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lay_out(tmp_path)
    return tmp_path


@settings(
    max_examples=300,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(JOBS, FLAGS)
def test_no_job_file_gets_past_our_own_errors(folder: Path, job: bytes, flags: Flags) -> None:
    plan_job(folder, job, flags)


def test_the_job_that_is_fuzzed_is_good(folder: Path) -> None:
    import yaml  # noqa: PLC0415 - only here

    assert plan_job(folder, yaml.safe_dump(VALID).encode(), Flags())
