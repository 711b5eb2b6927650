"""What the supervisors of one run tell each other: how an attempt ended on each node, what is next.

Node 0's listens, at the address and port that the start has tried; the others connect, and again
whenever the connection is gone. Messages are lines of JSON, the first has the token of the run.
Each side says all that it knows after a connection is made, so nothing depends on one that holds.

A supervisor that is not heard is no failed node: its job may go on. It counts only where nothing
is written here either since about then: ranks that wait for a machine that is gone write nothing.
Nodes whose ranks never write anything (often only rank 0 does) are thus not ended by silence.

With each sign of life goes how much was written: a hang is one only where all nodes are silent.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import time

from safelaunch.runtime.records import PeersAddress
from safelaunch.runtime.supervise.recovery import SMOKE, Decision, NodeEnd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from safelaunch.runtime.records import RunRecord
    from safelaunch.runtime.supervise.control import Control
    from safelaunch.runtime.supervise.journal import Journal

BEAT = 5.0  # seconds between two signs of life
DEAF = 30.0  # seconds of silence after which a node is said not to answer
GONE = 120.0  # and where nothing is written here either, it is gone
AGAIN = 0.25  # seconds between two tries to connect
LONGEST = 1 << 16  # bytes of a line
FAREWELL = 2.0  # seconds in which the last words may leave
LATE = 30.0  # and in which a node may turn up that must hear of a bad end, and was never heard
MOST = 64  # connections that have not said who they are, each
STRANGE = 5.0  # for so many seconds,
FIRST = 1 << 12  # and with so many bytes


class _Line(object):
    """One connection, and what of it is not read or written yet."""

    def __init__(self, link: socket.socket, now: float, node: int | None = None) -> None:
        self.link = link
        self.node = node  # None: it has not said who it is
        self.is_met = self.is_over = False
        self.begun_at = self.heard_at = now
        self.spoke_at = now
        self.received = b""
        self.waiting = b""

    def say(self, message: dict[str, Any]) -> None:
        self.waiting += json.dumps(message).encode() + b"\n"

    def send(self, now: float) -> None:
        """Send what can be sent. Raises OSError."""
        while self.waiting:
            try:
                sent = self.link.send(self.waiting)
            except OSError as e:
                if e.errno in (errno.EAGAIN, errno.EINPROGRESS, errno.ENOTCONN):
                    return
                raise
            self.waiting = self.waiting[sent:]
            self.spoke_at = now

    def receive(self, now: float) -> Iterator[dict[str, Any]]:
        """Yield the messages that have come. Raises OSError, ValueError, RecursionError."""
        while True:
            try:
                part = self.link.recv(LONGEST)
            except OSError as e:
                if e.errno in (errno.EAGAIN, errno.EINPROGRESS, errno.ENOTCONN):
                    return
                raise
            if not part:
                self.is_over = True  # after what was said last
                return
            self.heard_at = now
            *lines, self.received = (self.received + part).split(b"\n")
            for line in lines:
                yield json.loads(line.decode("utf-8", "replace"))
            if len(self.received) > (LONGEST if self.node is not None else FIRST):
                raise ValueError("a line without an end")

    def is_useless(self, now: float) -> bool:
        """Whether it has ended, or fallen silent, or is one of somebody who does not say who."""
        strange = self.node is None and now - self.begun_at > STRANGE
        return self.is_over or strange or now - self.heard_at > DEAF


class Peers(object):
    """The other nodes of a run."""

    def __init__(self, first: PeersAddress, run: RunRecord, journal: Journal) -> None:
        self.address = (first.address, first.port)  # of node 0
        self.token = first.token
        self.hosts = list(run.hosts)
        self.node = run.node
        self.journal = journal
        self.ends: dict[int, dict[int, NodeEnd]] = {}  # attempt -> node -> how it ended
        self.next: dict[int, Decision] = {}  # attempt -> what node 0 decided after it
        self.lines: list[_Line] = []
        self.heard: dict[int, float] = {}
        self.wrote: dict[int, int] = {}  # bytes by node; of node 0 it says all but our own
        self.silent: set[int] = set()  # nodes that were said not to answer
        self.cause = NodeEnd()  # the node's end that ends ours
        self.door: socket.socket | None = None
        self.next_try = 0.0
        self.began = time.monotonic()

    @property
    def is_first(self) -> bool:
        """Whether this is node 0, which the others connect to."""
        return self.node == 0

    def name(self, node: int) -> str:
        """Return `gpu2 (node 1)`."""
        return "%s (node %d)" % (self.hosts[node], node)

    def open(self) -> None:
        """Begin to listen, or to connect. Raises OSError."""
        if self.is_first:
            self.door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self.door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.door.setblocking(False)
            self.door.bind(self.address)
            self.door.listen(MOST)

    def close(self, is_asked: Callable[[], bool], *, is_bad: bool, attempt: int = 0) -> None:
        """Send what is left, for a moment or until that is asked, and hang up.

        Of a bad end also those are told who are only just starting. Node 0 stays while others
        run, since they hear of each other through it.
        """
        now = time.monotonic()
        until, late = now + FAREWELL, now + LATE if is_bad else now
        wanted = len(self.hosts) - 1 if self.is_first else 1
        while not is_asked():
            speaks = now < until and any(line.waiting for line in self.lines)
            is_met = now >= late or len(self.heard) >= wanted
            if not speaks and is_met and len(self._running(attempt)) < 2:  # noqa: PLR2004 - a pair
                break
            self.serve()
            time.sleep(0.02 if now < until else 0.2)
            now = time.monotonic()
        for line in list(self.lines):
            self._drop(line)
        if self.door is not None:
            self.door.close()
            self.door = None

    def _running(self, attempt: int) -> list[int]:
        """Return the nodes that are connected to us and have not said how they ended."""
        ends = self.ends.get(attempt, {})
        met = [line.node for line in self.lines if line.node is not None]
        return [node for node in met if self.is_first and node not in ends]

    # -- while an attempt runs -----------------------------------------------------------------

    def tick(self, attempt: int, quiet: float) -> str:
        """Listen and speak; return "node" once another's end has to end this attempt.

        `quiet`: for how many seconds nothing was written here. The reason is in `cause`. Returns
        "min_steps" where another one has seen the steps of a smoke run.
        """
        self.serve()
        for node, end in self.ends.get(attempt, {}).items():
            if node != self.node and _ends_others(end):
                self.cause = end
                return SMOKE if end.stopped_by == SMOKE else "node"
        for node, seconds in self._unheard(attempt):
            if seconds > GONE and GONE < quiet < seconds + GONE:
                said = "has not answered for %d s, and nothing was written here since" % seconds
                self.cause = NodeEnd(node=node, state="lost", what=said)
                return "node"
        return ""

    def written(self, own: int) -> int:
        """Return how many bytes all nodes have written, as far as they were heard."""
        self.wrote[self.node] = own
        return sum(self.wrote.values())

    def is_stopped(self, attempt: int) -> bool:
        """Whether another node was stopped, which ends ours: ranks miss their peers."""
        self.serve()  # it was said before they went
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
            return "%s %s" % (name, cause.what)
        rank = "" if cause.rank is None else "rank %s: " % cause.rank
        what = ": %s%s" % (rank, cause.what) if cause.what else ""
        verb = "was stopped" if cause.state == "stopped" else cause.state
        return "%s %s%s" % (name, verb, what)

    def ended(self, attempt: int, end: NodeEnd) -> None:
        """Tell the others how this node's attempt ended."""
        end.node = self.node
        self._learn(attempt, end)
        self.serve()

    def _unheard(self, attempt: int) -> list[tuple[int, float]]:
        """Return which nodes are not heard, and for how long; perhaps they never were."""
        now, found = time.monotonic(), []
        for node in range(1, len(self.hosts)) if self.is_first else (0,):
            if node in self.ends.get(attempt, {}):
                continue
            at = self.heard.get(node, self.began)
            if now - at > DEAF:
                found.append((node, now - at))
                if node not in self.silent:
                    self.silent.add(node)
                    self.journal.event("node-silent", node=node, host=self.hosts[node])
                    self.journal.tell("%s does not answer" % self.name(node))
            elif node in self.silent:
                self.silent.discard(node)
                self.journal.event("node-back", node=node, host=self.hosts[node])
                self.journal.tell("%s answers again" % self.name(node))
        return found

    # -- between two attempts ------------------------------------------------------------------

    def agree(
        self,
        attempt: int,
        decide: Callable[[dict[int, NodeEnd]], Decision],
        wakeup: int,
        control: Control,
    ) -> Decision | None:
        """Wait until each node's attempt has ended; return what node 0 decides then.

        Node 0 asks `decide` with the ends by node. None where this node is stopped meanwhile.
        """
        while not control.signals:
            self.serve()
            known = self.ends.get(attempt, {})
            lost = [node for node, seconds in self._unheard(attempt) if seconds > GONE]
            missing = [n for n in range(len(self.hosts)) if n not in known and n not in lost]
            if self.is_first and not missing and attempt not in self.next:
                for node in lost:
                    known[node] = NodeEnd(node=node, state="lost")
                self._decided(attempt, decide(known))
            elif not self.is_first and 0 in lost:
                why = "no restart: %s does not answer" % self.name(0)
                return Decision(action="stop", why=why)
            if attempt in self.next:
                return self.next[attempt]
            self.rest(wakeup, 0.25)
        return None

    def rest(self, wakeup: int, seconds: float) -> None:
        """Wait for a message or a signal, at most so long."""
        poll = select.poll()
        for fd in (wakeup, *(line.link.fileno() for line in self.lines)):
            poll.register(fd, select.POLLIN)
        if self.door is not None:
            poll.register(self.door, select.POLLIN)
        if any(fd == wakeup for fd, _ in poll.poll(seconds * 1000)):
            try:
                os.read(wakeup, 4096)
            except OSError:
                pass

    def _decided(self, attempt: int, decision: Decision) -> None:
        self.next[attempt] = decision
        for line in self.lines:
            if line.node is not None:
                line.say({"attempt": attempt, "next": decision.to_json()})
        self.serve()

    # -- lines -----------------------------------------------------------------------------------

    def serve(self) -> None:
        """Accept, connect, read and write what can be without waiting."""
        now = time.monotonic()
        if self.door is not None:
            self._accept(now)
        elif not self.is_first and not self.lines and now >= self.next_try:
            self.next_try = now + AGAIN
            self._connect(now)
        for line in list(self.lines):
            try:
                for message in line.receive(now):
                    self._hear(line, message)
                if now - line.spoke_at > BEAT and not line.waiting and line.node is not None:
                    line.say({"wrote": self._elsewhere(line.node)})
                line.send(now)
            except Exception:  # noqa: BLE001 - strangers say anything, and must not harm the job
                self._drop(line)
                continue
            if line.node is not None and line.is_met:
                self.heard[line.node] = max(line.heard_at, self.heard.get(line.node, 0.0))
            if line.is_useless(now):
                self._drop(line)

    def _elsewhere(self, node: int | None) -> int:
        return sum(count for other, count in self.wrote.items() if other != node)

    def _accept(self, now: float) -> None:
        assert self.door is not None  # noqa: S101 - asked before
        for _ in range(MOST):
            try:
                link, _ = self.door.accept()
            except OSError:
                return
            link.setblocking(False)
            strange = [line for line in self.lines if line.node is None]
            if len(strange) >= MOST:
                self._drop(strange[0])  # or strangers would keep out who comes last
            self.lines.append(_Line(link, now))

    def _connect(self, now: float) -> None:
        link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        link.setblocking(False)
        if link.connect_ex(self.address) not in (0, errno.EINPROGRESS):
            link.close()
            return
        line = _Line(link, now, node=0)
        line.say({"token": self.token, "node": self.node})
        self.lines.append(line)
        self._tell_all(line)

    def _tell_all(self, line: _Line) -> None:
        """Say all that is known: what was said before may not have arrived."""
        for attempt, ends in self.ends.items():
            for node, end in ends.items():
                if node == self.node or self.is_first:
                    line.say({"attempt": attempt, "end": end.to_json()})
        for attempt, decision in self.next.items():
            if self.is_first:
                line.say({"attempt": attempt, "next": decision.to_json()})

    def _hear(self, line: _Line, message: dict[str, Any]) -> None:
        """Take a message. Raises ValueError, KeyError, TypeError for what is none."""
        if line.node is None:
            node = message["node"]
            if message["token"] != self.token or node not in range(1, len(self.hosts)):
                raise ValueError("a stranger")
            line.node = node
            line.say({})
            self._tell_all(line)
        line.is_met = True
        if "wrote" in message:
            self.wrote[line.node] = int(message["wrote"])
        if "end" in message:
            self._learn(int(message["attempt"]), NodeEnd.from_json(message["end"]))
        elif "next" in message and not self.is_first:
            self.next[int(message["attempt"])] = Decision.from_json(message["next"])

    def _learn(self, attempt: int, end: NodeEnd) -> None:
        """Keep how a node ended, and hand it on."""
        node = end.node
        ends = self.ends.setdefault(attempt, {})
        if node in ends or node not in range(len(self.hosts)):
            return
        ends[node] = end
        for line in self.lines:
            if line.node is not None and line.node != node and (self.is_first or node == self.node):
                line.say({"attempt": attempt, "end": end.to_json()})

    def _drop(self, line: _Line) -> None:
        self.lines.remove(line)
        line.link.close()


def _ends_others(end: NodeEnd) -> bool:
    return end.state != "succeeded" or end.stopped_by == SMOKE


def open_peers(node_dir: str, run: RunRecord, journal: Journal) -> Peers | None:
    """Return the other nodes of a run; None where there are none, or no way to them is known."""
    first = PeersAddress.read(node_dir)
    if first is None or len(run.hosts) < 2:  # noqa: PLR2004 - it is alone
        return None
    os.unlink(os.path.join(node_dir, PeersAddress.FILE))  # the token is nobody else's
    found = Peers(first, run, journal)
    try:
        found.open()
    except OSError as e:
        journal.warn("the nodes do not hear each other: %s" % e)
        journal.event("no-peers", error=str(e))
        return None
    return found
