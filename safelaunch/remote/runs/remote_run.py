"""A run on hosts behind the same Protocol as a run of this machine.

Its folder on this machine mirrors what was seen last; each question to a host renews it.
"""

# ruff: noqa: PLC0415 - what talks to hosts: listing and opening runs does without its 30 ms

from __future__ import annotations

import posixpath
import time
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError, RunNotFound
from safelaunch.runs import mirror, store
from safelaunch.runs.access import RunAccess, with_attempt_lines
from safelaunch.runtime import members
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.runtime.records import NodePlace, RemoteRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.remote.host_pool import HostPool
    from safelaunch.remote.session import HostSession
    from safelaunch.runs.access import LogRequest, Nodes
    from safelaunch.runs.node_files import NodeFiles
    from safelaunch.runs.store import Run
    from safelaunch.runtime.records import Status, StatusSummary


class RemoteRun(RunAccess):
    """A run on hosts; `connect` returns the connections that a hosts file describes."""

    poll_interval = 1.0

    def __init__(
        self, record: Run, pointer: RemoteRecord, connect: Callable[[str | None], HostPool]
    ) -> None:
        self.record = record
        self.pointer = pointer
        self._connect = connect

    @property
    def pool(self) -> HostPool:
        """The connections to its hosts."""
        return self._connect(self.pointer.hosts_file)

    def place(self, node: int) -> NodePlace:
        """Return the host and folder of a node. Raises ConfigError."""
        for place in self.pointer.places:
            if place.node == node:
                return place
        nodes = ", ".join(f"{place.node} ({place.host})" for place in self.pointer.places)
        raise ConfigError(f"it has no node {node}", hint=f"nodes: {nodes}")

    def session(self, node: int) -> HostSession:
        """Return the connection to a node's host. Raises HostError, ConfigError."""
        return self.pool.session(self.place(node).host)

    def member(self, name: str, run_id: str | None = None, nodes: Nodes = (0, 0)) -> RemoteRun:
        """Return a member of the run, which is on one host: a service or a part."""
        record, place = store.member(self.record, name, run_id), self.place(nodes[0])
        runs = posixpath.dirname(posixpath.dirname(place.run_dir))
        node_dir = posixpath.join(runs, run_id or self.id, f"node-{nodes[1]}")
        folder = posixpath.join(node_dir, members.FOLDER, name, "node-0")
        places = [NodePlace(host=place.host, node=0, run_dir=folder)]
        pointer = RemoteRecord(
            version=1, id=record.id, hosts_file=self.pointer.hosts_file, places=places
        )
        mirror.create_member(self.record, record, pointer)
        return RemoteRun(record, pointer, self._connect)

    def _check_record(self) -> None:
        """Raise RunNotFound where the record has gone, as of a start that has failed."""
        if mirror.pointer(self.record) is None:
            raise RunNotFound(
                "its start has failed, and nothing of it is left",
                where=self.id,
                hint="the command that was starting it says why",
            )

    def places(self) -> Sequence[NodePlace]:
        """Return host and folder of each node."""
        return self.pointer.places

    def _named_places(self) -> Sequence[NodePlace]:
        """Return the nodes with the names of their machines, which an engine may have chosen."""
        if not store.is_on_engine(self.record):
            return self.places()
        places = [NodePlace.from_json(place.to_json()) for place in self.places()]
        for place in places:
            place.host = store.host_of(self.record, place.node) or f"node-{place.node}"
        return places

    def shell(self, node: int) -> Sequence[str]:
        """Return the command that opens a shell on a node that an engine has chosen."""
        return store.mirror_record(self.record, node).shell

    def status(self) -> Status:
        """Return the status as it is now; of a host that does not answer `unknown`."""
        from safelaunch.remote.runs.query_status import status

        self._check_record()
        return status(self.pool, self.record, self.pointer)

    def last_status(self) -> Status:
        """Return the status as it was when last seen."""
        nodes = [
            (place.node, place.host, store.last_status(self.record, place.node))
            for place in self.pointer.places
        ]
        return store.status_of_nodes(self.record, nodes)

    def is_over(self, status: StatusSummary) -> bool:
        """Whether nothing more will come; a host that does not answer now may answer later."""
        return agent_runs.is_over(status) and status.state != "unknown"

    def stop(self, grace: float) -> tuple[Status, bool]:
        """Stop the run on all its hosts; return its status, and whether it had ended before.

        A start under way on this machine is waited for: before it nothing is there to be stopped.
        """
        from safelaunch.remote.runs.query_status import stop

        while mirror.is_starting(self.record):
            time.sleep(self.poll_interval / 10)
        self._check_record()
        had_ended = stop(self.pool, self.record, self.pointer, grace)
        return self.status(), had_ended

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts that had logs when last seen."""
        return list(store.mirror_record(self.record).attempts)

    def ranks(self) -> dict[str, int]:
        """Return {rank: pid} of the newest start of each rank, as last seen."""
        ranks: dict[str, int] = {}
        for place in self.pointer.places:
            ranks.update(store.mirror_record(self.record, place.node).ranks)
        return {rank: ranks[rank] for rank in sorted(ranks, key=int)}

    def notes(self) -> list[str]:
        """Return what the run's samples of CPU and GPU load show, as last seen."""
        return list(store.mirror_record(self.record).notes)

    def has_terminal(self, status: StatusSummary, node: int | None = None) -> bool:
        """Whether the terminal of a node was there to attach to when last seen."""
        del status
        return store.mirror_record(self.record, node).served

    def log(
        self,
        request: LogRequest,
        on_status: Callable[[Status], object] = lambda _: None,
    ) -> Iterator[bytes]:
        """Yield a log to its end, or with `follow` to the run's end. Raises MissingLogError.

        Of several nodes each line comes behind the name of its host.
        """
        del on_status
        from safelaunch.remote.runs import stream_log

        if len(self.places()) > 1 and request.node is None:
            from safelaunch.runs import merged_log

            pool, places = self.pool, self._named_places()
            request = merged_log.share(request, places)
            if store.is_on_engine(self.record):  # behind one login node, whose agent reads them all
                nodes, login = [place.node for place in places], self.pointer.places[0].host
                pieces = stream_log.pieces_of_nodes(pool, self.record, login, nodes, request)
            else:
                pieces = merged_log.pieces(
                    places,
                    lambda place: stream_log.pieces(pool, self.record, place, request),
                    pool.report,
                )
            log = merged_log.lines(places, request, pieces)
        else:
            place = self.places()[0] if request.node is None else self.place(request.node)
            own = stream_log.pieces(self.pool, self.record, place, request)
            log = with_attempt_lines(request.attempt, own)
        yield from log

    def files(self, node: int) -> NodeFiles:
        """Return the files of a node on its host. Raises HostError."""
        from safelaunch.remote.runs.remote_files import RemoteFiles

        return RemoteFiles(self.session(node).agent, self.id, node, self.place(node).run_dir)
