"""A recorded run behind one Protocol, wherever it runs; and the runs of this machine.

Nothing in it prints: a test or a notebook watches a run with it as the command line does.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from safelaunch.errors import RunError
from safelaunch.runs import store
from safelaunch.runs.node_files import LocalFiles
from safelaunch.runtime import backends, run_state
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.runtime.logs import reader
from safelaunch.runtime.logs.selection import LogPart, select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.errors import HostError
    from safelaunch.runs.node_files import NodeFiles
    from safelaunch.runs.store import Run
    from safelaunch.runtime.records import Failure, NodePlace, Status, StatusSummary

    Nodes = tuple[int, int]  # of a run that has a member on one of several hosts


class LogRequest(NamedTuple):
    """Which part of a run's log: `which` is None (combined), `launcher` or `rank-3`."""

    attempt: int = 1
    which: str | None = None
    tail: int | None = None  # lines to begin with, instead of all
    follow: bool = False
    node: int | None = None  # None: of all nodes
    final_lines: bool = False  # of a line that overwrites itself only the last state
    text: str | None = None  # only lines that contain it, as it is written
    max_bytes: int | None = None  # at most so many bytes of the end, unless it is followed

    @property
    def selection(self) -> LogPart:
        """The part of the log that is read where it lies."""
        return LogPart(self.tail, self.text, None if self.follow else self.max_bytes)

    def to_json(self) -> dict[str, Any]:
        """Return what the agent on a host is asked."""
        keys = ("which", "attempt", "follow")
        return {**{key: getattr(self, key) for key in keys}, **self.selection._asdict()}


class HostAnswer(NamedTuple):
    """A host that has answered, or has not, and the runs of which all is known with it.

    Without a host: runs for which none has to be asked.
    """

    host: str | None
    error: HostError | None  # why it has not answered
    runs: list[tuple[Run, Status]]


class MissingLogError(RunError):
    """The run has no such log."""

    code = "log-missing"


class RunAccess(Protocol):
    """One run, on this machine or on hosts. What asks a host may raise HostError."""

    record: Run  # its id, and its folder on this machine
    poll_interval: float  # seconds between two questions for its status

    @property
    def id(self) -> str:
        """The run's id."""
        return self.record.id

    def places(self) -> Sequence[NodePlace]:
        """Return host and folder of each node; none for a run of this machine."""

    def status(self) -> Status:
        """Return the status as it is now; of a host that does not answer `unknown`."""

    def last_status(self) -> Status:
        """Return the status as it was last recorded, without asking a host."""

    def is_over(self, status: StatusSummary) -> bool:
        """Whether nothing more will come of a run with this status."""

    def wait(
        self,
        timeout: float | None = None,
        on_status: Callable[[Status], object] = lambda _: None,
    ) -> Status:
        """Wait until the run is over or `timeout` seconds have passed; return its status.

        `on_status` gets each status in which it is not over.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_over(status := self.status()):
            on_status(status)
            if deadline is not None and time.monotonic() > deadline:
                break
            time.sleep(self.poll_interval)
        return status

    def stop(self, grace: float) -> tuple[Status, bool]:
        """Stop the run; return its status, and whether it had ended before."""

    def failure(self, status: StatusSummary) -> Failure | None:
        """Return why its last attempt failed; None where it did not."""
        return store.failure(self.record, status)

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts that have logs, the newest last."""

    def ranks(self) -> dict[str, int]:
        """Return {rank: pid} of the newest start of each rank."""

    def notes(self) -> list[str]:
        """Return what the run's samples of CPU and GPU load show."""

    def has_terminal(self, status: StatusSummary, node: int | None = None) -> bool:
        """Whether a client can attach to the terminal of a node with this status."""

    def log(
        self,
        request: LogRequest,
        on_status: Callable[[Status], object] = lambda _: None,
    ) -> Iterator[bytes]:
        """Yield a log to its end, or with `follow` to the run's end. Raises MissingLogError.

        Before each later attempt comes a line that names it. `on_status` gets each status of a run
        of this machine while its log is followed.
        """

    def files(self, node: int) -> NodeFiles:
        """Return the files of a node."""

    def member(self, name: str, run_id: str | None = None, nodes: Nodes = (0, 0)) -> RunAccess:
        """Return a member of the run, which has the files of one: a service or a part.

        `run_id` is the run that has it, where that is an earlier one; `nodes` are the node of this
        run on the host of the member, and the node of the run that has it.
        """


class LocalRun(RunAccess):
    """A run of this machine."""

    poll_interval = 0.1

    def __init__(self, record: Run) -> None:
        self.record = record

    def places(self) -> Sequence[NodePlace]:
        """Return nothing: the run's only folder is its record."""
        return ()

    def status(self) -> Status:
        """Return the status as it is now."""
        return run_state.current_status(self.record.node_dir)

    last_status = status  # there is no host to ask

    def is_over(self, status: StatusSummary) -> bool:
        """Whether nothing more will come of a run with this status."""
        return agent_runs.is_over(status)

    def stop(self, grace: float) -> tuple[Status, bool]:
        """Stop the run; return its status, and whether it had ended before."""
        had_ended = self.status().state in run_state.ENDED
        return run_state.stop(self.record.node_dir, grace), had_ended

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts that have logs, the newest last."""
        return reader.attempts(self.record.node_dir)

    def ranks(self) -> dict[str, int]:
        """Return {rank: pid} of the newest start of each rank."""
        return agent_runs.ranks(self.record.node_dir)

    def notes(self) -> list[str]:
        """Return what the run's samples of CPU and GPU load show."""
        return agent_runs.notes(self.record.node_dir)

    def has_terminal(self, status: StatusSummary, node: int | None = None) -> bool:
        """Whether a client can attach to the run's terminal."""
        del node
        backend, handle = backends.from_record(status)
        return backend.serves(handle)

    def log(
        self,
        request: LogRequest,
        on_status: Callable[[Status], object] = lambda _: None,
    ) -> Iterator[bytes]:
        """Yield a log to its end, or with `follow` to the run's end. Raises MissingLogError."""
        path = reader.log_path(self.record.node_dir, request.which, request.attempt)
        if not request.follow and not os.path.isfile(path):
            raise MissingLogError(f"{self.id} has no such log")

        def is_over() -> bool:
            status = self.status()
            on_status(status)
            return self.is_over(status)

        def read(position: int) -> Iterator[tuple[int, int, bytes]]:
            node_dir, start = self.record.node_dir, (request.attempt, position)
            return reader.follow_attempts(
                node_dir, request.which, start, is_over, on=request.follow
            )

        pieces = select(path, request.selection, (request.attempt, 0), read, follows=request.follow)
        yield from with_attempt_lines(request.attempt, pieces)

    def files(self, node: int) -> LocalFiles:
        """Return the files of a node."""
        return LocalFiles(store.node_dir(self.record, node))

    def member(self, name: str, run_id: str | None = None, nodes: Nodes = (0, 0)) -> LocalRun:
        """Return a member of the run, which has the files of one: a service or a part."""
        del nodes  # there is one
        runs = os.path.dirname(self.record.folder)
        owner = self.record if run_id is None else store.Run(run_id, os.path.join(runs, run_id))
        return LocalRun(store.member(owner, name))


def with_attempt_lines(attempt: int, pieces: Iterator[tuple[int, int, bytes]]) -> Iterator[bytes]:
    """Yield the bytes of (attempt, position, bytes), a line before each attempt after the first."""
    last = b"\n"
    for number, _, data in pieces:
        if number != attempt:
            end = b"" if last.endswith((b"\r", b"\n")) else b"\n"
            attempt, last = number, b"\n"
            yield end + b"[safelaunch] attempt %d\n" % attempt
        if data:
            last = data
            yield data
