"""A host that is connected to: one connection, and the agent that answers over it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.config import hosts as hosts_file
from safelaunch.model import Host
from safelaunch.remote import bootstrap
from safelaunch.remote.agent import Lost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from safelaunch.remote.agent import Agent
    from safelaunch.ssh.auth import Ask
    from safelaunch.ssh.connection import Connection


class Session:
    """A connected host. Close it, or use it in a `with`."""

    def __init__(self, host: Host, connection: Connection, agent: Agent) -> None:
        self.host = host
        self.name = host.name
        self.connection = connection
        self.agent = agent

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the agent ends with it."""
        self.connection.close()


class Way:
    """How this command reaches hosts: the hosts file, and who is asked."""

    def __init__(
        self,
        home: str,
        environ: Mapping[str, str],
        *,
        hosts_path: str | None = None,
        ask: Ask | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.hosts_path = hosts_path
        self.hosts = known_hosts(home, hosts_path)
        self._environ = environ
        self._ask = ask
        self.say = say
        self._bundle: tuple[str, bytes] | None = None

    def host(self, name: str) -> Host:
        """Return the entry of a host; others are known to ~/.ssh/config, or by address."""
        return self.hosts.machines.get(name) or Host(name)

    def connect(self, name: str) -> Connection:
        """Return a connection to a host. Raises HostError, ConfigError."""
        from safelaunch.ssh.connection import connect  # noqa: PLC0415 - Paramiko: 0.1 s
        from safelaunch.ssh.local import here  # noqa: PLC0415 - as above
        from safelaunch.ssh.settings import target  # noqa: PLC0415 - as above

        found = target(name, self.hosts.machines.get(name), here(self._environ))
        return connect(found, ask=self._ask, say=self.say)

    def open(self, name: str, python: str | None = None) -> Session:
        """Connect to a host and start the agent there. Raises HostError, ConfigError."""
        host = self.host(name)
        if self._bundle is None:
            self._bundle = bootstrap.bundle()
        digest, files = self._bundle
        own = host.interpreter.path if host.interpreter else None
        pythons = [path for path in (python, own) if path]
        connection = self.connect(name)
        try:
            channel = connection.exec(bootstrap.command(digest, pythons))
            agent = bootstrap.start(name, channel, files)
        except OSError as e:
            connection.close()
            raise Lost(str(e), where=name) from e
        except BaseException:
            connection.close()
            raise
        return Session(host, connection, agent)


def known_hosts(home: str, path: str | None) -> hosts_file.Hosts:
    """Return the hosts of a file, or of safelaunch's own. Raises ConfigError."""
    if path is None:
        return hosts_file.load_own(home)
    real = os.path.abspath(path)
    folder = os.path.dirname(real)
    return hosts_file.load(real, path, lambda said, _: os.path.normpath(os.path.join(folder, said)))
