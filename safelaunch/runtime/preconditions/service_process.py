"""One service of a job on its machine: its supervisor, its port, and how far it is."""

from __future__ import annotations

import os
import time

from safelaunch.runtime.failure import log_tails
from safelaunch.runtime.members.ready_checks import Readiness, url
from safelaunch.runtime.preconditions import PreconditionFailed
from safelaunch.runtime.records import Failure, ServiceStatus
from safelaunch.runtime.start import start_probe
from safelaunch.runtime.units import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.runtime.members.member import Member
    from safelaunch.runtime.records import ServiceSpec

PORT_CLASS = "port-in-use"
CLASS = "service-failed"  # failure class of a job that lost a service whose own is not known
SEED = 1009  # between the ports that are searched for two services


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
            f"{stem}.host": self.spec.address,
            f"{stem}.port": str(self.port),
            f"{stem}.url": url(self.spec.address, self.port),
        }

    def start(self, values: Mapping[str, str]) -> None:
        """Start it. Raises OSError, ValueError."""
        port = start_probe.free_port(self.seed + SEED // 2)
        own = {"cards": ",".join(self.spec.gpus)} if self.spec.queued else {}
        self.member.start({**values, **own, "port": str(port or "")}, self.spec)
        log = os.path.join(self.member.dir, "logs", "attempt-1", "combined.log")
        check = self.spec.ready.copy()
        check.command = [_with_values(word, values) for word in check.command]
        self.readiness = Readiness(check, self.port, log, self.spec.cwd, self.spec.address)
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
        if self.readiness is not None and not self.is_ready and self.readiness.is_private:
            what = f"service {self.name} listens on 127.0.0.1 alone"
            what += f", and the other nodes need it at {self.spec.address}"
            failure = self._about(what, None)
            failure.advice = "let it listen on 0.0.0.0, often by `args: {host: 0.0.0.0}`"
            return failure
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

    def record(self, host: str | None) -> ServiceStatus:
        """Return its status, for people and programs; `host` is that of its node, of several."""
        status = ServiceStatus(name=self.name, port=self.port or None)
        if host is not None:
            status.host = host
        if not self.is_begun:
            return status
        status.url = url(self.spec.address, self.port)
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


def _with_values(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word
