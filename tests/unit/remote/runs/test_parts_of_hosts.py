"""The ends of a run's parts on a host: a client asks for those that it has not recorded yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.agent_thread import HostRun, ThreadPool

from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import mirror, store
from safelaunch.runtime.agent.runs import NodeView
from safelaunch.runtime.parts import manifest
from safelaunch.runtime.records import FanOutSpec, PartEnd, Status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN_ID = "job-20260101-000000-abcd"
COUNT = 3000


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadPool]:
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path / "host"))
    hosts = ThreadPool()
    yield hosts
    hosts.close()


def _opened(tmp_path: Path, host_run: HostRun, pool: ThreadPool) -> RemoteRun:
    record = mirror.create(str(tmp_path / "client"), RUN_ID, host_run.places, "job")
    pointer = mirror.pointer(record)
    assert pointer is not None
    return RemoteRun(record, pointer, lambda _: pool.as_pool())


def _end(node_dir: str, parts: range) -> None:
    for part in parts:
        end = PartEnd(part=part, state="succeeded" if part % 3 else "failed", cause="a reason")
        end.words, end.input_sha256 = {"shard.index": str(part)}, "0" * 64
        manifest.add(node_dir, end)


def test_thousands_of_ends_come_with_several_answers_and_none_of_them_twice(
    tmp_path: Path, pool: ThreadPool
) -> None:
    host_run = HostRun(RUN_ID, ["gpu1"])
    host_run.record("running")
    node_dir = host_run.places[0].run_dir
    FanOutSpec(count=COUNT).write(node_dir)
    _end(node_dir, range(COUNT - 1))
    run = _opened(tmp_path, host_run, pool)
    run.status()
    assert len(manifest.read(run.record.node_dir)) == COUNT - 1
    assert store.part_counts(run.record) == (1999, COUNT)
    questions = pool.requests.count(("gpu1", "runs.runs"))
    assert questions > 1
    _end(node_dir, range(COUNT - 1, COUNT))
    run.status()
    assert pool.requests.count(("gpu1", "runs.runs")) == questions + 1
    assert manifest.read_lines(run.record.node_dir) == manifest.read_lines(node_dir)


def test_a_host_that_has_always_more_ends_is_not_asked_for_ever(
    tmp_path: Path, pool: ThreadPool
) -> None:
    host_run = HostRun(RUN_ID, ["gpu1"])
    host_run.record("running")
    run = _opened(tmp_path, host_run, pool)
    status, node_dir = Status(state="running"), host_run.places[0].run_dir
    view = NodeView(run_dir=node_dir, status=status, part_count=3, parts_size=1 << 40)
    answer = view.to_json()

    class Endless:
        """Sends a line at whatever position it is asked for."""

        count = 0

        def __getitem__(self, key: str) -> object:
            assert key == "runs"
            self.count += 1
            position = mirror.parts_position(run.record.node_dir)
            more = {"parts_from": position, "parts": '{"part": 0}\n'}
            return {RUN_ID: {"0": {**answer, **more}}}

    pool.answers["gpu1"] = endless = Endless()
    assert run.status().state == "running"
    assert 1 < endless.count < 1000
