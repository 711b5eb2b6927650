"""Commands about a run on hosts while another command is still starting it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from support.agent_thread import HostRun, ThreadPool
from support.workspace import DEADLINE, wait_for

from safelaunch.errors import RunNotFound
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import mirror
from safelaunch.runs.access import LogRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RUN_ID = "job-20260101-000000-abcd"


class Background:
    """A call in a thread of its own, and what it returned or raised."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.result: object = None
        self.error: BaseException | None = None
        self._work = work
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as e:  # noqa: BLE001 - raised again by the test
            self.error = e

    def end(self) -> object:
        """Wait for its end, and return or raise as it has."""
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadPool]:
    """Yield two hosts, on which there is nothing yet."""
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path / "host"))
    hosts = ThreadPool()
    yield hosts
    hosts.close()


@pytest.fixture
def node_run(pool: ThreadPool) -> HostRun:
    """Return the run as it will be on its hosts."""
    del pool  # it sets their home
    return HostRun(RUN_ID, ["gpu1", "gpu2"])


@pytest.fixture
def home(tmp_path: Path) -> str:
    """Return safelaunch's folder of this machine."""
    return str(tmp_path / "client")


def opened(home: str, node_run: HostRun, pool: ThreadPool) -> RemoteRun:
    """Return the run as another command of this machine opens it."""
    record = mirror.create(home, RUN_ID, node_run.places, "job")
    pointer = mirror.pointer(record)
    assert pointer is not None
    return RemoteRun(record, pointer, lambda _: pool.as_pool())


def questions(pool: ThreadPool, verb: str) -> int:
    """Return how often the host with the fewest questions was asked."""
    return min(pool.requests.count((host, verb)) for host in ("gpu1", "gpu2"))


def followed(run: RemoteRun) -> bytes:
    return b"".join(run.log(LogRequest(follow=True, final_lines=True)))


def test_a_log_that_is_followed_has_all_lines_of_a_run_whose_start_was_under_way(
    home: str, node_run: HostRun, pool: ThreadPool
) -> None:
    with mirror.start_lock(home, RUN_ID):
        log = Background(lambda: followed(opened(home, node_run, pool)))
        wait_for(
            lambda: questions(pool, "runs.log") > 1 or not log.thread.is_alive(), "second question"
        )
        node_run.record("running")
    node_run.print_lines(200)
    node_run.record("succeeded")
    assert str(log.end()).count("line") == 400


def test_a_run_whose_start_is_under_way_is_pending_and_not_lost(
    home: str, node_run: HostRun, pool: ThreadPool
) -> None:
    with mirror.start_lock(home, RUN_ID):
        run = opened(home, node_run, pool)
        assert run.status().state == "pending"
        node_run.record("running")
        assert run.status().state == "running"


def test_a_start_that_its_command_has_left_undone_is_lost(
    home: str, node_run: HostRun, pool: ThreadPool
) -> None:
    status = opened(home, node_run, pool).status()
    assert (status.state, status.alive) == ("lost", 0)
    assert "it never started on gpu1" in str(status.reason)


def test_a_stop_waits_for_a_start_that_is_under_way(
    home: str, node_run: HostRun, pool: ThreadPool
) -> None:
    with mirror.start_lock(home, RUN_ID):
        run = opened(home, node_run, pool)
        stop = Background(lambda: run.stop(0.0))
        node_run.record("succeeded")
        assert questions(pool, "runs.stop") == 0
    stop.end()
    assert questions(pool, "runs.stop") == 1


def test_a_command_about_a_start_that_has_failed_says_so(
    home: str, node_run: HostRun, pool: ThreadPool
) -> None:
    with mirror.start_lock(home, RUN_ID):
        run = opened(home, node_run, pool)
        log = Background(lambda: (followed(run), run.status()))
        wait_for(lambda: questions(pool, "runs.log") > 0, "question")
        mirror.remove(run.record)
    with pytest.raises(RunNotFound, match="its start has failed"):
        log.end()
    with pytest.raises(RunNotFound, match="its start has failed"):
        run.stop(0.0)


def test_nothing_is_left_of_the_mark_of_a_start(home: str, tmp_path: Path) -> None:
    with mirror.start_lock(home, RUN_ID):
        assert mirror.is_starting(mirror.run_by_id(home, RUN_ID))
    assert not mirror.is_starting(mirror.run_by_id(home, RUN_ID))
    assert list((tmp_path / "client" / "runs").iterdir()) == []
