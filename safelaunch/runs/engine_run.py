"""A run whose machines an engine chooses, seen from where it was submitted."""

# ruff: noqa: PLC0415 - what asks the engine: other runs do without

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.runs import store
from safelaunch.runs.access import LocalRun, LogRequest, MissingLogError
from safelaunch.runtime import run_state
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.runtime.engines import current
from safelaunch.runtime.logs import reader
from safelaunch.runtime.logs.selection import select
from safelaunch.runtime.records import NodePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.runs.access import Nodes
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
        nodes = current.engine_nodes(self.record.folder).values()
        if not nodes:
            return super().status()  # its directory is gone
        self._failures |= {node.number: node.failure for node in nodes if node.failure is not None}
        return store.status_of_nodes(
            self.record, [(node.number, node.host, node.status) for node in nodes]
        )

    last_status = status

    def is_over(self, status: StatusSummary) -> bool:
        """Whether nothing more will come: an engine that does not answer has ended nothing."""
        return status.state != "unknown" and super().is_over(status)

    def member(self, name: str, run_id: str | None = None, nodes: Nodes = (0, 0)) -> LocalRun:
        """Return a service or a part of the run; a part is a job of the engine's own."""
        member = super().member(name, run_id, nodes)
        is_job = current.is_on_engine(member.record.folder)
        return EngineRun(member.record) if is_job else member

    def stop(self, grace: float) -> tuple[Status, bool]:
        """Stop the run on all its machines; return its status, and whether it had ended before."""
        _, had_ended = current.stop(self.record.node_dir, grace)
        return self.status(), had_ended

    def failure(self, status: StatusSummary) -> Failure | None:
        """Return why its last attempt failed, also where only the engine knows."""
        own = store.failure(self.record, status)
        if own is None and status.state == "failed":
            return next(iter(self._failures.values()), None)
        return own

    def shell(self, number: int) -> Sequence[str]:
        """Return the command that opens a shell on a node, within the engine's job."""
        return current.shell(store.node_dir(self.record, number))

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
            if self._batch_log(request) is None:
                raise
        path = self._batch_log(request)
        if path is not None:
            for _, _, data in select(path, request.selection, (1, 0), reader.whole_file(path)):
                yield data

    def _batch_log(self, request: LogRequest) -> str | None:
        """Return the path of the batch script's log where no node has one, of any attempt."""
        return None if request.which is not None else current.batch_log_alone(self.record.folder)

    def _job_log(
        self, request: LogRequest, on_status: Callable[[Status], object]
    ) -> Iterator[bytes]:
        places = self.places()
        if len(places) == 1 or request.node is not None:
            number = places[0].node if request.node is None else request.node
            yield from self._node_log(number, request, on_status)
            return
        from safelaunch.runs import merged_log

        request = merged_log.share(request, places)
        pieces = merged_log.pieces(
            places, lambda place: self._pieces(place.node, request, on_status), lambda _: None
        )
        yield from merged_log.lines(places, request, pieces)

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

        def is_over() -> bool:
            status = self.status()
            on_status(status)
            return status.state in run_state.ENDED or self.is_over(status)

        def read(position: int) -> Iterator[tuple[int, int, bytes]]:
            start = request.attempt, position
            return reader.follow_attempts(
                node_dir, request.which, start, is_over, on=request.follow
            )

        return select(path, request.selection, (request.attempt, 0), read, follows=request.follow)
