"""What a job prints into its pipes, and what of that is in the log files."""

from __future__ import annotations

import os
import resource
import threading
import time
from typing import TYPE_CHECKING

import pytest
from support.workspace import wait_for

from safelaunch.runtime.logs import copier
from safelaunch.runtime.records import AttemptDropped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Output:
    """The pipes of a first attempt, as its supervisor makes them."""

    def __init__(self, node: Path) -> None:
        self.node, self.logs = node, node / "logs" / "attempt-1"
        self.logs.mkdir(parents=True)
        (node / "pipes").mkdir()
        os.mkfifo(node / "pipes" / "control-1")
        self.control = os.open(node / "pipes" / "control-1", os.O_RDWR | os.O_NONBLOCK)
        self.count = os.open(self.logs / AttemptDropped.FILE, os.O_RDWR | os.O_CREAT)
        self.reader, self.writer = os.pipe()
        self.copier = threading.Thread(target=self.copy, daemon=True)

    def copy(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Copy to the end."""
        copier.Copier(str(self.node), "1", self.reader, self.control, self.count).run(sleep)

    def renew(self) -> None:
        """Make another launcher's pipe, for another copier of the same attempt."""
        self.reader, self.writer = os.pipe()

    def fifo(self, name: str) -> Path:
        """Make the FIFO of a rank, announce it, and wait until it has a reader."""
        path = self.node / "pipes" / name
        os.mkfifo(f"{path}.new")
        os.write(self.control, b"+")
        wait_for(path.exists, "reader")
        return path

    def end(self) -> None:
        """Close the launcher's pipe, and wait until all is copied."""
        os.close(self.writer)
        self.copier.join(60)
        assert not self.copier.is_alive()

    def dropped(self) -> list[dict[str, object]]:
        """Return what the logs lack."""
        return [
            log.to_json() for log in (AttemptDropped.read(str(self.logs)) or AttemptDropped()).logs
        ]

    def log(self, name: str) -> bytes:
        """Return what is in a log."""
        return (self.logs / name).read_bytes()


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Output]:
    pipes = Output(tmp_path)
    yield pipes
    for fd in (pipes.control, pipes.count):
        os.close(fd)


def test_what_is_opened_again_for_writing_truncates_nothing(output: Output) -> None:
    (output.logs / "launcher.log").write_bytes(b"earlier\n")
    os.write(output.writer, b"before\0\xff\r\n")
    again = os.open(f"/proc/self/fd/{output.writer}", os.O_WRONLY | os.O_TRUNC)
    os.write(again, b"> /dev/stderr\n")
    os.close(again)
    os.write(output.writer, b"no line end")
    os.close(output.writer)
    output.copy()
    assert output.log("launcher.log") == b"earlier\nbefore\0\xff\r\n> /dev/stderr\nno line end"


def test_a_pipe_of_a_rank_outlives_that_of_the_launcher(output: Output) -> None:
    output.copier.start()
    first = output.fifo("rank-3.1.0").open("wb", buffering=0)
    os.close(output.writer)
    first.write(b"alone\n")
    first.close()
    output.copier.join(60)
    assert output.log("rank-3.log") == b"alone\n"


def test_starts_of_a_rank_share_its_log(output: Output) -> None:
    output.copier.start()
    paths = [output.fifo(name) for name in ("rank-3.1.0", "rank-3.1.1")]
    for path in paths:
        with path.open("wb") as pipe:
            pipe.write(path.name.encode() + b"\n")
    output.end()
    assert sorted(output.log("rank-3.log").split()) == [b"rank-3.1.0", b"rank-3.1.1"]
    assert list((output.node / "pipes").iterdir()) == []


def test_fifos_that_no_rank_writes_to_end_with_the_launchers_pipe(output: Output) -> None:
    output.copier.start()
    output.fifo("rank-0.1.0")
    foreign = output.node / "pipes" / "rank-0.2.0.new"
    os.mkfifo(foreign)
    output.end()
    assert list((output.node / "pipes").iterdir()) == [foreign]


def test_bytes_without_room_are_counted_by_each_copier_in_turn(output: Output) -> None:
    (output.logs / "launcher.log").symlink_to("/dev/full")
    for data in (b"x" * 5000, b"y" * 77):
        os.write(output.writer, data)
        os.close(output.writer)
        output.copy()
        output.renew()
    assert output.dropped() == [
        {"file": str(output.logs / "launcher.log"), "bytes": 5077, "why": "No space left on device"}
    ]
    os.close(output.writer)
    os.close(output.reader)


def test_a_file_size_limit_counts_as_a_full_disk(output: Output) -> None:
    os.write(output.writer, b"x" * 20000)
    os.close(output.writer)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, before[1]))
    try:
        output.copy()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(output.log("launcher.log")) == 1 << 14
    assert output.dropped() == [
        {
            "file": str(output.logs / "launcher.log"),
            "bytes": 20000 - (1 << 14),
            "why": "File too large",
        }
    ]


def test_a_log_goes_on_once_there_is_room(output: Output) -> None:
    folder = output.logs / "launcher.log"
    folder.mkdir()
    output.copier.start()
    os.write(output.writer, b"lost\n")
    wait_for(output.dropped, "bytes that were dropped")
    folder.rmdir()
    os.write(output.writer, b"there\n")
    output.end()
    assert output.log("launcher.log") == b"there\n"
    assert [entry["bytes"] for entry in output.dropped()] == [5]


def test_lines_that_come_in_a_pause_are_copied_together(output: Output) -> None:
    lines = [b"%d\n" % n for n in range(100)]
    pauses = []

    def sleep(_: float) -> None:
        pauses.append(output.log("launcher.log"))
        if len(pauses) == 1:
            for line in lines:
                os.write(output.writer, line)
        else:
            os.close(output.writer)

    os.write(output.writer, b"first\n")
    output.copy(sleep)
    assert pauses == [b"first\n", b"first\n" + b"".join(lines)]


def test_a_pipe_that_fills_up_is_copied_without_a_pause(output: Output) -> None:
    os.write(output.writer, bytes(copier.DEFAULT_SIZE))
    os.close(output.writer)
    pauses: list[float] = []
    output.copy(pauses.append)
    assert pauses == []
