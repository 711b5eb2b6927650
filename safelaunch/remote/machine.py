"""A host of a run with its session and agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from safelaunch.remote.agent_client import Agent
    from safelaunch.remote.host_pool import HostPool


class Machine(NamedTuple):
    """A host, and this command's connections."""

    name: str
    pool: HostPool

    @property
    def agent(self) -> Agent:
        """The agent there. Raises HostError."""
        return self.pool.session(self.name).agent
