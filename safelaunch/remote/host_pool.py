"""The connections of one command: each host is connected to once, and closed at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.remote.agent_client import Lost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from safelaunch.remote.session import HostResolver, Session

RETRY_DELAYS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)  # seconds before each try to reach a host again
CLOCK_SAMPLES = 3  # questions for a host's clock: the quickest answer is the most exact


class HostPool:
    """Connections by host, made when first asked for."""

    def __init__(self, resolver: HostResolver) -> None:
        self._resolver = resolver
        self._sessions: dict[str, Session] = {}
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; nothing is connected anew by who still reads a log."""
        self.is_closed = True
        # after Ctrl-C threads may still be at work: closing is what ends them
        for session in list(self._sessions.values()):
            session.close()

    @property
    def hosts_path(self) -> str | None:
        """The hosts file, None for safelaunch's own."""
        return self._resolver.hosts_path

    def session(self, host: str) -> Session:
        """Return the connection to a host. Raises HostError, ConfigError."""
        if host not in self._sessions:
            self._sessions[host] = self._resolver.open(host)
        return self._sessions[host]

    def expand(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return hosts, those of each group in its place."""
        return hosts_file.expand(self._resolver.hosts, tuple(names))

    def say(self, text: str) -> None:
        """Tell the user something."""
        self._resolver.say(text)

    def discard(self, host: str) -> None:
        """Close and forget a connection that is gone."""
        session = self._sessions.pop(host, None)
        if session is not None:
            session.close()

    def call(self, host: str, verb: str, **request: Any) -> Any:
        """Ask a host's agent; once more where an old connection turns out to be gone."""
        is_old = host in self._sessions
        try:
            return self.session(host).agent.call(verb, **request)
        except Lost:
            self.discard(host)
            if not is_old:
                raise
            return self.session(host).agent.call(verb, **request)

    def clock_offset(self, host: str) -> float:
        """Return how many seconds a host's clock is ahead of this one. Raises HostError."""
        samples = []
        for _ in range(CLOCK_SAMPLES):
            asked_at, before = time.monotonic(), time.time()
            now = float(self.call(host, "start.clock")["now"])
            took = time.monotonic() - asked_at
            samples.append((took, now - (before + took / 2)))
        return min(samples)[1]
