"""Hosts without SSH: agents of this process, each in a thread, behind the pool of a command.

All of them have the home that SAFELAUNCH_HOME names, as hosts with a shared file system do.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from safelaunch.errors import HostError
from safelaunch.remote.agent_client import Agent
from safelaunch.runtime import processes
from safelaunch.runtime.agent import server, wire
from safelaunch.runtime.records import NodePlace, RunRecord, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from safelaunch.remote.agent_client import PendingReply
    from safelaunch.remote.host_pool import HostPool


class ThreadAgent(Agent):
    """An agent in a thread; `note` gets each verb before it is asked."""

    def __init__(self, host: str, note: Callable[[str, str], object]) -> None:
        self.socket, other = socket.socketpair()
        self._note = note
        link = wire.Link(other.recv, other.sendall)

        def serve() -> None:
            with other, contextlib.suppress(OSError):
                server.serve(link)

        threading.Thread(target=serve, daemon=True).start()
        super().__init__(host, self.socket.recv, self.socket.sendall)

    def ask(self, verb: str, data: Iterable[bytes] | None = None, **request: Any) -> PendingReply:
        """Ask the agent."""
        self._note(self.host, verb)
        return super().ask(verb, data, **request)


class ThreadSession:
    """A connection to a host."""

    def __init__(self, agent: ThreadAgent) -> None:
        self.agent = agent
        self.prefetched_logs: dict[tuple[str, int], PendingReply] = {}

    def close(self) -> None:
        """End the agent."""
        self.agent.socket.close()


class ThreadPool:
    """What a command knows of its hosts; `errors` are those of hosts that do not answer."""

    hosts_path = None

    def __init__(self, errors: dict[str, HostError] | None = None) -> None:
        self.errors = errors or {}
        self.answers: dict[str, Any] = {}  # of a host that answers each question in the same way
        self.requests: list[tuple[str, str]] = []  # host and verb
        self.messages: list[str] = []
        self.is_closed = False
        self._sessions: dict[str, ThreadSession] = {}
        self._lock = threading.Lock()

    def as_pool(self) -> HostPool:
        """Return this as what the program takes it for."""
        return cast("HostPool", self)

    def connect(self, hosts_path: str | None, *, may_prompt: bool = True) -> HostPool:
        """Return this, whichever hosts file it is."""
        del hosts_path, may_prompt
        return self.as_pool()

    def report(self, message: str) -> None:
        """Show a message."""
        self.messages.append(message)

    def expand(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return hosts: there are no groups."""
        return tuple(names)

    def session(self, host: str) -> ThreadSession:
        """Return the connection to a host."""
        if host in self.errors:
            raise self.errors[host]
        with self._lock:
            if self.is_closed:
                raise HostError("the command has ended", where=host)
            if host not in self._sessions:
                agent = ThreadAgent(host, lambda *verb: self.requests.append(verb))
                self._sessions[host] = ThreadSession(agent)
            return self._sessions[host]

    def call(self, host: str, verb: str, **request: Any) -> Any:
        """Call a host's agent; of a run on several hosts gpu1 knows node 0, gpu2 node 1."""
        if host in self.answers:
            return self.answers[host]
        answer = self.session(host).agent.call(verb, **request)
        if verb == "runs.runs":
            node = str(int(host[-1]) - 1)
            listed = answer["runs"].items()
            own = {run_id: {node: nodes[node]} for run_id, nodes in listed if node in nodes}
            answer["runs"] = own
        return answer

    def discard(self, host: str) -> None:
        """Close and forget a connection."""
        session = self._sessions.pop(host, None)
        if session is not None:
            session.close()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self.is_closed = True
            for session in list(self._sessions.values()):  # a log may still open one
                session.close()


class HostRun:
    """A run in the home of the hosts, whose supervisor is this process."""

    def __init__(self, run_id: str, hosts: Iterable[str]) -> None:
        self.id = run_id
        folder = Path(os.environ["SAFELAUNCH_HOME"], "runs", run_id)
        self.places = [
            NodePlace(host=host, node=node, run_dir=str(folder / f"node-{node}"))
            for host in hosts
            for node in [int(host[-1]) - 1]
        ]

    def record(self, state: str) -> None:
        """Write the status of each node; the first one makes its folders."""
        for place in self.places:
            os.makedirs(os.path.join(place.run_dir, "logs", "attempt-1"), exist_ok=True)
            supervisor, hostname = processes.identity(os.getpid()), os.uname().nodename
            status = Status(version=1, id=self.id, name="job", state=state)
            status.hostname, status.supervisor = hostname, supervisor
            status.write(place.run_dir)
            hosts = [place.host for place in self.places]
            RunRecord(version=1, id=self.id, name="job", hosts=hosts).write(place.run_dir)

    def print_lines(self, count: int) -> None:
        """Add lines to the log of each node."""
        for place in self.places:
            path = Path(place.run_dir, "logs", "attempt-1", "combined.log")
            with path.open("a") as log:
                log.writelines(f"line {number}\n" for number in range(count))
