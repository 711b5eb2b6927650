"""A host that is connected to: one connection, and the agent that answers over it."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import Host
from safelaunch.remote import agent_bootstrap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from safelaunch.remote.agent_client import Agent, Pending
    from safelaunch.ssh.connection import Connection
    from safelaunch.ssh.login import Prompter


class Session:
    """A connected host. Close it, or use it in a `with`."""

    def __init__(self, host: Host, connection: Connection, agent: Agent) -> None:
        self.host = host
        self.name = host.name
        self.connection = connection
        self.agent = agent
        self.prefetched_logs: dict[tuple[str, int], Pending] = {}  # by run id and node

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def prefetch_log(self, run_id: str, node: int) -> None:
        """Ask for a log that will be followed from its start, before anybody reads it."""
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
        ask: Prompter | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.hosts_path = hosts_path
        self.hosts = known_hosts(home, hosts_path)
        self._environ = environ
        self._ask = ask
        self.say = say
        self._digest: str | None = None

    def host(self, name: str) -> Host:
        """Return the entry of a host; others are known to ~/.ssh/config, or by address."""
        return self.hosts.machines.get(name) or Host(name)

    def connect(self, name: str) -> Connection:
        """Return a connection to a host. Raises HostError, ConfigError."""
        from safelaunch.ssh.config.local_user import current_user  # noqa: PLC0415 - as above
        from safelaunch.ssh.config.target import resolve_target  # noqa: PLC0415 - as above
        from safelaunch.ssh.connection import connect  # noqa: PLC0415 - Paramiko: 0.1 s
        from safelaunch.ssh.errors import UnknownHostName  # noqa: PLC0415 - as above

        if name == hosts_file.LOCAL:
            hint = "without `remote` and `--host`, `safelaunch run` starts jobs here"
            raise ConfigError(f"`{name}` is this machine: nothing to connect to", hint=hint)
        if name in self.hosts.groups:
            members = ", ".join(self.hosts.groups[name])
            raise ConfigError(f"`{name}` is a group", hint=f"name one of its hosts: {members}")
        found = resolve_target(name, self.hosts.machines.get(name), current_user(self._environ))
        try:
            return connect(found, ask=self._ask, notify=self.say)
        except UnknownHostName as e:
            if name not in self.hosts.machines:
                e.hint = did_you_mean(name, (*self.hosts.machines, *self.hosts.groups)) or e.hint
            raise

    def open(self, name: str, python: str | None = None) -> Session:
        """Connect to a host. Raises HostError, ConfigError.

        The agent is started once it is asked; where there is none, that raises HostError.
        """
        host = self.host(name)
        if self._digest is None:
            self._digest = agent_bootstrap.digest()
        own = host.interpreter.path if host.interpreter else None
        pythons = [str(path) for path in (python, own) if path]
        connection = self.connect(name)
        execute = partial(connection.exec, wait=False)
        agent = agent_bootstrap.start_agent(name, execute, self._digest, pythons)
        return Session(host, connection, agent)


def known_hosts(home: str, path: str | None) -> hosts_file.Hosts:
    """Return the hosts of a file, or of safelaunch's own. Raises ConfigError."""
    if path is None:
        return hosts_file.load_default(home)
    real = os.path.abspath(path)
    folder = os.path.dirname(real)
    return hosts_file.load(real, path, lambda said, _: os.path.normpath(os.path.join(folder, said)))
