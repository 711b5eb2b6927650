"""The process that copies a job's output: what it survives, and what replaces it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from support.workspace import wait_for

from safelaunch.runtime.records import RunRecord
from safelaunch.runtime.supervise.attempts.log_pipes import LogPipes
from safelaunch.runtime.supervise.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN: dict[str, object] = {"id": "job-20260101-000000-abcd", "name": "job", "rank_logs": True}


@pytest.fixture(params=[False, True], ids=["own program", "fork"])
def pipes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LogPipes]:
    node = tmp_path / "a node whose path has spaces"
    node.mkdir()
    is_forked = bool(request.param)
    journal = Journal(str(node), RunRecord.from_json(RUN), is_forked=is_forked)
    journal.open()
    journal.start_attempt(1)
    log_pipes = LogPipes(journal, 1)
    yield log_pipes
    log_pipes.kill()
    if log_pipes.pid:
        os.waitpid(log_pipes.pid, 0)
    log_pipes.close()


def test_output_is_complete_though_the_copier_gets_every_signal(pipes: LogPipes) -> None:
    writer = pipes.open()
    pipes.start()
    log = os.path.join(pipes.journal.logs, "launcher.log")
    wait_for(lambda: os.path.exists(log), "log")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGUSR1):
        os.kill(pipes.pid, number)
    os.write(writer, b"one\n")
    wait_for(lambda: os.path.getsize(log) == len("one\n"), "line")
    fifo = os.path.join(pipes.folder, "rank-0.1.0")
    os.mkfifo(f"{fifo}.new")
    assert pipes.control >= 0
    os.write(pipes.control, b"+")
    wait_for(lambda: os.path.exists(fifo), "reader")
    rank = os.open(fifo, os.O_WRONLY)
    pipes.tick()  # the supervisor's own end keeps the pipe alive
    os.kill(pipes.pid, signal.SIGKILL)
    assert pipes.reaped(*os.waitpid(pipes.pid, 0))
    assert pipes.is_waiting
    for fd, data in ((writer, b"two\n"), (rank, b"rank\n")):
        os.write(fd, data)
        os.close(fd)
    pipes.next_start = 0.0
    pipes.tick()
    assert pipes.reaped(*os.waitpid(pipes.pid, 0))
    assert not pipes.is_open
    with open(log, "rb") as file:
        assert file.read() == b"one\ntwo\n"
    with open(os.path.join(pipes.journal.logs, "rank-0.log"), "rb") as file:
        assert file.read() == b"rank\n"
    assert os.listdir(pipes.folder) == []
    assert "SIGKILL" in (pipes.journal.status.warning or "")


def test_what_a_log_lacks_is_in_the_status(pipes: LogPipes) -> None:
    log = os.path.join(pipes.journal.logs, "launcher.log")
    os.symlink("/dev/full", log)
    writer = pipes.open()
    pipes.start()
    os.write(writer, b"12345")
    os.close(writer)
    assert pipes.reaped(*os.waitpid(pipes.pid, 0))
    pipes.tick()
    entries = [entry.to_json() for entry in pipes.journal.status.dropped]
    assert entries == [{"file": log, "bytes": 5, "why": "No space left on device"}]
