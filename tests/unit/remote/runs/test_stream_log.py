"""The logs of several nodes as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.agent_thread import HostRun, ThreadPool

from safelaunch.errors import ConfigError, HostError
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import mirror
from safelaunch.runs.access import LogRequest, MissingLogError

if TYPE_CHECKING:
    from pathlib import Path

RUN_ID = "job-20260101-000000-abcd"


def log(home: Path, pool: ThreadPool, *, follow: bool) -> bytes:
    """Return the log of a run of two nodes that has ended, each with two lines."""
    node_run = HostRun(RUN_ID, ["gpu1", "gpu2"])
    node_run.record("succeeded")
    node_run.print_lines(2)
    record = mirror.create(str(home), RUN_ID, node_run.places, "job")
    pointer = mirror.pointer(record)
    assert pointer is not None
    run = RemoteRun(record, pointer, lambda _: pool.as_pool())
    try:
        return b"".join(run.log(LogRequest(follow=follow)))
    finally:
        pool.close()


@pytest.fixture(autouse=True)
def _home_of_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path / "host"))


def test_a_host_that_does_not_answer_is_left_out_of_a_log_with_a_message(tmp_path: Path) -> None:
    pool = ThreadPool({"gpu2": HostError("no route to it", where="gpu2")})
    assert log(tmp_path, pool, follow=True) == b"gpu1 | line 0\ngpu1 | line 1\n"
    assert pool.messages == ["[the log of gpu2 is left out: no route to it]"]


def test_an_error_that_is_no_host_s_ends_the_log_instead_of_hanging(tmp_path: Path) -> None:
    pool = ThreadPool({"gpu2": ConfigError("it is a group")})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="it is a group"):
        log(tmp_path, pool, follow=False)


def test_a_log_without_a_line_is_empty_and_one_that_is_not_there_an_error(tmp_path: Path) -> None:
    pool, node_run = ThreadPool(), HostRun(RUN_ID, ["gpu1", "gpu2"])
    node_run.record("succeeded")
    record = mirror.create(str(tmp_path), RUN_ID, node_run.places, "job")
    pointer = mirror.pointer(record)
    assert pointer is not None
    run = RemoteRun(record, pointer, lambda _: pool.as_pool())
    for node in (None, 1):
        with pytest.raises(MissingLogError):
            list(run.log(LogRequest(node=node)))
    node_run.print_lines(0)
    for node in (None, 1):
        assert list(run.log(LogRequest(node=node))) == []
    pool.close()
