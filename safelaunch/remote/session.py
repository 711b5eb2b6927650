"""A connected host: one SSH connection, and the agent that answers over it."""

# ruff: noqa: PLC0415 - Paramiko and the reader of ~/.ssh/config, 0.1 s: only for a connection

from __future__ import annotations

import os
import threading
import time
from functools import cached_property
from typing import TYPE_CHECKING

from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import Host
from safelaunch.remote import agent_bootstrap
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.remote.agent_client import Agent, PendingReply
    from safelaunch.ssh.connection import Channel, Connection
    from safelaunch.ssh.prompt import SharedAnswers

LOGIN_TRIPS = 5  # round trips of a login with a key, once the server has been reached


class HostSession:
    """A connected host; close it."""

    def __init__(self, host: Host, connection: Connection, agent: Agent) -> None:
        self.host = host
        self.connection = connection
        self.agent = agent
        self.prefetched_logs: dict[tuple[str, int], PendingReply] = {}  # by run id and node

    def prefetch_log(self, run_id: str, node: int) -> None:
        """Request a log that will be followed from its start, before it is read."""
        self.prefetched_logs[run_id, node] = self.agent.ask(
            "runs.log", id=run_id, node=node, which=None, follow=True, attempt=1, position=0
        )

    def close(self) -> None:
        """Close the connection; the agent ends with it."""
        self.connection.close()


class HostResolver:
    """Connects to hosts by name: from the hosts file, ~/.ssh/config or an address."""

    def __init__(
        self,
        home: str,
        environ: Mapping[str, str],
        *,
        hosts_path: str | None = None,
        answers: SharedAnswers | None = None,
        report: Callable[[str], None] = lambda _: None,
        step: Sequence[str] = (),
    ) -> None:
        """`step` are words before an agent's command, which start it on another machine."""
        self.hosts_path = hosts_path
        self.hosts = load_hosts(home, hosts_path)
        self.report = report
        self._environ = environ
        self._answers = answers
        self._step = tuple(step)

    @cached_property
    def _digest(self) -> str:
        return agent_bootstrap.digest()

    def host(self, name: str) -> Host:
        """Return the entry of a host; an empty one for a name of ~/.ssh/config or an address."""
        return self.hosts.machines.get(name) or Host(name)

    def connect(self, name: str, before_login: Callable[[], object] = lambda: None) -> Connection:
        """Return a connection to a host. Raises HostError, ConfigError.

        `before_login` starts other work; it may be called for each address of the host.
        """
        from safelaunch.ssh.config.local_user import current_user
        from safelaunch.ssh.config.target import resolve_target
        from safelaunch.ssh.connection import connect
        from safelaunch.ssh.errors import UnknownHostName

        if name == hosts_file.LOCAL:
            hint = "without `remote` and `--host`, `safelaunch run` starts jobs here"
            raise ConfigError(f"`{name}` is this machine: nothing to connect to", hint=hint)
        machines, names = self.hosts.machines, self.hosts.groups
        if name in names:
            hint = f"name one of its hosts: {', '.join(names[name])}"
            raise ConfigError(f"`{name}` is a group", hint=hint)
        target = resolve_target(name, machines.get(name), current_user(self._environ))
        try:
            ask = None if self._answers is None else self._answers.prompter(name)
            return connect(target, ask=ask, notify=self.report, before_login=before_login)
        except UnknownHostName as e:
            if name not in machines:
                e.hint = did_you_mean(name, (*machines, *names)) or e.hint
            raise

    def open(self, name: str, before_login: Callable[[], object] = lambda: None) -> HostSession:
        """Connect to a host. Raises HostError, ConfigError.

        The agent starts with its first request; where there is none, that raises HostError.
        """
        start = time.monotonic()

        def start_other() -> None:
            nonlocal start
            start = time.monotonic()  # what was imported before says nothing of the line
            threading.Thread(target=lambda: self._digest, daemon=True).start()
            before_login()

        host, connection = self.host(name), self.connect(name, start_other)
        agent = self.start_agent(host, lambda line: connection.exec(self._line(line), wait=False))
        agent.round_trip = (time.monotonic() - start) / LOGIN_TRIPS
        return HostSession(host, connection, agent)

    def _line(self, line: str) -> str:
        """Return the line for a login shell that runs another one in the step."""
        if not self._step:
            return line
        return "exec " + " ".join(quote(word) for word in (*self._step, "/bin/sh", "-c", line))

    def start_agent(self, host: Host, execute: Callable[[str], Channel]) -> Agent:
        """Return an agent that starts with its first request, by `execute` of its command."""
        pythons = [str(host.interpreter.path)] if host.interpreter and host.interpreter.path else []
        return agent_bootstrap.start_agent(host.name, execute, self._digest, pythons)


def load_hosts(home: str, path: str | None) -> hosts_file.Hosts:
    """Return the hosts of a file, or of safelaunch's own. Raises ConfigError."""
    if path is None:
        return hosts_file.load_default(home)
    return hosts_file.load_file(os.path.abspath(path), path)
