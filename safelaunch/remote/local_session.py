"""Agents that this machine starts without SSH: its own, or on a node that Slurm lends it."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

from safelaunch.errors import HostError
from safelaunch.remote.session import HostResolver, HostSession
from safelaunch.ssh.errors import ConnectionLost
from safelaunch.ssh.openssh.channel import OpenSSHChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.model import Host
    from safelaunch.remote.agent_client import Agent
    from safelaunch.ssh.connection import Channel

END_PATIENCE = 5.0  # seconds for an agent to end


class LocalShell:
    """What runs commands of this machine, in place of a connection; ended with it."""

    def __init__(self) -> None:
        self._channels: list[OpenSSHChannel] = []

    def exec(self, command: str) -> Channel:
        """Run a command line. Raises ConnectionLost."""
        try:
            channel = OpenSSHChannel("this machine", ["/bin/sh", "-c", command], lambda: None, None)
        except (OSError, subprocess.SubprocessError) as e:
            raise ConnectionLost(f"cannot run a shell: {e}") from e
        self._channels.append(channel)
        return channel

    def close(self) -> None:
        """End what still runs: an agent ends by itself, and with it the step that it runs in."""
        for channel in self._channels:
            channel.close_stdin()
        for channel in self._channels:
            with contextlib.suppress(OSError, HostError):
                channel.exit_code(END_PATIENCE)
            channel.close()


class LocalSession(HostSession):
    """An agent that this machine has started; there is no connection."""

    def __init__(self, host: Host, shell: LocalShell, agent: Agent) -> None:
        self.host, self.agent = host, agent
        self.prefetched_logs = {}
        self._shell = shell

    def close(self) -> None:
        """End the agent."""
        self._shell.close()


class LocalResolver(HostResolver):
    """Starts agents from this machine, whatever host is named."""

    def open(self, name: str, before_login: Callable[[], object] = lambda: None) -> LocalSession:
        """Return what starts an agent with its first request, which may raise HostError."""
        before_login()
        host, shell = self.host(name), LocalShell()
        agent = self.start_agent(host, lambda line: shell.exec(self._line(line)))
        return LocalSession(host, shell, agent)
