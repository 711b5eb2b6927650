"""The connections of one command: each host is connected to once, and closed at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.remote.agent_client import Lost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.remote.agent_client import Agent
    from safelaunch.remote.session import HostResolver, HostSession

RETRY_DELAYS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)  # seconds before each try to reach a host again
CLOCK_SAMPLES = 3  # questions for a host's clock: the quickest answer is the most exact


class HostPool:
    """Connections by host, made at the first use."""

    def __init__(self, resolver: HostResolver) -> None:
        self.hosts_path = resolver.hosts_path  # of the hosts file; None: safelaunch's own
        self.report = resolver.report  # shows the user a message
        self._resolver = resolver
        self._sessions: dict[str, HostSession] = {}
        self.is_closed = False

    def close(self) -> None:
        """Close all connections; a thread that still reads a log opens none again."""
        self.is_closed = True
        # after Ctrl-C threads may still be at work: closing is what ends them
        for session in list(self._sessions.values()):
            session.close()

    def session(self, host: str, before_login: Callable[[], object] = lambda: None) -> HostSession:
        """Return the connection to a host; `before_login` starts work beside a new login.

        Raises HostError, ConfigError.
        """
        if host not in self._sessions:
            self._sessions[host] = self._resolver.open(host, before_login)
        return self._sessions[host]

    def expand(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return hosts, those of each group in its place."""
        return hosts_file.expand(self._resolver.hosts, tuple(names))

    @property
    def listed(self) -> tuple[str, ...]:
        """The names of all hosts in the hosts file."""
        return tuple(self._resolver.hosts.machines)

    def discard(self, host: str) -> None:
        """Close and forget a connection that is gone."""
        session = self._sessions.pop(host, None)
        if session is not None:
            session.close()

    def call(self, host: str, verb: str, **request: Any) -> Any:
        """Call a host's agent; once more where an earlier connection turns out to be gone."""
        is_reused = host in self._sessions
        try:
            return self.session(host).agent.call(verb, **request)
        except Lost:
            self.discard(host)
            if not is_reused:
                raise
            return self.session(host).agent.call(verb, **request)

    def clock_offset(self, host: str) -> float:
        """Return how many seconds a host's clock is ahead of this machine's. Raises HostError."""
        samples = []
        for _ in range(CLOCK_SAMPLES):
            started, before = time.monotonic(), time.time()
            now = float(self.call(host, "start.clock")["now"])
            elapsed = time.monotonic() - started
            samples.append((elapsed, now - (before + elapsed / 2)))
        return min(samples)[1]


class Machine(NamedTuple):
    """A host of a run, and this command's connections."""

    name: str
    pool: HostPool

    @property
    def session(self) -> HostSession:
        """The connection to it. Raises HostError, ConfigError."""
        return self.pool.session(self.name)

    @property
    def agent(self) -> Agent:
        """The agent there. Raises HostError, ConfigError."""
        return self.session.agent
