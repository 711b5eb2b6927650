"""Services of a job: started in order of need, ready before its first attempt, ended after it."""

from __future__ import annotations

import os
import time

from safelaunch.runtime.failure import log_tails
from safelaunch.runtime.members.member import Member
from safelaunch.runtime.members.ready_checks import Readiness
from safelaunch.runtime.preconditions import Precondition, PreconditionFailed, earlier_runs
from safelaunch.runtime.records import Failure, RunRecord, ServiceStatus
from safelaunch.runtime.start import start_probe
from safelaunch.runtime.units import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.runtime.records import ServiceSpec

PORT_CLASS = "port-in-use"
CLASS = "service-failed"  # failure class of a job that lost a service whose own is not known
ADDRESS = "127.0.0.1"
SEED = 1009  # between the ports that are searched for two services


def preconditions(run: RunRecord, node_dir: str, umask: int) -> list[Services]:
    """Return the services of a run, as one precondition."""
    return [Services(run, node_dir, umask)]


class ServiceProcess:
    """One service, and how far it is."""

    def __init__(self, spec: ServiceSpec, member: Member, seed: int) -> None:
        self.spec = spec
        self.name = spec.name
        self.member = member
        self.seed = seed  # from which its ports are searched
        self.port = 0
        self.readiness: Readiness | None = None
        self.began = 0.0
        self.is_ready = False
        self.missing = ""

    @property
    def is_begun(self) -> bool:
        """Whether it was started."""
        return self.readiness is not None

    def choose_port(self) -> None:
        """Choose its port. Raises PreconditionFailed."""
        port = self.spec.port or start_probe.free_port(self.seed)
        if port is None or not start_probe.can_bind(port):
            which = "no port is free for" if port is None else f"port {port} is taken, of"
            what = f"{which} service {self.name}"
            advice = f"leave `port` out: it gets a free one, `{{services.{self.name}.port}}`"
            raise PreconditionFailed(
                Failure(version=1, class_name=PORT_CLASS, role="root", what=what, advice=advice)
            )
        self.port = port

    def values(self) -> dict[str, str]:
        """Return the values of its words."""
        stem = f"services.{self.name}"
        return {
            f"{stem}.host": ADDRESS,
            f"{stem}.port": str(self.port),
            f"{stem}.url": f"http://{ADDRESS}:{self.port}",
        }

    def start(self, values: Mapping[str, str]) -> None:
        """Start it. Raises OSError, ValueError."""
        port = start_probe.free_port(self.seed + SEED // 2)
        own = {"cards": ",".join(self.spec.gpus)} if self.spec.queued else {}
        self.member.start({**values, **own, "port": str(port or "")}, self.spec)
        log = os.path.join(self.member.dir, "logs", "attempt-1", "combined.log")
        check = self.spec.ready.copy()
        check.command = [_with_values(word, values) for word in check.command]
        self.readiness = Readiness(check, self.port, log, self.spec.cwd)
        self.began = time.monotonic()

    def look(self) -> None:
        """Look whether it is ready by now."""
        if self.readiness is not None and not self.is_ready:
            self.missing = self.readiness.missing()
            self.is_ready = not self.missing

    def failure(self) -> Failure | None:
        """Return how it ended, where it has; or that it was not ready in time."""
        if self.is_begun and not self.member.is_running:
            return self._ended()
        limit = self.spec.ready.limit
        if self.is_begun and not self.is_ready and time.monotonic() - self.began > limit:
            what = f"service {self.name} was not ready after {duration(limit)}: {self.missing}"
            return self._about(what, None, "; `ready: {limit: 30m}` gives it longer")
        return None

    def _ended(self) -> Failure:
        status, own = self.member.status(), self.member.failure()
        how = f"{status.state}" + (f", exit code {status.exit_code}" if status.exit_code else "")
        state = "has ended" if self.is_ready else "ended before it was ready"
        what = f"service {self.name} {state} ({how})"
        if own is not None and own.what and status.state == "failed":
            what += f": {own.what}"
        return self._about(what, own if status.state == "failed" else None)

    def _about(self, what: str, own: Failure | None, more: str = "") -> Failure:
        """Return a failure of the service, with what its own supervisor has recorded of it."""
        failure = Failure(version=1) if own is None else own.copy()
        failure.what, failure.service, failure.rank = what, self.name, None
        failure.class_name = failure.class_name or CLASS
        failure.role, failure.attempt = "root", None
        look = f"`safelaunch logs --service {self.name}` shows its log"
        failure.advice = failure.advice or look + more
        if own is None:
            log = "" if self.readiness is None else self.readiness.log
            failure.last_lines = log_tails.last_lines(log_tails.read(log))
            failure.time = time.time()
        return failure

    def record(self) -> ServiceStatus:
        """Return its status, for people and programs."""
        status = ServiceStatus(name=self.name, port=self.port or None)
        if not self.is_begun:
            return status
        status.url = f"http://{ADDRESS}:{self.port}"
        status.run_dir = self.member.dir
        if self.member.is_running:
            status.state = "ready" if self.is_ready else "starting"
            status.missing = self.missing or None
        else:
            own = self.member.status()
            status.state, status.exit_code = own.state, own.exit_code
        return status

    def reset(self) -> None:
        """Forget the last start."""
        if self.readiness is not None:
            self.readiness.close()
        self.readiness, self.is_ready, self.missing = None, False, ""


class Services(Precondition):
    """All services of a run."""

    PAUSE = 0.1

    def __init__(self, run: RunRecord, node_dir: str, umask: int) -> None:
        self.run = run
        self.runs_folder = os.path.dirname(os.path.dirname(node_dir))
        # by chance: in two containers with one network the pids of supervisors are often the same
        seed = int.from_bytes(os.urandom(4), "big")
        self.services = [
            ServiceProcess(spec, Member(node_dir, spec.name, umask), seed + at * SEED)
            for at, spec in enumerate(run.services)
        ]
        self.by_name = {service.name: service for service in self.services}

    def subject(self) -> str:
        """Return which services are started first."""
        return "; ".join(f"service {s.name}" for s in self.services if not s.spec.needs)

    def poll(self) -> str:
        """Start what can be started; return which service is not ready yet, "" for none."""
        for service in self.services:
            if not service.port:
                service.choose_port()
        for service in self.services:
            failure = service.failure()
            if failure is not None:
                raise PreconditionFailed(failure)
            needed = (self.by_name[name] for name in service.spec.needs)
            if not service.is_begun and all(other.is_ready for other in needed):
                self._start(service)
            service.look()
        return "; ".join(self._waits())

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
        return [f"service {s.name} ({s.readiness.target})" for s in waits if s.readiness]

    def values(self) -> dict[str, str]:
        """Return host, port and URL of each service, by the names of their words."""
        return {name: text for service in self.services for name, text in service.values().items()}

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
        return None

    def statuses(self) -> Sequence[ServiceStatus]:
        """Return the status of each service."""
        return [service.record() for service in self.services]

    def renew(self) -> bool:
        """Let those that have ended start again, before a later attempt."""
        ended = [service for service in self.services if not service.member.is_running]
        for service in ended:
            service.reset()
        return bool(ended)

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


def _with_values(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _waves(services: Sequence[ServiceProcess]) -> list[list[ServiceProcess]]:
    """Return the services in groups: none of a group is needed by one of a later group."""
    left, waves = list(services), []
    while left:
        needed = {name for service in left for name in service.spec.needs}
        wave = [service for service in left if service.name not in needed] or left
        waves.append(wave)
        left = [service for service in left if service not in wave]
    return waves
