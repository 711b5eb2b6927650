"""Messages between the supervisors of one run: how an attempt ended on each node, what is next.

Node 0's listens, at the address and port that the start has tried; the others connect, and again
whenever the connection is lost. Each message has a proof that its sender has the token of the run.
Each side repeats all that it knows on a new connection, so nothing depends on one that holds.

A supervisor that does not answer is no failed node: its job may go on. It counts only where there
is no output here either since about then: ranks that wait for a lost machine write nothing. Nodes
whose ranks never write anything (often only rank 0 does) are thus not ended by silence. One that
was never heard has not been started, perhaps because the client ended in the middle of the start.

Each sign of life has the size of the output: a hang is one only where all nodes are silent.
"""

from __future__ import annotations

import errno
import os
import socket
import time

from safelaunch.runtime.messages.connection import SILENCE, PeerConnection
from safelaunch.runtime.records import PeersAddress
from safelaunch.runtime.supervise.control import SMOKE, readable
from safelaunch.runtime.supervise.recovery import Decision, NodeEnd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from safelaunch.runtime.records import RunRecord
    from safelaunch.runtime.supervise.control import Control
    from safelaunch.runtime.supervise.journal import Journal

HEARTBEAT = 5.0  # seconds between two signs of life
UNHEARD = SILENCE  # seconds of silence after which a node is reported not to answer
LOST = 120.0  # and after which it is lost, where there is no output here either
ABSENT = 20.0  # and after which it is lost where it was never heard: nodes start at once
RETRY = 0.25  # seconds between two tries to connect
FLUSH = 2.0  # seconds in which the last messages may leave
LATE = 30.0  # seconds in which a node may still connect that must learn of a bad end
STRANGERS = 64  # connections without a proof


class Peers:
    """The other nodes of a run."""

    def __init__(self, first: PeersAddress, run: RunRecord, journal: Journal) -> None:
        self.address = (first.address, first.port)  # of node 0
        self.family = socket.AF_INET6 if ":" in first.address else socket.AF_INET
        self.token = first.token
        self.hosts = list(run.hosts)
        self.node = run.node
        self.is_first = self.node == 0  # the others connect to this one
        self.journal = journal
        self.ends: dict[int, dict[int, NodeEnd]] = {}  # attempt -> node -> how it ended
        self.next: dict[int, Decision] = {}  # attempt -> what node 0 decided after it
        self.connections: list[PeerConnection] = []
        self.heard: dict[int, float] = {}
        self.output: dict[int, int] = {}  # bytes by node; node 0 sends the sum of all but ours
        self.silent: set[int] = set()  # nodes that were reported not to answer
        self.cause = NodeEnd()  # the node's end that ends ours
        self.listener: socket.socket | None = None
        self.next_try = 0.0
        self.refused_at: float | None = None  # since when node 0's machine refuses connections
        self.began = time.monotonic()

    def name(self, node: int) -> str:
        """Return `gpu2 (node 1)`."""
        return f"{self.hosts[node]} (node {node})"

    def open(self) -> None:
        """Start to listen on node 0. Raises OSError."""
        if self.is_first:
            self.listener = socket.socket(self.family, socket.SOCK_STREAM)
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.setblocking(False)
            self.listener.bind(self.address)
            self.listener.listen(STRANGERS)

    def close(self, is_asked: Callable[[], bool], *, is_bad: bool, attempt: int = 0) -> None:
        """Send what is left, for a moment or until `is_asked`, and close the connections.

        A bad end is also sent to nodes that are only just starting. Node 0 stays while others run,
        since it passes their messages on.
        """
        now = time.monotonic()
        until, late = now + FLUSH, now + LATE if is_bad else now
        others = len(self.hosts) - 1 if self.is_first else 1
        while not is_asked():
            is_sending = now < until and any(c.waiting for c in self.connections)
            is_complete = now >= late or len(self.heard) >= others
            nodes = [c.node for c in self.connections if self.is_first and c.is_accepted]
            running = set(nodes) - self.ends.get(attempt, {}).keys()
            if not is_sending and is_complete and len(running) < 2:  # noqa: PLR2004
                break
            self.serve()
            time.sleep(0.02 if now < until else 0.2)
            now = time.monotonic()
        for connection in list(self.connections):
            self._drop(connection)
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    # -- while an attempt runs -----------------------------------------------------------------

    def tick(self, attempt: int, quiet: float) -> str:
        """Serve the connections; return "node" once another's end has to end this attempt.

        `quiet`: seconds without output here. The reason is in `cause`. Returns "min_steps" where
        another node has seen the steps of a smoke run.
        """
        self.serve()
        for node, end in self.ends.get(attempt, {}).items():
            if node != self.node and (end.state != "succeeded" or end.stopped_by == SMOKE):
                self.cause = end
                return SMOKE if end.stopped_by == SMOKE else "node"
        for node, seconds in self._unheard(attempt):
            if node not in self.heard and (self._is_refused() or quiet > ABSENT):
                what = f"was not started within {int(seconds)} s of this node"
                self.cause = NodeEnd(node=node, state="lost", what=what)
                return "node"
            if seconds > LOST and LOST < quiet < seconds + LOST:
                what = f"has not answered for {int(seconds)} s, without any output here since"
                self.cause = NodeEnd(node=node, state="lost", what=what)
                return "node"
        return ""

    def written(self, own: int) -> int:
        """Return how many bytes all nodes have written, as of their last messages."""
        self.output[self.node] = own
        return sum(self.output.values())

    def is_stopped(self, attempt: int) -> bool:
        """Whether another node was stopped, which ends ours: ranks miss their peers."""
        self.serve()  # it was sent before their ranks ended
        for node, end in self.ends.get(attempt, {}).items():
            stopped = end.state == "stopped" or end.stopped_by == SMOKE
            if node != self.node and stopped:
                self.cause = end
                return True
        return False

    def why(self) -> str:
        """Return what ended this node: `gpu2 (node 1) failed: rank 5: ValueError: bad batch`."""
        cause = self.cause
        name = self.name(cause.node)
        if cause.state == "lost":
            return f"{name} {cause.what}"
        rank = "" if cause.rank is None else f"rank {cause.rank}: "
        what = f": {rank}{cause.what}" if cause.what else ""
        return f"{name} {'was stopped' if cause.state == 'stopped' else cause.state}{what}"

    def ended(self, attempt: int, end: NodeEnd) -> None:
        """Send to the others how this node's attempt ended."""
        end.node = self.node
        self._add_end(attempt, end)
        self.serve()

    def _is_refused(self) -> bool:
        """Whether node 0's machine answers, and no supervisor of the run listens there."""
        return self.refused_at is not None and time.monotonic() - self.refused_at > ABSENT

    def _unheard(self, attempt: int) -> list[tuple[int, float]]:
        """Return which nodes do not answer, and for how many seconds; perhaps they never did."""
        now, unheard = time.monotonic(), []
        for node in range(1, len(self.hosts)) if self.is_first else (0,):
            if node in self.ends.get(attempt, {}):
                continue
            at = self.heard.get(node, self.began)
            if now - at > (UNHEARD if node in self.heard else ABSENT):
                unheard.append((node, now - at))
                if node not in self.silent:
                    self.silent.add(node)
                    self.journal.event("node-silent", node=node, host=self.hosts[node])
                    self.journal.notify(f"{self.name(node)} does not answer")
            elif node in self.silent:
                self.silent.discard(node)
                self.journal.event("node-back", node=node, host=self.hosts[node])
                self.journal.notify(f"{self.name(node)} answers again")
        return unheard

    # -- between two attempts ------------------------------------------------------------------

    def agree(
        self,
        attempt: int,
        decide: Callable[[dict[int, NodeEnd]], Decision],
        wakeup: int,
        control: Control,
    ) -> Decision | None:
        """Wait until each node's attempt has ended; return what node 0 decides then.

        Node 0 calls `decide` with the ends by node. None where this node is stopped meanwhile.
        """
        while not control.signals:
            self.serve()
            ends = self.ends.get(attempt, {})
            unheard = self._unheard(attempt)
            lost = [node for node, s in unheard if s > LOST or node not in self.heard]
            missing = [n for n in range(len(self.hosts)) if n not in ends and n not in lost]
            if self.is_first and not missing and attempt not in self.next:
                for node in lost:
                    ends[node] = NodeEnd(node=node, state="lost")
                decision = self.next[attempt] = decide(ends)
                self._queue_all({"attempt": attempt, "next": decision.to_json()})
                self.serve()
            elif not self.is_first and 0 in lost:
                return Decision(why=f"no restart: {self.name(0)} does not answer")
            if attempt in self.next:
                return self.next[attempt]
            if self.rest(wakeup, 0.25):
                control.clear()
        return None

    def rest(self, wakeup: int, seconds: float) -> bool:
        """Wait for a message or a signal, at most so long; return whether `wakeup` is readable."""
        sockets = [c.link.fileno() for c in self.connections]
        if self.listener is not None:
            sockets.append(self.listener.fileno())
        return wakeup in readable([wakeup, *sockets], seconds)

    # -- connections ---------------------------------------------------------------------------

    def serve(self) -> None:
        """Accept, connect, read and write without waiting."""
        now = time.monotonic()
        if self.listener is not None:
            self._accept(self.listener, now)
        elif not self.is_first and not self.connections and now >= self.next_try:
            self.next_try = now + RETRY
            self._connect(now)
        for connection in list(self.connections):
            try:
                for message in connection.receive(now):
                    self._handle(connection, message)
                node = connection.node if connection.is_accepted else None
                is_due = now - connection.sent_at > HEARTBEAT and not connection.waiting
                if is_due and node is not None:
                    output = sum(n for other, n in self.output.items() if other != node)
                    connection.queue({"wrote": output})
                connection.send(now)
            except Exception as e:  # noqa: BLE001 - strangers send anything, which must not harm the job
                self._note_refusal(getattr(e, "errno", None), now)
                self._drop(connection)
                continue
            if node is not None:
                self.heard[node] = max(connection.heard_at, self.heard.get(node, 0.0))
            if connection.is_useless(now):
                self._drop(connection)

    def _accept(self, listener: socket.socket, now: float) -> None:
        for _ in range(STRANGERS):
            try:
                link, _ = listener.accept()
            except OSError:
                return
            link.setblocking(False)
            strangers = [c for c in self.connections if not c.is_accepted]
            if len(strangers) >= STRANGERS:
                self._drop(strangers[0])  # or strangers would keep the last node out
            self.connections.append(PeerConnection(link, now, self.token, {}))

    def _connect(self, now: float) -> None:
        link = socket.socket(self.family, socket.SOCK_STREAM)
        link.setblocking(False)
        error = link.connect_ex(self.address)
        if error not in (0, errno.EINPROGRESS):
            self._note_refusal(error, now)
            link.close()
            return
        self.connections.append(PeerConnection(link, now, self.token, {}, self.node))

    def _note_refusal(self, error: int | None, now: float) -> None:
        is_refused = error == errno.ECONNREFUSED
        self.refused_at = (self.refused_at or now) if is_refused else None

    def _repeat(self, connection: PeerConnection) -> None:
        """Queue all that is known: earlier messages may not have arrived."""
        for attempt, ends in self.ends.items():
            for node, end in ends.items():
                if node == self.node or self.is_first:
                    connection.queue({"attempt": attempt, "end": end.to_json()})
        for attempt, decision in self.next.items():
            if self.is_first:
                connection.queue({"attempt": attempt, "next": decision.to_json()})

    def _queue_all(self, message: dict[str, Any], except_for: int | None = None) -> None:
        for connection in self.connections:
            if connection.is_accepted and connection.node != except_for:
                connection.queue(message)

    def _handle(self, connection: PeerConnection, message: dict[str, Any]) -> None:
        """Handle a message. Raises ValueError, KeyError, TypeError for what is no message."""
        node = connection.node
        if node is None or node not in range(len(self.hosts)):
            raise ValueError("no node of this run")
        if not connection.is_accepted:
            connection.is_accepted = True
            self._repeat(connection)
        if "wrote" in message:
            self.output[node] = int(message["wrote"])
        if "end" in message:
            self._add_end(int(message["attempt"]), NodeEnd.from_json(message["end"]))
        elif "next" in message and not self.is_first:
            self.next[int(message["attempt"])] = Decision.from_json(message["next"])

    def _add_end(self, attempt: int, end: NodeEnd) -> None:
        """Record how a node ended, and pass it on."""
        ends = self.ends.setdefault(attempt, {})
        if end.node in ends or end.node not in range(len(self.hosts)):
            return
        ends[end.node] = end
        if self.is_first or end.node == self.node:
            self._queue_all({"attempt": attempt, "end": end.to_json()}, except_for=end.node)

    def _drop(self, connection: PeerConnection) -> None:
        self.connections.remove(connection)
        connection.link.close()


def open_peers(node_dir: str, run: RunRecord, journal: Journal) -> Peers | None:
    """Return the other nodes of a run; None without any, or without an address of node 0."""
    first = PeersAddress.read(node_dir)
    if first is None or len(run.hosts) < 2:  # noqa: PLR2004 - it is alone
        return None
    os.unlink(os.path.join(node_dir, PeersAddress.FILE))  # the token is for this process alone
    if not (first.address and first.port and first.token):
        journal.warn("the nodes cannot exchange messages: peers.json is damaged")
        return None
    peers = Peers(first, run, journal)
    try:
        peers.open()
    except OSError as e:
        journal.warn(f"the nodes cannot exchange messages: {e}")
        journal.event("no-peers", error=str(e))
        return None
    return peers
