"""A run on hosts behind the same Protocol as a run of this machine.

Its folder here is a mirror of what was seen there last; each question to a host renews it.
"""

# ruff: noqa: PLC0415 - what talks to hosts: listing and opening runs does without its 30 ms

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.runs import combine_nodes, store
from safelaunch.runs.access import MissingLogError, poll_until_over, with_attempt_lines
from safelaunch.runtime.agent import runs as agent_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.remote.host_pool import HostPool
    from safelaunch.remote.session import Session
    from safelaunch.runs.access import LogRequest
    from safelaunch.runs.mirror import Place, Pointer
    from safelaunch.runs.node_files import NodeFiles
    from safelaunch.runs.store import Run
    from safelaunch.runtime.records import Failure, Status, StatusSummary


class RemoteRun:
    """A run on hosts; `connect` returns the connections that a hosts file describes."""

    def __init__(
        self, record: Run, pointer: Pointer, connect: Callable[[str | None], HostPool]
    ) -> None:
        self.record = record
        self.id = record.id
        self.pointer = pointer
        self._connect = connect

    @property
    def pool(self) -> HostPool:
        """The connections to its hosts."""
        return self._connect(self.pointer.hosts_file)

    def session(self, node: int) -> Session:
        """Return the connection to a node's host. Raises HostError, ConfigError."""
        return self.pool.session(self.pointer.place(node).host)

    def places(self) -> tuple[Place, ...]:
        """Return host and folder of each node."""
        return self.pointer.places

    def status(self) -> Status:
        """Return the status as it is now; of a host that does not answer `unknown`."""
        from safelaunch.remote.runs.query_status import statuses

        return statuses(self.pool, [(self.record, self.pointer)])[self.id]

    def last_status(self) -> Status:
        """Return the status as it was when last seen."""
        nodes = [
            combine_nodes.Node(place.node, place.host, store.kept(self.record, place.node))
            for place in self.pointer.places
        ]
        return combine_nodes.status(nodes)

    def is_over(self, status: StatusSummary) -> bool:
        """Whether nothing more will come; a host that does not answer may yet tell more."""
        return agent_runs.is_over(status) and status.state != "unknown"

    def wait(
        self,
        timeout: float | None = None,
        on_status: Callable[[Status], object] = lambda _: None,
    ) -> Status:
        """Wait until the run is over or `timeout` seconds have passed; return its status."""
        return poll_until_over(self, 1.0, timeout, on_status)

    def stop(self, grace: float) -> tuple[Status, bool]:
        """Stop the run on all its hosts; return its status, and whether it had ended before."""
        from safelaunch.remote.runs.query_status import stop

        had_ended = stop(self.pool, self.record, self.pointer, grace)
        return self.status(), had_ended

    def failure(self, status: StatusSummary) -> Failure | None:
        """Return why its last attempt failed; None where it did not."""
        return store.failure(self.record, status)

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts that had logs when last seen."""
        return list((store.mirrored(self.record) or store.Mirror()).attempts)

    def ranks(self) -> dict[str, int]:
        """Return {rank: pid} of the newest start of each rank, as last seen."""
        ranks: dict[str, int] = {}
        for place in self.pointer.places:
            ranks.update((store.mirrored(self.record, place.node) or store.Mirror()).ranks)
        return {rank: ranks[rank] for rank in sorted(ranks, key=int)}

    def notes(self) -> list[str]:
        """Return what the run's samples of CPU and GPU load said when last seen."""
        return list((store.mirrored(self.record) or store.Mirror()).notes)

    def has_terminal(self, status: StatusSummary, node: int | None = None) -> bool:
        """Whether the terminal of a node was there to attach to when last seen."""
        del status
        return (store.mirrored(self.record, node) or store.Mirror()).served

    def log(
        self,
        request: LogRequest,
        on_status: Callable[[Status], object] = lambda _: None,
    ) -> Iterator[bytes]:
        """Yield a log to its end, or with `follow` to the run's end. Raises MissingLogError.

        Of several nodes each line comes behind the name of its host.
        """
        del on_status
        is_empty = True
        for data in self._log(request):
            is_empty = False
            yield data
        if is_empty and not request.follow:
            status = self.status()
            if status.state not in ("pending", "running"):
                raise MissingLogError(f"{self.id} has no such log")

    def _log(self, request: LogRequest) -> Iterator[bytes]:
        from safelaunch.remote.runs import stream_log

        if len(self.pointer.places) > 1 and request.node is None:
            return stream_log.merged_lines(self.pool, self.record, self.pointer, request)
        node = self.pointer.places[0].node if request.node is None else request.node
        place = self.pointer.place(node)
        pieces = stream_log.pieces(self.pool, self.record, place, **request.to_json())
        return with_attempt_lines(request.attempt, pieces)

    def files(self, node: int) -> NodeFiles:
        """Return the files of a node on its host. Raises HostError."""
        from safelaunch.remote.runs.remote_files import RemoteFiles

        place = self.pointer.place(node)
        return RemoteFiles(self.session(node).agent, self.id, node, place.run_dir)
