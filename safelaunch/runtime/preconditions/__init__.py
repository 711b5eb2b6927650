"""What a run waits for before its first attempt: one module for each kind, in the order of TABLE.

The run is `pending` meanwhile, and `waits_for` in its status says what for. A module has a function
`preconditions(run, node_dir, umask)`, which returns those of a run. They are asked one after
another, so that a run takes cards only once the runs before it have ended.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from safelaunch.runtime.records import Failure, RunRecord, ServiceStatus

# keys of run.json, and the modules that read them
TABLE = (("after", "earlier_runs"), ("queue", "cards"), ("services", "services"))


class PreconditionFailed(Exception):  # noqa: N818 - not an error of the program
    """It will never be met: the run ends with this failure, without an attempt."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.what)
        self.failure = failure


class Precondition:
    """One thing that a run waits for before its first attempt."""

    PAUSE = 0.5  # seconds between two questions

    def prepare_attempt(self, nodes: Any, attempt: int) -> None:
        """Begin to wait before an attempt; `nodes` are the other nodes of the run, None for one."""

    def subject(self) -> str:
        """Return what it waits for, for people, before it is asked the first time."""
        raise NotImplementedError

    def poll(self) -> str:
        """Return what it waits for, for people; "" once it is met.

        Raises PreconditionFailed, and OSError where the answer cannot be read for now.
        """
        raise NotImplementedError

    def values(self) -> Mapping[str, str]:
        """Return the values, once it is met, for the placeholders of run.json with these names."""
        return {}

    def close(self) -> None:
        """Give back what it holds: the run has ended, or was stopped while it waited."""

    # -- during the attempts, for those that start something themselves ------------------------

    def renew(self) -> bool:
        """Prepare a later attempt; return whether it has to be met again."""
        return False

    def pids(self) -> Sequence[int]:
        """Return the children of the supervisor that are not the job's."""
        return ()

    def reaped(self, pid: int) -> bool:
        """Whether a child that has ended was one of those."""
        del pid
        return False

    def loss(self) -> Failure | None:
        """Return why the attempt cannot go on, None where it can."""
        return None

    def statuses(self) -> Sequence[ServiceStatus]:
        """Return the state of each of its services."""
        return ()


def load(run: RunRecord, node_dir: str, umask: int) -> list[Precondition]:
    """Return all preconditions of a run; `umask` is that of its caller."""
    keys = run.to_json()
    modules = (
        importlib.import_module(f"{__name__}.{name}") for key, name in TABLE if keys.get(key)
    )
    return [wait for module in modules for wait in module.preconditions(run, node_dir, umask)]
