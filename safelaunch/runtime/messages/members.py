"""The nodes of a run, as its supervisors know them: planned together, or each started by hand.

Planned nodes have their numbers and hosts from the start. Of nodes that are started by hand each is
a run of its own on its machine; the supervisors introduce them to each other.
"""

from __future__ import annotations

import os
import time

from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from safelaunch.runtime.records import ManualNode, Nullable, RunRecord

    class Members(Protocol):
        """The nodes of a run."""

        own: int  # number of this node
        hosts: dict[int, str]  # number -> host of each node that is known, this one too
        runs: dict[int, str]  # number -> its run, where each node is one of its own
        ahead: dict[int, float]  # number -> seconds that its clock is ahead of this machine's
        rank_nodes: Sequence[int]  # those with ranks, where this one has none
        can_join: bool  # whether nodes may come of which nothing is known yet
        has_numbers: bool  # whether each has its number from the start

        def introduction(self, attempt: int) -> Introduction:
            """Return the first message of this node to node 0; `attempt` is the one that runs."""

        def admit(self, message: Introduction, attempt: int) -> int:
            """Return the number of the node that introduces itself. Raises ValueError.

            `attempt`: the one that runs here, 0 between two.
            """

        def answer(self, node: int, attempt: int) -> Introduction:
            """Return node 0's answer to a node that it has admitted."""

        def accept(self, message: Introduction) -> None:
            """Take over node 0's answer. Raises ValueError where it is none of this run."""

        def introduce(self, node: int) -> Introduction | None:
            """Return how node 0 introduces a node to the others; None where they know it."""

        def add(self, message: Introduction) -> None:
            """Add a node that node 0 introduces. Raises ValueError."""

        def name(self, node: int) -> str:
            """Return `gpu2 (node 1)`."""


HOST_LIMIT = 64  # characters of a host's name, HOST_NAME_MAX of Linux
ID_LIMIT = 256  # characters of a run id


class Introduction(Record):
    """How a node introduces itself to node 0, node 0 to it, or node 0 a third one to it."""

    node: Nullable[int] = None  # number of the node; null: node 0 chooses it
    id: str | None = None  # its run, where each node is one of its own
    host: str | None = None  # host name of its machine
    nodes: int | None = None  # how many nodes its launcher waits for
    attempt: int | None = None  # number of its attempt that runs
    clock: float | None = None  # time of its machine, seconds since 1970
    ahead: float | None = None  # seconds that the clock of a third node is ahead of node 0's
    number: int | None = None  # the number that node 0 gives the node that it answers


class PlannedNodes:
    """Nodes that one start has started together."""

    can_join = False
    has_numbers = True

    def __init__(self, run: RunRecord) -> None:
        self.own = run.node
        self.hosts = dict(enumerate(run.hosts))
        with_ranks = range(len(run.hosts) - run.service_nodes)
        self.rank_nodes: Sequence[int] = () if run.node in with_ranks else with_ranks
        self.runs: dict[int, str] = {}
        self.ahead: dict[int, float] = {}

    def introduction(self, attempt: int) -> Introduction:
        """Return the number of this node."""
        del attempt
        return Introduction(node=self.own)

    def admit(self, message: Introduction, attempt: int) -> int:
        """Return the number of the node that introduces itself. Raises ValueError."""
        del attempt
        if not message.node or message.node not in self.hosts:
            raise ValueError("no node of this run")
        return message.node

    def answer(self, node: int, attempt: int) -> Introduction:
        """Return nothing: each knows all others."""
        del node, attempt
        return Introduction()

    def accept(self, message: Introduction) -> None:
        """Take over nothing."""

    def introduce(self, node: int) -> None:
        """Return None: each knows all others."""

    def add(self, message: Introduction) -> None:
        """Raise ValueError: no node comes in later."""
        raise ValueError(f"node {message.node} is none of this run")

    def name(self, node: int) -> str:
        """Return `gpu2 (node 1)`."""
        return f"{self.hosts[node]} (node {node})"


class ManualNodes:
    """Nodes that were started by hand, each on its machine, as far as they have met."""

    can_join = True

    def __init__(self, run: RunRecord, manual: ManualNode) -> None:
        self.size = manual.nodes
        self.has_numbers = manual.node is not None  # else their launcher numbers them
        self.own = manual.node or 0
        self.rank_nodes: Sequence[int] = ()
        self.hosts = {self.own: os.uname().nodename}
        self.runs = {self.own: run.id}
        self.ahead = {self.own: 0.0}  # seconds that the clock of each is ahead of this machine's

    def introduction(self, attempt: int) -> Introduction:
        """Return this node's run, host, number and attempt, and the time of its clock."""
        return Introduction(
            node=self.own if self.has_numbers else None,
            id=self.runs[self.own],
            host=self.hosts[self.own],
            nodes=self.size,
            attempt=attempt,
            clock=time.time(),
        )

    def admit(self, message: Introduction, attempt: int) -> int:
        """Return the number of the node that introduces itself. Raises ValueError.

        One that is new comes in while an attempt runs on both sides: before, what it would learn
        are the ends of runs that it had no part in.
        """
        run_id = _checked(message, self.size)
        for node, other in self.runs.items():
            if other == run_id and node != self.own:
                return node
        if not attempt or not message.attempt:
            raise ValueError("no attempt is running")
        free = [node for node in range(1, self.size) if node not in self.hosts]
        number = message.node if self.has_numbers else next(iter(free), None)
        if number is None or number not in free:
            raise ValueError("another run is that node")
        self._add(number, message, time.time())
        return number

    def answer(self, node: int, attempt: int) -> Introduction:
        """Return how node 0 introduces itself, and the number of the other one."""
        answer = self.introduction(attempt)
        answer.node, answer.number = 0, node
        return answer

    def accept(self, message: Introduction) -> None:
        """Take over node 0's answer. Raises ValueError where it is none of this run."""
        run_id = _checked(message, self.size)
        if self.runs.get(0, run_id) != run_id and self.own:
            raise ValueError("another run is node 0 now")
        number = message.number
        if number is None or number not in range(1, self.size):
            raise ValueError("node 0 gives no number")
        if self.has_numbers and number != self.own:
            raise ValueError("node 0 gives another number")
        self.hosts[number] = self.hosts.pop(self.own)
        self.runs[number] = self.runs.pop(self.own)
        self.ahead[number] = self.ahead.pop(self.own)
        self.own = number
        self._add(0, message, time.time())

    def introduce(self, node: int) -> Introduction:
        """Return how node 0 introduces a node to the others."""
        return Introduction(
            node=node,
            id=self.runs[node],
            host=self.hosts[node],
            nodes=self.size,
            ahead=self.ahead[node],
        )

    def add(self, message: Introduction) -> None:
        """Add a third node, which node 0 introduces. Raises ValueError."""
        _checked(message, self.size)
        node = message.node
        if node is None or node not in range(1, self.size) or node == self.own:
            raise ValueError("no third node")
        message.clock = (message.ahead or 0.0) + self.ahead.get(0, 0.0)
        self._add(node, message, 0.0)

    def name(self, node: int) -> str:
        """Return `gpu2 (node 1)`, without a number where the launcher gives them."""
        return f"{self.hosts[node]} (node {node})" if self.has_numbers else self.hosts[node]

    def _add(self, node: int, message: Introduction, now: float) -> None:
        self.hosts[node] = printable((message.host or "")[:HOST_LIMIT]) or "unknown"
        self.runs[node] = message.id or ""
        # for the way of the message it is too little: less than a millisecond in a local network
        self.ahead[node] = (message.clock or now) - now


def _checked(message: Introduction, size: int) -> str:
    """Return the run of a node that was started by hand. Raises ValueError."""
    run_id = message.id or ""
    # users paste it into a shell, as part of a command
    is_plain = run_id.replace("-", "").replace("_", "").replace(".", "").isalnum()
    if message.nodes != size or not is_plain or len(run_id) > ID_LIMIT:
        raise ValueError("no node of this run")
    return run_id
