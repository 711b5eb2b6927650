"""The caller of a start, and a run that was started."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from safelaunch.runs import store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.runtime.records import EarlierRun, NodePlace, Process
    from safelaunch.runtime.start.live_runs import LiveRuns


class Caller(NamedTuple):
    """The caller of a start: environment, safelaunch's folder, ids and the clock."""

    environ: Mapping[str, str]
    home: str
    id_suffix: str  # of a run id: UTC time (yyyymmdd-hhmmss) and 4 hex digits
    local_time: str
    group: str = ""  # id of the group of runs that this one is a step of
    step: str = ""  # which step
    after: tuple[tuple[EarlierRun, ...], ...] = ()  # of each node, what must have ended before
    key: str = ""  # which starts once on its hosts

    def run_id(self, name: str) -> str:
        """Return the id of the run of a plan."""
        return f"{name}-{self.id_suffix}"

    def of_step(self, group: str, step: str, number: int) -> Caller:
        """Return the caller of a step of a group; their numbers differ.

        The ids of the runs differ in their last digits too: names of sockets are made of these.
        """
        moment, _, digits = self.id_suffix.rpartition("-")
        suffix = f"{moment}-{(int(digits, 16) + number) & 0xFFFF:04x}"
        return self._replace(id_suffix=suffix, group=group, step=step)

    @property
    def waits(self) -> bool:
        """Whether a node waits for other runs."""
        return any(self.after)

    def earlier_runs(self, rank: int) -> list[EarlierRun]:
        """Return the runs that must have ended before a node begins."""
        return list(self.after[rank]) if self.after else []


def caller(environ: Mapping[str, str]) -> Caller:
    """Return this process as the caller of a start that begins now. Raises ConfigError."""
    return Caller(
        environ=dict(environ),
        home=store.home(environ),
        id_suffix=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(2).hex()}",
        local_time=time.strftime("%Y%m%d-%H%M%S"),
    )


class Started(NamedTuple):
    """A run that was started, and what its user should know of it."""

    run: store.Run
    places: Sequence[NodePlace]  # its nodes
    notes: tuple[str, ...]
    attach: tuple[str, ...]  # command for its terminal on that machine; empty: it has none
    network: tuple[str, ...] = ()  # how each of several nodes reaches the others
    supervisor: Process | None = None  # its process, for a run of this machine
    recorder: Process | None = None  # what writes record.json there
    job: str = ""  # what an engine calls it
    engine: str = ""  # the name of that engine, in messages


class RunsCheck(Protocol):
    """A check of the live runs of each machine, made again where one has come before the start."""

    @property
    def count(self) -> int:
        """The number of nodes that are checked, the first: others run services alone."""

    def digest(self, rank: int) -> str:
        """Return the digest of the runs that were checked for a node."""

    def check_again(self, rank: int, others: LiveRuns) -> None:
        """Check the runs that have come since. Raises Refused."""
