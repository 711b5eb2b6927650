"""Runs of several hosts: all are asked at once, and each is shown with its own answer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from support.agent_thread import HostRun, ThreadPool
from support.workspace import DEADLINE

from safelaunch.errors import HostError, RunNotFound
from safelaunch.remote.parallel import as_completed
from safelaunch.remote.runs.catalog import RunCatalog
from safelaunch.remote.runs.query_status import host_runs
from safelaunch.runs import mirror, store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN_ID = "job-20260101-000000-abcd"
DEAD = HostError("no route to it", where="gpu2")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return safelaunch's folder of this machine; that of the hosts is another one."""
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path / "host"))
    return str(tmp_path / "client")


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    """Yield hosts that answer."""
    hosts = ThreadPool()
    yield hosts
    hosts.close()


@pytest.fixture
def with_dead_host() -> Iterator[ThreadPool]:
    """Yield hosts of which gpu2 does not answer."""
    hosts = ThreadPool({"gpu2": DEAD})
    yield hosts
    hosts.close()


def states(
    pool: ThreadPool, home: str, *hosts: str
) -> list[tuple[str | None, bool, list[tuple[str, str]]]]:
    """Return each host as it answers: whether it did, and the ids and states of its runs."""
    return [
        (answer.host, answer.error is None, [(run.id, s.state) for run, s in answer.runs])
        for answer in host_runs(pool.as_pool(), home, hosts)
    ]


def test_an_answer_comes_while_others_are_still_waited_for() -> None:
    is_slow = threading.Event()

    def work(host: str) -> str:
        if host == "slow":
            assert is_slow.wait(DEADLINE)
        return host

    results = as_completed(work, ["slow", "quick"])
    assert next(results) == ("quick", "quick")
    is_slow.set()
    assert list(results) == [("slow", "slow")]


def test_a_host_that_does_not_answer_hides_no_other(home: str, with_dead_host: ThreadPool) -> None:
    HostRun(RUN_ID, ["gpu1"]).record("running")
    answers = states(with_dead_host, home, "gpu1", "gpu2")
    assert sorted(answers) == [("gpu1", True, [(RUN_ID, "running")]), ("gpu2", False, [])]


def test_a_run_of_a_host_that_does_not_answer_is_unknown(
    home: str, with_dead_host: ThreadPool
) -> None:
    node_run = HostRun(RUN_ID, ["gpu2"])
    mirror.create(home, RUN_ID, node_run.places, "job")
    assert states(with_dead_host, home, "gpu2") == [("gpu2", False, [(RUN_ID, "unknown")])]


def test_a_run_of_two_hosts_comes_once_with_the_last_of_them(home: str, pool: ThreadPool) -> None:
    HostRun(RUN_ID, ["gpu1", "gpu2"]).record("running")
    first, last = states(pool, home, "gpu1", "gpu2")
    assert (first[2], last[2]) == ([], [(RUN_ID, "running")])


def test_a_run_with_a_node_on_a_dead_host_is_shown_with_what_is_known(
    home: str, with_dead_host: ThreadPool
) -> None:
    node_run = HostRun(RUN_ID, ["gpu1", "gpu2"])
    mirror.create(home, RUN_ID, node_run.places, "job")
    node_run.record("running")
    ((_, status),) = [
        pair
        for answer in host_runs(with_dead_host.as_pool(), home, ["gpu1", "gpu2"])
        for pair in answer.runs
    ]
    assert [node.state for node in status.nodes] == ["running", "unknown"]
    assert "gpu2 does not answer: no route to it" in str(status.nodes[1].reason)


def test_the_id_of_a_run_names_no_other_folder(home: str, pool: ThreadPool, tmp_path: Path) -> None:
    view = {"run_dir": "/", "status": {"state": "running"}}
    pool.answers["gpu1"] = {"runs": {f"../../{RUN_ID}": {"0": view}}}
    assert states(pool, home, "gpu1") == [("gpu1", True, [])]
    assert not list(tmp_path.rglob(f"*{RUN_ID}"))


def test_hosts_of_several_files_are_asked_at_once(home: str) -> None:
    pools = {path: ThreadPool({"gpu1": HostError(str(path))}) for path in ("a.yaml", "b.yaml")}
    for number, path in enumerate(pools):
        run_id = f"{RUN_ID[:-1]}{number}"
        mirror.create(home, run_id, HostRun(run_id, ["gpu1"]).places, "job", path)

    def connect(path: str | None, *, may_prompt: bool = True) -> object:
        assert not may_prompt
        return pools[str(path)]

    catalog = RunCatalog(home, connect)  # type: ignore[arg-type]
    records = [mirror.run_by_id(home, f"{RUN_ID[:-1]}{number}") for number in range(2)]
    answers = list(catalog.statuses(records))
    assert {str(answer.error) for answer in answers if answer.error} == {"a.yaml", "b.yaml"}
    assert [status.state for answer in answers for _, status in answer.runs] == ["unknown"] * 2


def test_a_run_is_found_on_a_host_that_another_machine_has_started_it_on(
    home: str, pool: ThreadPool
) -> None:
    for number, host in enumerate(("gpu1", "gpu1", "gpu2")):
        HostRun(f"{RUN_ID[:-1]}{number}", [host]).record("succeeded" if number == 0 else "running")
    catalog = RunCatalog(home, pool.connect)
    run = catalog.find_live("job", unique=True, hosts=["gpu1"])
    assert run.id == f"{RUN_ID[:-1]}1"
    with pytest.raises(RunNotFound, match="2 runs of `job` are running"):
        catalog.find_live("job", unique=True, hosts=["gpu1", "gpu2"])
    with pytest.raises(RunNotFound, match="no runs on these hosts"):
        catalog.find_live("job", hosts=["gpu3"])


def test_a_run_is_not_looked_for_beside_a_host_that_does_not_answer(
    home: str, with_dead_host: ThreadPool
) -> None:
    catalog = RunCatalog(home, with_dead_host.connect)
    with pytest.raises(HostError, match="no route to it"):
        catalog.find_live(hosts=["gpu2"])


def test_how_far_the_clock_of_a_host_is_ahead_is_recorded_with_its_answer(
    home: str, pool: ThreadPool
) -> None:
    HostRun(RUN_ID, ["gpu1"]).record("running")
    session = pool.session("gpu1")
    answer = session.agent.call("runs.runs", brief=True)
    answer["runs"][RUN_ID]["0"]["now"] += 86400
    pool.answers["gpu1"] = answer
    states(pool, home, "gpu1")
    assert store.clock_offset(mirror.run_by_id(home, RUN_ID)) == pytest.approx(86400, abs=3600)
