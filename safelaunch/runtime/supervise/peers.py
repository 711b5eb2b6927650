"""Messages between the supervisors of one run: how an attempt ended on each node, what is next.

Node 0's listens, at the address and port that the start has tried; the others connect, and again
whenever the connection is lost. Each message has a proof that its sender has the token of the run.
Each side repeats all that it knows on a new connection, so nothing depends on one that holds.

Nodes that were started by hand meet while an attempt of each is running: from then on they are one
run. Until then each is alone, and nobody waits for it: the others may run without safelaunch. They
count attempts as node 0 does.

A supervisor that does not answer is no failed node: its job may go on. It counts only where there
is no output here either since about then: ranks that wait for a lost machine write nothing. Nodes
whose ranks never write anything (often only rank 0 does) are thus not ended by silence. One that
was never heard has not been started, perhaps because the client ended in the middle of the start.

Each sign of life has the size of the output: a hang is one only where all nodes are silent.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time

from safelaunch.runtime.messages.connection import LINE_LIMIT, SILENCE, PeerConnection
from safelaunch.runtime.messages.ends import Decision, NodeEnd, NodeServices
from safelaunch.runtime.messages.meeting import Meeting
from safelaunch.runtime.messages.members import Introduction, ManualNodes, PlannedNodes
from safelaunch.runtime.records import NodeSummary, PeersAddress
from safelaunch.runtime.supervise.control import RANKS_END, SMOKE, readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from safelaunch.runtime.messages.members import Members
    from safelaunch.runtime.records import RunRecord, ServiceStatus
    from safelaunch.runtime.supervise.control import Control
    from safelaunch.runtime.supervise.journal import Journal

HEARTBEAT = 5.0  # seconds between two signs of life
UNHEARD = SILENCE  # seconds of silence after which a node is reported not to answer
LOST = 120.0  # and after which it is lost, where there is no output here either
ABSENT = 20.0  # and after which it is lost where it was never heard: nodes start at once
RETRY = 0.25  # seconds between two tries to connect
SEARCH = (1.0, 10.0)  # of a node by hand that has not met node 0: in the first minute, after ten
MEETING = 3.0  # seconds in which nodes that meet just now may say why ranks have lost each other
FLUSH = 2.0  # seconds in which the last messages may leave
LATE = 30.0  # seconds in which a node may still connect that must learn of a bad end
STRANGERS = 64  # connections without a proof


class Peers:
    """The other nodes of a run."""

    LONG_QUIET = LOST + 1.0  # without output, as long as a silent node has to be lost

    def __init__(
        self,
        first: PeersAddress,
        members: Members,
        journal: Journal,
        meeting: Meeting | None = None,
    ) -> None:
        """Connect nothing yet; with a `meeting` the address in `first` is not used."""
        self.address = (first.address, first.port)  # of node 0
        self.token = first.token
        self.members = members
        self.meeting = meeting  # None: the start has tried the address
        self.is_listening_decided = meeting is None
        self.is_first = members.own == 0 and meeting is None  # the others connect to this one
        self.journal = journal
        self.ends: dict[int, dict[int, NodeEnd]] = {}  # attempt -> node -> how it ended
        self.next: dict[int, Decision] = {}  # attempt -> what node 0 decided after it
        self.services: dict[int, NodeServices] = {}  # of each node that has begun to start its own
        self.connections: list[PeerConnection] = []
        self.heard: dict[int, float] = {}
        self.output: dict[int, int] = {}  # bytes by node; node 0 sends the sum of all but ours
        self.silent: set[int] = set()  # nodes that were reported not to answer
        self.cause = NodeEnd()  # the node's end that ends ours
        self.listener: socket.socket | None = None
        self.next_try = 0.0
        self.refused_at: float | None = None  # since when node 0's machine refuses connections
        self.began = time.monotonic()
        self.attempt = 0  # the newest attempt
        self.is_running = False  # whether it has not ended
        self.introduced = 0  # the attempt that ran when this node introduced itself
        self.shift = 0  # how much higher node 0 counts it

    @property
    def is_alone(self) -> bool:
        """Whether no other node is known: each was started by hand, and they have not met."""
        return self.members.can_join and len(self.members.hosts) == 1

    @property
    def is_meeting(self) -> bool:
        """Whether a node that is planned was not heard yet, or one is just introducing itself."""
        others = self.members.hosts.keys() - {self.members.own} if self.is_first else {0}
        is_awaited = not self.members.can_join and not others <= self.heard.keys()
        return is_awaited or any(connection.node is None for connection in self.connections)

    def name(self, node: int) -> str:
        """Return `gpu2 (node 1)`."""
        return self.members.name(node)

    def open(self) -> None:
        """Start to listen on node 0. Raises OSError."""
        if self.meeting is not None:
            self.meeting.resolve()
        elif self.is_first:
            family = socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET
            self.listener = socket.socket(family, socket.SOCK_STREAM)
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.setblocking(False)
            self.listener.bind(self.address)
            self.listener.listen(STRANGERS)

    def _decide_listening(self, meeting: Meeting) -> None:
        """Listen once the address is known, where this is node 0."""
        if not meeting.is_resolved:
            return
        self.is_listening_decided = True
        has_numbers = self.members.has_numbers
        if has_numbers and self.members.own:
            return
        try:
            self.listener = meeting.listen(everywhere=has_numbers)
        except OSError as e:
            self.journal.event("no-peers", error=str(e))
        self.is_first = self.listener is not None or has_numbers

    def close(self, is_asked: Callable[[], bool], *, is_bad: bool, attempt: int = 0) -> None:
        """Send what is left, for a moment or until `is_asked`, and close the connections.

        A bad end is also sent to nodes that are only just starting. Node 0 stays while others run,
        since it passes their messages on.
        """
        now = time.monotonic()
        is_late = is_bad and not self.members.can_join
        until, late = now + FLUSH, now + LATE if is_late else now
        others = len(self.members.hosts) - 1 if self.is_first else 1
        while not is_asked():
            is_sending = now < until and any(c.is_busy for c in self.connections)
            is_complete = now >= late or len(self.heard) >= others
            nodes = [c.node for c in self.connections if self.is_first and c.node is not None]
            running = set(nodes) - self.ends.get(attempt + self.shift, {}).keys()
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
        another node has seen the steps of a smoke run, and "ranks_end" on a node without ranks
        once all others have succeeded.
        """
        if attempt != self.attempt:
            self.attempt, self.is_running = attempt, True
            self._show_nodes()
        self.serve()
        for node, end in self._ends(attempt).items():
            if node != self.members.own and (end.state != "succeeded" or end.stopped_by == SMOKE):
                self.cause = end
                return SMOKE if end.stopped_by == SMOKE else "node"
        ranks, ends = self.members.rank_nodes, self._ends(attempt)
        if ranks and all(node in ends for node in ranks):
            return RANKS_END
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
        self.output[self.members.own] = own
        return sum(self.output.values())

    def is_stopped(self, attempt: int) -> bool:
        """Whether another node was stopped, which ends ours: ranks miss their peers."""
        self.serve()  # it was sent before their ranks ended, unless the nodes were still meeting
        until = time.monotonic() + MEETING
        while not self._ends(attempt) and self.is_meeting and time.monotonic() < until:
            time.sleep(0.02)
            self.serve()
        for node, end in self._ends(attempt).items():
            stopped = end.state == "stopped" or end.stopped_by == SMOKE
            if node != self.members.own and stopped:
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
        self.serve()  # or a node that has just come would not learn of it
        self.is_running = False
        end.node = self.members.own
        self._add_end(attempt + self.shift, end)
        self.serve()

    def send_services(self, attempt: int, statuses: Sequence[ServiceStatus]) -> None:
        """Send to the others how the services on this node are, where that has changed."""
        own = NodeServices(node=self.members.own, attempt=attempt, services=list(statuses))
        self._add_services(NodeServices.from_json(own.to_json()))  # as one that has come
        self.serve()

    def lost_for(self, node: int) -> float:
        """Return for how many seconds a node has not answered, 0 unless that means it is lost."""
        at = self.heard.get(node)
        silence = 0.0 if at is None else time.monotonic() - at
        return silence if silence > LOST else 0.0

    def _ends(self, attempt: int) -> dict[int, NodeEnd]:
        """Return how an attempt, as this node counts it, has ended: node -> end."""
        return self.ends.get(attempt + self.shift, {})

    def await_ends(self, attempt: int, is_asked: Callable[[], bool]) -> dict[int, NodeEnd]:
        """Wait until an attempt has ended on all other nodes that have met, or `is_asked`.

        Return the ends by node, without those of nodes that do not answer any more.
        """
        while not is_asked():
            self.serve()
            ends, unheard = self._ends(attempt), [node for node, _ in self._unheard(attempt)]
            over = {*ends, *unheard, self.members.own}
            if all(node in over for node in self.members.hosts):
                break
            if 0 in unheard:  # it passes on how the others ended
                break
            time.sleep(0.05)
        return self._ends(attempt)

    def record_ends(self, attempt: int, is_asked: Callable[[], bool]) -> bool:
        """Record how the other nodes of a run on hosts have ended, for runs that wait for it here.

        Only after a success: any other end of this node is that of the run. Return whether the
        status has them now; a node that does not answer any more is `unknown`.
        """
        status = self.journal.status
        if status.state != "succeeded" or self.members.can_join or self.is_alone:
            return False
        ends = self.await_ends(attempt, is_asked)
        status.nodes = [
            self.summary(node, ends[node].state if node in ends else "unknown")
            for node in sorted(self.members.hosts)
        ]
        return True

    def _is_refused(self) -> bool:
        """Whether node 0's machine answers, and no supervisor of the run listens there."""
        return self.refused_at is not None and time.monotonic() - self.refused_at > ABSENT

    def _unheard(self, attempt: int) -> list[tuple[int, float]]:
        """Return which nodes do not answer, and for how many seconds; perhaps they never did."""
        now, unheard, hosts = time.monotonic(), [], self.members.hosts
        nodes = [n for n in hosts if n != self.members.own] if self.is_first else [0]
        for node in () if self.is_alone else nodes:
            if node in self._ends(attempt):
                continue
            at = self.heard.get(node, self.began)
            if now - at > (UNHEARD if node in self.heard else ABSENT):
                unheard.append((node, now - at))
                if node not in self.silent:
                    self.silent.add(node)
                    self.journal.event("node-silent", node=node, host=hosts[node])
                    self.journal.notify(f"{self.name(node)} does not answer")
                    self._show_nodes()
            elif node in self.silent:
                self.silent.discard(node)
                self.journal.event("node-back", node=node, host=hosts[node])
                self.journal.notify(f"{self.name(node)} answers again")
                self._show_nodes()
        return unheard

    def summary(
        self, node: int, state: str, exit_code: int | None = None, by: str | None = None
    ) -> NodeSummary:
        """Return how a node that was started by hand is, for the record of this one."""
        return NodeSummary(
            node=node,
            host=self.members.hosts[node],
            state=state,
            exit_code=exit_code,
            stopped_by=by,
            run=self.members.runs.get(node),
        )

    def _show_nodes(self) -> None:
        """Record how each node is, of those that were started by hand: no client asks them."""
        if not self.members.can_join or self.is_alone:
            return
        nodes, ends = [], self._ends(self.attempt)
        for node in sorted(self.members.hosts):
            end = ends.get(node)
            if end is not None:
                nodes.append(self.summary(node, end.state, end.exit_code, end.stopped_by))
            else:
                nodes.append(self.summary(node, "unknown" if node in self.silent else "running"))
        self.journal.status.nodes = nodes
        if self.journal.status.state == "running":  # else it is not decided yet what follows
            self.journal.save()

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
            number, ends = attempt + self.shift, self._ends(attempt)
            unheard = self._unheard(attempt)
            lost = [node for node, s in unheard if s > LOST or node not in self.heard]
            missing = [n for n in self.members.hosts if n not in ends and n not in lost]
            if self.is_first and not missing and number not in self.next:
                for node in lost:
                    ends[node] = NodeEnd(node=node, state="lost")
                decision = self.next[number] = decide(ends)
                self._queue_all({"attempt": number, "next": decision.to_json()})
                self.serve()
            elif not self.is_first and 0 in lost:
                return Decision(why=f"no restart: {self.name(0)} does not answer")
            if number in self.next:
                return self.next[number]
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
        if self.meeting is not None and not self.is_listening_decided:
            self._decide_listening(self.meeting)
        if self.listener is not None:
            self._accept(self.listener, now)
        elif self._may_connect() and now >= self.next_try:
            self._connect(now)
        for connection in list(self.connections):
            try:
                for message in connection.receive(now):
                    self._handle(connection, message)
                node = connection.node
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

    def _may_connect(self) -> bool:
        """Whether this node has to look for node 0 now."""
        if self.is_first or self.connections or not self.is_listening_decided:
            return False
        return self.is_running or not self.is_alone

    def _accept(self, listener: socket.socket, now: float) -> None:
        for _ in range(STRANGERS):
            try:
                link, _ = listener.accept()
            except OSError:
                return
            link.setblocking(False)
            strangers = [c for c in self.connections if c.node is None]
            if len(strangers) >= STRANGERS:
                self._drop(strangers[0])  # or strangers would keep the last node out
            self.connections.append(PeerConnection(link, now, self.token))

    def _connect(self, now: float) -> None:
        pause, place = RETRY, self.address
        if self.meeting is not None and self.is_alone:
            shortest, longest = SEARCH
            pause = min(longest, max(shortest, (now - self.began) / 60))
            place = self.meeting.next_place() or ("", 0)
        self.next_try = now + pause
        if not place[0]:
            return
        family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        link = socket.socket(family, socket.SOCK_STREAM)
        link.setblocking(False)
        error = link.connect_ex(place)
        if error not in (0, errno.EINPROGRESS):
            self._note_refusal(error, now)
            link.close()
            return
        self.address = place  # where it is accepted, it stays
        self.connections.append(PeerConnection(link, now, self.token, self._introduction))

    def _introduction(self) -> dict[str, Any]:
        self.introduced = self.attempt
        attempt = self.attempt + self.shift if self.is_running else 0
        return self.members.introduction(attempt).to_json()

    def _note_refusal(self, error: int | None, now: float) -> None:
        is_refused = error == errno.ECONNREFUSED
        self.refused_at = (self.refused_at or now) if is_refused else None

    def _repeat(self, connection: PeerConnection) -> None:
        """Queue all that is known: earlier messages may not have arrived."""
        for node in self.members.hosts if self.is_first else ():
            third = self.members.introduce(node)
            if third is not None and node not in (self.members.own, connection.node):
                connection.queue({"node": third.to_json()})
        for attempt, ends in self.ends.items():
            for node, end in ends.items():
                if node == self.members.own or self.is_first:
                    connection.queue(_end_message(attempt, end))
        for node, services in self.services.items():
            if node == self.members.own or self.is_first:
                connection.queue({"services": services.to_json()})
        for attempt, decision in self.next.items():
            if self.is_first:
                connection.queue({"attempt": attempt, "next": decision.to_json()})

    def _queue_all(self, message: dict[str, Any], except_for: int | None = None) -> None:
        for connection in self.connections:
            if connection.node not in (None, except_for):
                connection.queue(message)

    def _handle(self, connection: PeerConnection, message: dict[str, Any]) -> None:
        """Handle a message. Raises ValueError, KeyError, TypeError for what is no message."""
        node = connection.node
        if node is None:
            self._meet(connection, Introduction.from_json(message))
            self._repeat(connection)
            return
        if "wrote" in message:
            self.output[node] = int(message["wrote"])
        if "end" in message:
            self._add_end(int(message["attempt"]), NodeEnd.from_json(message["end"]))
        elif "next" in message and not self.is_first:
            self.next[int(message["attempt"])] = Decision.from_json(message["next"])
        elif "services" in message:
            services = NodeServices.from_json(message["services"])
            if self.is_first and services.node != node:
                raise ValueError("services of another node")
            if services.node != self.members.own:
                self._add_services(services)
        elif "node" in message and not self.is_first:
            self._add_third(Introduction.from_json(message["node"]))

    def _meet(self, connection: PeerConnection, message: Introduction) -> None:
        """Accept the node at the other end by its first message. Raises ValueError."""
        before = set(self.members.hosts)
        if self.is_first:
            node = self.members.admit(message, self.attempt if self.is_running else 0)
            connection.node = node
            connection.queue(self.members.answer(node, self.attempt).to_json())
        else:
            was_alone = self.is_alone
            self.members.accept(message)
            connection.node = node = 0
            if was_alone:
                self._count_as_node_0(message.attempt or 0)
        if node not in before:
            self._say_joined(node)
            third = self.members.introduce(node) if self.is_first else None
            if third is not None:
                self._queue_all({"node": third.to_json()}, except_for=node)

    def _count_as_node_0(self, attempt: int) -> None:
        """Count attempts as node 0 does, whose `attempt` runs beside the one introduced to it."""
        self.shift = attempt - self.introduced
        own, self.ends = self.ends, {}
        for number, ends in own.items():
            for end in ends.values():
                end.node = self.members.own
                self.ends[number + self.shift] = {end.node: end}

    def _add_third(self, message: Introduction) -> None:
        """Add a node that node 0 has met. Raises ValueError."""
        is_new = message.node not in self.members.hosts
        self.members.add(message)
        if is_new and message.node is not None:
            self._say_joined(message.node)

    def _say_joined(self, node: int) -> None:
        """Record that a node which was started by hand is one of this run now."""
        name = self.name(node)
        self.journal.event("node-joined", node=node, host=self.members.hosts[node])
        self.journal.notify(f"{name} has joined: a failure or stop of one node ends the others")
        self._show_nodes()

    def _add_end(self, attempt: int, end: NodeEnd) -> None:
        """Record how a node ended, and pass it on."""
        ends = self.ends.setdefault(attempt, {})
        if end.node in ends or end.node not in self.members.hosts:
            return
        ends[end.node] = end
        self._show_nodes()
        if self.is_first or end.node == self.members.own:
            self._queue_all(_end_message(attempt, end), except_for=end.node)

    def _add_services(self, services: NodeServices) -> None:
        """Record how the services of a node are, and pass it on."""
        before = self.services.get(services.node)
        if services.node not in self.members.hosts or services == before:
            return
        self.services[services.node] = services
        if self.is_first or services.node == self.members.own:
            self._queue_all({"services": services.to_json()}, except_for=services.node)

    def _drop(self, connection: PeerConnection) -> None:
        self.connections.remove(connection)
        connection.link.close()


def _end_message(attempt: int, end: NodeEnd) -> dict[str, Any]:
    """Return the message of an end; the record of a failure is left out where it is too long."""
    if end.failure is not None and len(json.dumps(end.to_json())) > LINE_LIMIT // 2:
        end = end.copy()
        end.failure = None
    return {"attempt": attempt, "end": end.to_json()}


def open_peers(node_dir: str, run: RunRecord, journal: Journal) -> Peers | None:
    """Return the other nodes of a run; None without any, or without an address of node 0."""
    first, manual = PeersAddress.read(node_dir), run.manual_node
    if first is None or (len(run.hosts) < 2 and manual is None):  # noqa: PLR2004 - it is alone
        return None
    os.unlink(os.path.join(node_dir, PeersAddress.FILE))  # the token is for this process alone
    if not (first.address and first.port and first.token):
        journal.warn("the nodes cannot exchange messages: peers.json is damaged")
        return None
    if manual is None:
        peers = Peers(first, PlannedNodes(run), journal)
    else:
        meeting = Meeting(first.address, first.port, manual.nodes)
        peers = Peers(first, ManualNodes(run, manual), journal, meeting)
    try:
        peers.open()
    except OSError as e:
        journal.warn(f"the nodes cannot exchange messages: {e}")
        journal.event("no-peers", error=str(e))
        return None
    return peers
