"""One node's run over all its attempts: what the parts of its supervisor share."""

# ruff: noqa: PLC0415 - what a job's start does not need is imported beside the job, or at its end

from __future__ import annotations

import os
import time

from safelaunch.runtime.records import EngineStart, Status
from safelaunch.runtime.supervise.control import Control
from safelaunch.runtime.supervise.journal import Journal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.card_claims.claims import OwnClaim
    from safelaunch.runtime.records import AttemptRecord, RunRecord
    from safelaunch.runtime.supervise.peers import Peers

# in two containers with one network the pids of supervisors are often the same
_CHANCE = int.from_bytes(os.urandom(4), "big")


class NodeRun:
    """One node of a run, from its start to its end."""

    def __init__(
        self,
        node_dir: str,
        run: RunRecord,
        umask: int,
        *,
        subreaper: bool,
        is_forked: bool = False,
    ) -> None:
        self.dir = node_dir
        self.run = run
        self.umask = umask  # the caller's
        self.subreaper = subreaper
        self.control = Control(node_dir, run.engine, run.preemption)
        self.engine = run.engine or EngineStart()
        earlier = Status.read(node_dir) if self.engine.life else None
        self.journal = Journal(node_dir, run, is_forked=is_forked)
        if not subreaper:
            note = "detached processes are recognised by their mark only"
            self.journal.event("no-subreaper", note=note)
        self.attempts: list[AttemptRecord] = []
        self.began = time.monotonic()  # earlier by what the earlier lives of the run have taken
        if earlier is not None:
            self._go_on(earlier)
        self.nodes: Peers | None = None  # the others, where there are several
        self.sent = 1  # the last attempt whose end was sent to them
        self.cards: OwnClaim | None = None  # those that it has named, without a queue
        self.flaw = ""  # of a checkpoint that is newer than the whole ones

    def _go_on(self, earlier: Status) -> None:
        """Take over the attempts of the run before its engine started it again."""
        self.attempts = list(earlier.attempts)
        status, last = self.journal.status, self.attempts[-1] if self.attempts else None
        status.started_at = earlier.started_at
        if last is not None and last.state is None:  # its machine was lost, or taken away
            last.state = "lost"
        if last is not None:
            last.next = f"{self.engine.title} has started the run again"
            status.attempts = self.attempts
        self.began -= sum(attempt.elapsed or 0.0 for attempt in self.attempts)

    def open_peers(self) -> None:
        """Begin to exchange messages with the other nodes."""
        from safelaunch.runtime.supervise import peers

        self.nodes = peers.open_peers(self.dir, self.run, self.journal)

    def send(self, number: int, **end: object) -> bool:
        """Send to the other nodes how an attempt ended on this one; False after a fault."""
        self.sent = number
        if self.nodes is not None:
            from safelaunch.runtime.messages.ends import NodeEnd

            try:
                self.nodes.ended(number, NodeEnd(**end))  # type: ignore[arg-type]
            except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
                self.journal.broken("message to the other nodes", e)
                return False
        return True


def free_port(number: int) -> int | None:
    """Return a port for attempt `number`."""
    from safelaunch.runtime.start import start_probe

    return start_probe.free_port(_CHANCE + number * 997)
