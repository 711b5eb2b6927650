"""A run whose machines an engine chooses, seen from where it was submitted."""

# ruff: noqa: PLC0415 - what asks the engine: other runs do without

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.runs import store
from safelaunch.runs.access import LocalRun, LogRequest, MissingLogError
from safelaunch.runtime import run_state
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.runtime.engines.slurm import batch_log
from safelaunch.runtime.logs import reader
from safelaunch.runtime.nodes import combine_nodes
from safelaunch.runtime.records import EngineJob, NodePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.runs.store import Run
    from safelaunch.runtime.records import Failure, Status, StatusSummary


class EngineRun(LocalRun):
    """A run on an engine: its files are here, its processes on other machines."""

    poll_interval = 1.0

    def __init__(self, record: Run) -> None:
        super().__init__(record)
        self._failures: dict[int, Failure] = {}

    def places(self) -> Sequence[NodePlace]:
        """Return machine and folder of each node; before the start the machines have no name."""
        return [
            NodePlace(
                host=store.host_of(self.record, number) or f"node-{number}",
                node=number,
                run_dir=store.node_dir(self.record, number),
            )
            for number in store.node_numbers(self.record)
        ]

    def status(self) -> Status:
        """Return the status as it is now, by the run's own record and the engine's word."""
        from safelaunch.runtime.engines import nodes

        states = []
        for node in nodes.nodes(self.record.folder):
            if node.failure is not None:
                self._failures[node.number] = node.failure
            host = node.host or f"node-{node.number}"
            states.append(combine_nodes.NodeState(node.number, host, node.status))
        if not any(store.host_of(self.record, state.number) for state in states):
            return states[0].status  # all wait for the same machines
        return combine_nodes.status(states)

    last_status = status

    def is_over(self, status: StatusSummary) -> bool:
        """Whether nothing more will come: an engine that does not answer has ended nothing."""
        return status.state != "unknown" and super().is_over(status)

    def stop(self, grace: float) -> tuple[Status, bool]:
        """Stop the run on all its machines; return its status, and whether it had ended before."""
        from safelaunch.runtime.engines import nodes

        had_ended = nodes.stop(self.record.folder, grace)
        return self.status(), had_ended

    def failure(self, status: StatusSummary) -> Failure | None:
        """Return why its last attempt failed, also where only the engine knows."""
        own = store.failure(self.record, status)
        if own is None and status.state == "failed":
            return next(iter(self._failures.values()), None)
        return own

    def shell(self, number: int) -> tuple[str, ...]:
        """Return the command that opens a shell on a node, within the engine's job."""
        job = EngineJob.read(store.node_dir(self.record, 0)) or EngineJob()
        cluster = [f"--clusters={job.cluster}"] if job.cluster else []
        host = store.host_of(self.record, number)
        words = ["--overlap", f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--pty", "bash"]
        return (*job.prefix, "srun", *cluster, f"--jobid={job.job}", *words)

    def ranks(self) -> dict[str, int]:
        """Return {rank: pid} of the newest start of each rank, on its own machine."""
        ranks: dict[str, int] = {}
        for place in self.places():
            ranks.update(agent_runs.ranks(place.run_dir))
        return {rank: ranks[rank] for rank in sorted(ranks, key=int)}

    def has_terminal(self, status: StatusSummary, node: int | None = None) -> bool:
        """Return False: its supervisors have no terminal."""
        del status, node
        return False

    def log(
        self,
        request: LogRequest,
        on_status: Callable[[Status], object] = lambda _: None,
    ) -> Iterator[bytes]:
        """Yield a log to its end, or with `follow` to the run's end. Raises MissingLogError.

        Of several nodes each line comes behind the name of its machine. Where the job ended before
        any supervisor wrote a log, it is that of the batch script, which says why.
        """
        try:
            yield from self._job_log(request, on_status)
        except MissingLogError:
            if not self._has_only_batch_log(request):
                raise
        if self._has_only_batch_log(request):
            path = batch_log.path(self.record.folder)
            position = 0 if request.tail is None else reader.last_lines(path, request.tail)
            for _, data in reader.follow_file(path, lambda: False, position):
                yield data

    def _has_only_batch_log(self, request: LogRequest) -> bool:
        """Whether no node has a log, of any attempt, and the log of the batch script is there."""
        if request.which is not None or any(reader.attempts(p.run_dir) for p in self.places()):
            return False
        return os.path.isfile(batch_log.path(self.record.folder))

    def _job_log(
        self, request: LogRequest, on_status: Callable[[Status], object]
    ) -> Iterator[bytes]:
        places = self.places()
        if len(places) == 1 or request.node is not None:
            number = places[0].node if request.node is None else request.node
            yield from self._node_log(number, request, on_status)
            return
        from safelaunch.runs import merged_log

        yield from merged_log.lines(
            places,
            request,
            lambda place: self._pieces(place.node, request, on_status),
            lambda _: None,
        )

    def _node_log(
        self, number: int, request: LogRequest, on_status: Callable[[Status], object]
    ) -> Iterator[bytes]:
        from safelaunch.runs.access import with_attempt_lines

        pieces = self._pieces(number, request, on_status)
        yield from with_attempt_lines(request.attempt, pieces)

    def _pieces(
        self, number: int, request: LogRequest, on_status: Callable[[Status], object]
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield attempt, position and bytes of a node's log."""
        node_dir = store.node_dir(self.record, number)
        path = reader.log_path(node_dir, request.which, request.attempt)
        if not request.follow and not os.path.isfile(path):
            raise MissingLogError(f"{self.id} has no such log")
        position = 0 if request.tail is None else reader.last_lines(path, request.tail)

        def is_over() -> bool:
            status = self.status()
            on_status(status)
            return status.state in run_state.ENDED or self.is_over(status)

        start = (request.attempt, position)
        return reader.follow_attempts(node_dir, request.which, start, is_over, on=request.follow)
