"""Services of a job: started in order of need, ready before its first attempt, ended after it.

Of several nodes each starts those that are given to it, and tells the others how they are. None is
started before all nodes have come so far, and none of the nodes begins its attempt before all
services are ready.
"""

from __future__ import annotations

import os
import socket
import time

from safelaunch.runtime.members.member import Member
from safelaunch.runtime.members.ready_checks import ANSWER_LIMIT, url
from safelaunch.runtime.preconditions import Precondition, PreconditionFailed, earlier_runs
from safelaunch.runtime.preconditions.service_process import CLASS, SEED, ServiceProcess
from safelaunch.runtime.records import Failure, RunRecord, ServiceStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from safelaunch.runtime.messages.ends import NodeServices
    from safelaunch.runtime.records import ServiceSpec

    class OtherNodes(Protocol):
        """The messages of the other nodes."""

        services: dict[int, NodeServices]

        def name(self, node: int) -> str:
            """Return `gpu2 (node 1)`."""

        def send_services(self, attempt: int, statuses: Sequence[ServiceStatus]) -> None:
            """Send to the others how the services on this node are."""

        def lost_for(self, node: int) -> float:
            """Return for how many seconds a node has not answered, 0 unless it is lost."""


PEER_CLASS = "peer-lost"
CONNECT_LIMIT = 30.0  # seconds in which another node has to reach a service that is ready
CONNECT_ADVICE = (
    "open its port between the hosts, all above 1023: a firewall there drops or refuses it"
)
LOST_ADVICE = "check that host: its power, its network, `journalctl -b -1 -e`, `dmesg`"


def preconditions(run: RunRecord, node_dir: str, umask: int) -> list[Services]:
    """Return the services of a run, as one precondition."""
    return [Services(run, node_dir, umask)]


class Services(Precondition):
    """All services of a run, of which this node starts its own."""

    PAUSE = 0.1

    def __init__(self, run: RunRecord, node_dir: str, umask: int) -> None:
        self.run = run
        self.runs_folder = os.path.dirname(os.path.dirname(node_dir))
        # by chance: in two containers with one network the pids of supervisors are often the same
        seed = int.from_bytes(os.urandom(4), "big")
        self.services = [
            ServiceProcess(spec, Member(node_dir, spec.name, umask), seed + at * SEED)
            for at, spec in enumerate(run.services)
            if spec.node == run.node
        ]
        self.elsewhere = [spec for spec in run.services if spec.node != run.node]
        self.host = run.hosts[run.node] if len(run.hosts) > 1 else None
        self.nodes: OtherNodes | None = None  # the others, where there are several
        self.attempt = 0
        self.reached: set[str] = set()  # those elsewhere to which a connection was made
        self.ready_since: float | None = None  # since when all are ready on their nodes

    def subject(self) -> str:
        """Return which services are started first."""
        return "; ".join(f"service {spec.name}" for spec in self.run.services if not spec.needs)

    def prepare_attempt(self, nodes: OtherNodes | None, attempt: int) -> None:
        """Begin to wait before an attempt."""
        self.nodes, self.attempt = nodes, attempt
        self.reached.clear()
        self.ready_since = None

    def poll(self) -> str:
        """Start what can be started; return which service is not ready yet, "" for none."""
        for service in self.services:
            if not service.port:
                service.choose_port()
        absent = self._absent_nodes()
        if absent:
            return absent
        for service in self.services:
            failure = service.failure()
            if failure is not None:
                raise PreconditionFailed(failure)
            if not service.is_begun and all(map(self._is_ready, service.spec.needs)):
                self._start(service)
            service.look()
        self._send()
        return "; ".join(self._waits()) or self._await_connections()

    def _start(self, service: ServiceProcess) -> None:
        record = RunRecord.read(service.member.dir) or RunRecord()
        steps = earlier_runs.outputs(self.run, self.runs_folder, record.placeholders)
        try:
            service.start({**steps, **self.values()})
        except (OSError, ValueError) as e:
            what = f"service {service.name} cannot be started: {e}"
            raise PreconditionFailed(Failure(version=1, what=what, class_name=CLASS)) from e

    def _waits(self) -> list[str]:
        waits = [s for s in self.services if s.is_begun and not s.is_ready]
        own = [f"service {s.name} ({s.readiness.target})" for s in waits if s.readiness]
        return own + [
            f"service {spec.name} on {self.run.hosts[spec.node]}"
            for spec in self.elsewhere
            if not self._is_ready(spec.name)
        ]

    def values(self) -> dict[str, str]:
        """Return host, port and URL of each service, by the names of their words."""
        values = {name: text for own in self.services for name, text in own.values().items()}
        for spec in self.elsewhere:
            port, stem = self._status(spec).port or 0, f"services.{spec.name}"
            values[f"{stem}.host"], values[f"{stem}.port"] = spec.address, str(port)
            values[f"{stem}.url"] = url(spec.address, port)
        return values

    # -- the other nodes -----------------------------------------------------------------------

    def _absent_nodes(self) -> str:
        """Return which nodes have not come so far, "" for none. Raises PreconditionFailed."""
        if self.host is None:
            return ""
        if self.nodes is None:
            what = "the nodes cannot exchange messages, and so not learn when services are ready"
            raise PreconditionFailed(Failure(version=1, what=what, class_name=CLASS, role="root"))
        self._send()
        others = (node for node in range(len(self.run.hosts)) if node != self.run.node)
        absent = [node for node in others if self._services_of(node) is None]
        return ", ".join(map(self.nodes.name, absent))

    def _send(self) -> None:
        """Send to the other nodes how the services here are."""
        if self.nodes is not None and self.host is not None:
            self.nodes.send_services(self.attempt, self.statuses())

    def _services_of(self, node: int) -> NodeServices | None:
        """Return how the services of another node are before this attempt, None: not known."""
        services = None if self.nodes is None else self.nodes.services.get(node)
        return None if services is None or services.attempt < self.attempt else services

    def _status(self, spec: ServiceSpec) -> ServiceStatus:
        """Return how a service of another node is, as far as that has said so."""
        services = self._services_of(spec.node)
        statuses = () if services is None else services.services
        return next((s for s in statuses if s.name == spec.name), ServiceStatus())

    def _is_ready(self, name: str) -> bool:
        own = next((service for service in self.services if service.name == name), None)
        if own is not None:
            return own.is_ready
        return any(s.name == name and self._status(s).state == "ready" for s in self.elsewhere)

    def _await_connections(self) -> str:
        """Return which service of another node cannot be connected to yet, "" for none.

        Its own node has reached it at that address; between two hosts there may be a firewall.
        Raises PreconditionFailed.
        """
        now = time.monotonic()
        self.ready_since = self.ready_since or now
        for spec in self.elsewhere if self.run.ranks else ():
            ready = spec.ready
            listens = ready.http is not None or not (ready.log or ready.command)
            if spec.name in self.reached or not listens:
                continue
            port, where = self._status(spec).port or 0, self.run.hosts[spec.node]
            try:
                socket.create_connection((spec.address, port), ANSWER_LIMIT).close()
            except OSError as e:
                what = f"service {spec.name} is ready on {where}, and {url(spec.address, port)}"
                what += f" is not reached from {self.host}: {(e.strerror or str(e)).lower()}"
                if now - self.ready_since < CONNECT_LIMIT:
                    return what
                failure = Failure(version=1, what=what, class_name=CLASS, role="root")
                failure.advice, failure.service = CONNECT_ADVICE, spec.name
                failure.time = time.time()
                raise PreconditionFailed(failure) from e
            self.reached.add(spec.name)
        return ""

    # -- during the job ------------------------------------------------------------------------

    def pids(self) -> Sequence[int]:
        """Return the pids of the supervisors of services that run."""
        return [service.member.pid for service in self.services if service.member.pid]

    def reaped(self, pid: int) -> bool:
        """Whether the child that has ended was one of those."""
        return any(service.member.reaped(pid) for service in self.services)

    def loss(self) -> Failure | None:
        """Return how a service ended that the job needs, None where all run."""
        for service in self.services:
            if service.spec.on_exit == "fail" and service.is_begun:
                failure = service.failure()
                if failure is not None:
                    return failure
        for spec in self.elsewhere if self.nodes is not None else ():
            silence = self.nodes.lost_for(spec.node) if self.nodes is not None else 0.0
            if spec.on_exit == "fail" and silence:
                return self._lost(spec, silence)
        return None

    def _lost(self, spec: ServiceSpec, silence: float) -> Failure:
        name = "" if self.nodes is None else self.nodes.name(spec.node)
        what = f"service {spec.name} is lost: {name} has not answered for {int(silence)} s"
        failure = Failure(version=1, what=what, class_name=PEER_CLASS, role="root")
        failure.service, failure.advice, failure.time = spec.name, LOST_ADVICE, time.time()
        return failure

    def statuses(self) -> Sequence[ServiceStatus]:
        """Return the status of each service on this node."""
        return [service.record(self.host) for service in self.services]

    def renew(self) -> bool:
        """Let those that have ended start again, before a later attempt."""
        ended = [service for service in self.services if not service.member.is_running]
        for service in ended:
            service.reset()
        return bool(ended) or self.host is not None  # another node may have lost some

    def close(self) -> None:
        """End all services, those first that need others."""
        waves = _waves(self.services)
        for wave in waves:
            for service in wave:
                service.member.ask_to_stop()
            for service in wave:
                service.member.await_end()
                if service.readiness is not None:
                    service.readiness.close()


def _waves(services: Sequence[ServiceProcess]) -> list[list[ServiceProcess]]:
    """Return the services in groups: none of a group is needed by one of a later group."""
    left, waves = list(services), []
    while left:
        needed = {name for service in left for name in service.spec.needs}
        wave = [service for service in left if service.name not in needed] or left
        waves.append(wave)
        left = [service for service in left if service not in wave]
    return waves
