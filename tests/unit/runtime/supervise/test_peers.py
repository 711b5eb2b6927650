"""The supervisors of several nodes, talking over real sockets."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import DEADLINE

from safelaunch.runtime.messages import connection
from safelaunch.runtime.messages.ends import Decision, NodeEnd
from safelaunch.runtime.messages.meeting import Meeting
from safelaunch.runtime.messages.members import ManualNodes, PlannedNodes
from safelaunch.runtime.records import (
    Failure,
    ManualNode,
    PeersAddress,
    RunRecord,
    ServiceStatus,
    Status,
)
from safelaunch.runtime.supervise import peers
from safelaunch.runtime.supervise.control import RANKS_END, readable
from safelaunch.runtime.supervise.peers import Peers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOSTS = ["gpu1", "gpu2", "gpu3"]


def failed(what: str = "out of memory") -> NodeEnd:
    return NodeEnd(state="failed", class_name="cuda-oom", rank=5, what=what)


class Journal:
    """A journal that keeps its messages and warnings."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.events: list[str] = []
        self.status = Status(state="running")

    def save(self) -> None:
        """Write nothing."""

    def notify(self, message: str) -> None:
        self.messages.append(message)

    def event(self, name: str, **details: object) -> None:
        del details
        self.events.append(name)

    def warn(self, message: str) -> None:
        self.messages.append(message)


def make(port: int, node: int, host: str = "127.0.0.1", service_nodes: int = 0) -> Peers:
    address = PeersAddress(address=host, port=port, token="secret")  # noqa: S106 - of this test
    journal: Any = Journal()
    run = RunRecord(hosts=HOSTS, node=node, service_nodes=service_nodes)
    node_peers = Peers(address, PlannedNodes(run), journal)
    node_peers.open()
    return node_peers


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def three(port: int) -> Iterator[list[Peers]]:
    """Yield the supervisors of three nodes, which have met."""
    nodes = [make(port, node) for node in range(3)]
    turn(nodes, lambda: len(nodes[0].heard) == 2 and all(0 in other.heard for other in nodes[1:]))
    yield nodes
    for node in nodes:
        node.close(lambda: True, is_bad=False)


def turn(several: list[Peers], is_done: Callable[[], bool]) -> None:
    """Serve all of them until a condition holds."""
    deadline = time.monotonic() + DEADLINE
    while not is_done():
        assert time.monotonic() < deadline
        for node in several:
            node.serve()
        links = [c.link.fileno() for node in several for c in node.connections]
        readable([*links, *(n.listener.fileno() for n in several if n.listener)], 0.005)


def test_nodes_meet_over_ipv6(port: int) -> None:
    try:
        nodes = [make(port, node, "::1") for node in range(2)]
    except OSError:
        pytest.skip("no IPv6 here: `ip addr add ::1/128 dev lo`")
    turn(nodes, lambda: 1 in nodes[0].heard and 0 in nodes[1].heard)
    assert [node.is_alone for node in nodes] == [False, False]
    for node in nodes:
        node.close(lambda: True, is_bad=False)


def _ready(nodes: list[Peers], attempt: int) -> list[str]:
    """Return which services each node knows of the third to be ready for an attempt."""
    records = [node.services.get(2) for node in nodes]
    return [
        " ".join(s.name for s in own.services if s.state == "ready" and own.attempt == attempt)
        if own is not None
        else ""
        for own in records
    ]


def test_all_nodes_hear_how_the_services_of_one_are_for_each_attempt(three: list[Peers]) -> None:
    three[2].send_services(1, [ServiceStatus(name="reward", state="starting", port=7)])
    turn(three, lambda: all(2 in node.services for node in three))
    assert _ready(three, 1) == ["", "", ""]
    for attempt in (1, 2):
        three[2].send_services(attempt, [ServiceStatus(name="reward", state="ready", port=7)])
        turn(three, lambda number=attempt: _ready(three, number) == ["reward"] * 3)  # type: ignore[misc]


def test_a_node_that_connects_later_hears_of_services_that_are_ready(port: int) -> None:
    nodes = [make(port, node) for node in range(3)]
    try:
        nodes[2].send_services(1, [ServiceStatus(name="reward", state="ready")])
        turn([nodes[0], nodes[2]], lambda: 2 in nodes[0].services)
        assert 2 not in nodes[1].services
        turn(nodes, lambda: _ready(nodes, 1) == ["reward"] * 3)
        assert [status.state for status in nodes[1].services[2].services] == ["ready"]
    finally:
        for node in nodes:
            node.close(lambda: True, is_bad=False)


def test_a_node_without_ranks_ends_once_all_ranks_have_succeeded(port: int) -> None:
    nodes = [make(port, node, service_nodes=1) for node in range(3)]
    try:
        turn(nodes, lambda: all(2 in nodes[0].heard and 0 in node.heard for node in nodes[1:]))
        nodes[0].ended(1, NodeEnd(state="succeeded"))
        turn(nodes, lambda: 0 in nodes[2].ends.get(1, {}))
        assert [node.tick(1, 0.0) for node in nodes[1:]] == ["", ""]
        nodes[1].ended(1, NodeEnd(state="succeeded"))
        turn(nodes, lambda: 1 in nodes[2].ends.get(1, {}))
        assert [node.tick(1, 0.0) for node in nodes] == ["", "", RANKS_END]
    finally:
        for node in nodes:
            node.close(lambda: True, is_bad=False)


def test_a_node_that_fails_ends_all_others(three: list[Peers]) -> None:
    three[2].ended(1, failed())
    turn(three, lambda: all(2 in node.ends.get(1, {}) for node in three))
    assert three[0].tick(1, 0.0) == three[1].tick(1, 0.0) == "node"
    assert three[1].why() == "gpu3 (node 2) failed: rank 5: out of memory"


def test_a_node_that_succeeds_ends_nobody(three: list[Peers]) -> None:
    three[1].ended(1, NodeEnd(state="succeeded"))
    turn(three, lambda: 1 in three[2].ends.get(1, {}))
    assert three[2].tick(1, 0.0) == ""


def test_an_end_of_an_earlier_attempt_does_not_end_this_one(three: list[Peers]) -> None:
    three[1].ended(1, failed())
    turn(three, lambda: 1 in three[0].ends.get(1, {}))
    assert three[0].tick(2, 0.0) == ""


def test_an_end_is_sent_again_after_a_connection_was_lost(three: list[Peers]) -> None:
    for link in list(three[1].connections):
        three[1]._drop(link)
    three[1].ended(1, failed())
    turn(three, lambda: 1 in three[2].ends.get(1, {}))
    assert three[2].ends[1][1].what == failed().what


def test_a_message_just_before_a_connection_is_closed_arrives(three: list[Peers]) -> None:
    three[1].ended(1, failed())
    three[1].close(lambda: False, is_bad=True)
    turn(three[:1], lambda: 1 in three[0].ends.get(1, {}))
    assert three[0].ends[1][1].what == failed().what


def test_a_node_that_comes_late_hears_of_the_failure(port: int) -> None:
    first = make(port, 0)
    first.ended(1, failed())
    late = make(port, 1)
    try:
        turn([first, late], lambda: 0 in late.ends.get(1, {}))
        assert late.tick(1, 0.0) == "node"
    finally:
        for node in (first, late):
            node.close(lambda: True, is_bad=True)


NONCE = "00" * 16


def test_a_stop_while_the_nodes_are_meeting_is_not_passed_over(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "MEETING", DEADLINE)
    first, second = make(port, 0), make(port, 1)
    try:
        second.serve()
        second.ended(1, NodeEnd(state="stopped", stopped_by="SIGTERM"))
        assert second.is_meeting
        leaving = threading.Thread(
            target=second.close, args=(lambda: False,), kwargs={"is_bad": True}
        )
        leaving.start()
        assert first.is_stopped(1)
        leaving.join(DEADLINE)
    finally:
        for node in (first, second):
            node.close(lambda: True, is_bad=False)


STRANGER_DATA = (
    b'{"token": "secret", "node": 1}\n',
    f'{{"nonce": "{NONCE}", "node": 1e999}}\n{{}}\n'.encode(),
    f'{{"nonce": "{NONCE}", "node": "1"}}\n{{}}\n'.encode(),
    f'{{"nonce": "{NONCE}", "node": 1}}\n{{}}\n'.encode(),
    f'{{"nonce": "{NONCE}", "node": 1}}\n{"0" * 64} {{}}\n'.encode(),
    b"GET / HTTP/1.0\r\n\r\n",
    b"[" * 4000 + b"\n",
    b"x" * (1 << 13),
)


def test_node_0_hands_on_an_end_after_its_own(three: list[Peers]) -> None:
    three[0].ended(1, NodeEnd(state="succeeded"))
    leaving = threading.Thread(
        target=three[0].close, args=(lambda: False,), kwargs={"is_bad": False, "attempt": 1}
    )
    leaving.start()
    three[1].ended(1, failed())
    turn(three[1:], lambda: 1 in three[2].ends.get(1, {}))
    leaving.join(DEADLINE)
    assert not leaving.is_alive()


@pytest.mark.parametrize("data", STRANGER_DATA)
def test_a_stranger_is_hung_up_on_at_once(
    port: int, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STRANGER_LIMIT", 2 * DEADLINE)
    first = make(port, 0)
    try:
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(data)
            stranger.setblocking(False)
            turn([first], lambda: is_closed(stranger))
        assert first.heard == {}
    finally:
        first.close(lambda: True, is_bad=False)


def test_the_secret_is_not_sent(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        second = make(port, 1)
        try:
            listener.setblocking(False)
            second.serve()
            select.select([listener], [], [], DEADLINE)
            link, _ = listener.accept()
            with link:
                link.sendall(f'{{"nonce": "{NONCE}"}}\n'.encode())
                data = b""

                def has_proof() -> bool:
                    nonlocal data
                    data += link.recv(1 << 12)
                    return data.count(b"\n") > 1

                link.settimeout(0.1)

                def is_sent() -> bool:
                    with contextlib.suppress(TimeoutError):
                        return has_proof()
                    return False

                second.ended(1, failed())
                turn([second], is_sent)
            assert b"secret" not in data
            assert b"out of memory" not in data, "node 0 has proven nothing yet"
        finally:
            second.close(lambda: True, is_bad=False)


def test_nodes_with_another_secret_do_not_meet(port: int) -> None:
    first, second = make(port, 0), make(port, 1)
    second.token = "another"  # noqa: S105 - of this test
    try:
        turn([first, second], lambda: second.connections != [])
        turn([first, second], lambda: second.connections == [])
        assert (first.heard, second.heard) == ({}, {})
    finally:
        for node in (first, second):
            node.close(lambda: True, is_bad=False)


def test_strangers_keep_no_node_out(port: int) -> None:
    first, strangers = make(port, 0), []
    late = make(port, 1)
    try:
        for _ in range(2 * peers.STRANGERS):
            strangers.append(socket.create_connection(("127.0.0.1", port)))
            first.serve()
        turn([first, late], lambda: 1 in first.heard)
        assert len(first.connections) <= peers.STRANGERS + 1
    finally:
        for stranger in strangers:
            stranger.close()
        for node in (first, late):
            node.close(lambda: True, is_bad=False)


@pytest.mark.parametrize("start", [b"x", f'{{"nonce": "{NONCE}"}}\n'.encode()])
def test_a_connection_without_a_proof_is_closed_in_time(
    port: int, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STRANGER_LIMIT", 0.2)
    monkeypatch.setattr(connection, "STRANGER_LINE", 1 << 20)
    first = make(port, 0)

    def drips() -> bool:
        with contextlib.suppress(OSError):
            slow.send(b"x")
        return is_closed(slow)

    try:
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(start)
            slow.setblocking(False)
            turn([first], drips)
        assert first.connections == []
    finally:
        first.close(lambda: True, is_bad=False)


def test_many_ends_are_sent_again_after_a_connection_was_lost(three: list[Peers]) -> None:
    for attempt in range(1, 200):
        for node in three:
            node.ended(attempt, failed("x" * 300))
    for link in list(three[0].connections):
        three[0]._drop(link)
    three[0].ended(200, failed())
    turn(three, lambda: all(0 in node.ends.get(200, {}) for node in three))
    assert sorted(three[1].ends) == list(range(1, 201))


@pytest.mark.parametrize(("quiet", "end"), [(peers.ABSENT + 1, "node"), (1.0, "")])
def test_a_node_that_was_never_heard_was_not_started(port: int, quiet: float, end: str) -> None:
    first = make(port, 0)
    try:
        assert first.tick(1, quiet=quiet) == ""
        first.began -= peers.ABSENT + 1
        assert first.tick(1, quiet=quiet) == end
        if end:
            assert first.why() == "gpu2 (node 1) was not started within 21 s of this node"
    finally:
        first.close(lambda: True, is_bad=False)


def test_where_nobody_listens_on_node_0_it_was_not_started_though_there_is_output(
    port: int,
) -> None:
    second = make(port, 1)
    try:
        turn([second], lambda: second.refused_at is not None)
        second.began -= peers.ABSENT + 1
        assert second.tick(1, quiet=0.0) == ""
        assert second.refused_at is not None
        second.refused_at -= peers.ABSENT + 1
        assert second.tick(1, quiet=0.0) == "node"
        assert second.why() == "gpu1 (node 0) was not started within 21 s of this node"
    finally:
        second.close(lambda: True, is_bad=False)


def is_closed(link: socket.socket) -> bool:
    try:
        return link.recv(100) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def goes_silent(several: list[Peers], seconds: float) -> None:
    """Let node 2 be unheard for so long: nobody serves it any more."""
    for link in [c for c in several[0].connections if c.node == 2]:
        several[0]._drop(link)
    several[0].heard[2] = time.monotonic() - seconds


def test_silence_alone_ends_nothing(three: list[Peers]) -> None:
    goes_silent(three, 10 * peers.LOST)
    assert three[0].tick(1, quiet=1.0) == ""
    journal: Any = three[0].journal
    assert journal.messages == ["gpu3 (node 2) does not answer"]


def test_silence_and_no_output_for_as_long_is_an_end(three: list[Peers]) -> None:
    goes_silent(three, peers.LOST + 1)
    assert three[0].tick(1, quiet=peers.LOST + 1) == "node"
    assert three[0].why().startswith("gpu3 (node 2) has not answered for 12")


def test_silence_does_not_end_a_node_that_has_long_written_nothing(three: list[Peers]) -> None:
    goes_silent(three, peers.LOST + 1)
    assert three[0].tick(1, quiet=10 * peers.LOST) == ""


def test_each_node_receives_how_much_all_others_have_written(
    three: list[Peers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "HEARTBEAT", 0.0)
    for node, peer in enumerate(three):
        peer.written(10**node)
    turn(three, lambda: all(peer.written(10**node) == 111 for node, peer in enumerate(three)))
    assert [peer.written(10**node) for node, peer in enumerate(three)] == [111, 111, 111]


def test_the_steps_of_a_smoke_run_end_all_nodes(three: list[Peers]) -> None:
    three[0].ended(1, NodeEnd(state="succeeded", stopped_by="min_steps"))
    turn(three, lambda: all(0 in node.ends.get(1, {}) for node in three))
    assert three[1].tick(1, 0.0) == "min_steps"


def test_a_node_that_is_heard_again_is_told(three: list[Peers]) -> None:
    three[0].silent.add(2)
    three[0].tick(1, 0.0)
    journal: Any = three[0].journal
    assert journal.messages == ["gpu3 (node 2) answers again"]


def test_all_nodes_get_the_decision_of_the_first(three: list[Peers]) -> None:
    control: Any = SimpleNamespace(signals=[])
    decision = Decision(action="restart", delay=1.0, why="it may pass", port=21000)
    for node, end in ((1, failed()), (2, NodeEnd(state="stopped", stopped_by="node"))):
        three[node].ended(1, end)
    three[0].ended(1, NodeEnd(state="succeeded"))
    turn(three, lambda: len(three[0].ends.get(1, {})) == 3)
    decided = {}

    def decide(ends: dict[int, NodeEnd]) -> Decision:
        decided.update(ends)
        return decision

    reader, writer = socket.socketpair()
    with reader, writer:
        assert three[0].agree(1, decide, reader.fileno(), control) == decision
        turn(three, lambda: all(1 in node.next for node in three))
        assert three[2].agree(1, decide, reader.fileno(), control) == decision
    assert {node: end.state for node, end in decided.items()} == {
        0: "succeeded",
        1: "failed",
        2: "stopped",
    }


def test_a_stop_ends_the_waiting_for_the_others(three: list[Peers]) -> None:
    control: Any = SimpleNamespace(signals=["SIGTERM"])
    assert three[1].agree(1, lambda _: Decision(), 0, control) is None


def test_the_token_is_read_once(tmp_path: Path, port: int) -> None:
    PeersAddress(address="127.0.0.1", port=port, token="secret").write(str(tmp_path))  # noqa: S106 - of this test
    journal: Any = Journal()
    nodes = peers.open_peers(str(tmp_path), RunRecord(hosts=HOSTS, node=0), journal)
    assert nodes is not None
    nodes.close(lambda: True, is_bad=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["{}", '{"address": "127.0.0.1", "port": "1", "token": "secret"}'])
def test_nobody_can_connect_where_the_address_is_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / PeersAddress.FILE).write_text(text)
    journal: Any = Journal()
    assert peers.open_peers(str(tmp_path), RunRecord(hosts=HOSTS, node=0), journal) is None
    assert journal.messages == ["the nodes cannot exchange messages: peers.json is damaged"]


def test_a_run_of_one_node_has_no_peers(tmp_path: Path) -> None:
    journal: Any = Journal()
    assert peers.open_peers(str(tmp_path), RunRecord(hosts=["gpu1"], node=0), journal) is None


# -- nodes that were started by hand ---------------------------------------------------------------


def by_hand(port: int, number: int | None, run: str, size: int = 2) -> Peers:
    """Return the supervisor of a node that was started by hand; attempt 1 is running."""
    address = PeersAddress(address="127.0.0.1", port=port, token="secret")  # noqa: S106 - of this test
    members = ManualNodes(RunRecord(id=run), ManualNode(node=number, nodes=size))
    journal: Any = Journal()
    node = Peers(address, members, journal, Meeting("127.0.0.1", port, size))
    node.open()
    node.tick(1, 0.0)
    return node


@pytest.fixture
def pair(port: int) -> Iterator[list[Peers]]:
    """Yield two nodes that were started by hand, and have met."""
    nodes = [by_hand(port, number, run) for number, run in enumerate(("a", "b"))]
    turn(nodes, lambda: not any(node.is_alone for node in nodes))
    yield nodes
    close(nodes)


def close(several: list[Peers]) -> None:
    for node in several:
        node.close(lambda: True, is_bad=False)


def test_nodes_by_hand_end_with_each_other(pair: list[Peers]) -> None:
    pair[1].ended(1, failed())
    turn(pair, lambda: 1 in pair[0].ends.get(1, {}))
    assert pair[0].tick(1, 0.0) == "node"


def test_a_node_by_hand_waits_for_nobody(port: int) -> None:
    for number in (0, 1):
        node = by_hand(port, number, "a")
        try:
            node.began -= 10 * peers.LOST
            assert node.tick(1, quiet=10 * peers.LOST) == ""
            assert node.is_alone
            assert node.await_ends(1, lambda: False).keys() <= {number}
        finally:
            close([node])


def test_nodes_that_their_launcher_numbers_meet(port: int) -> None:
    nodes = [by_hand(port, None, "a")]
    turn(nodes, lambda: nodes[0].is_first)
    nodes += [by_hand(port, None, run, 2) for run in "b"]
    try:
        turn(nodes, lambda: not any(node.is_alone for node in nodes))
        assert [node.members.own for node in nodes] == [0, 1]
        nodes[1].ended(1, failed())
        turn(nodes, lambda: nodes[0].tick(1, 0.0) == "node")
        assert nodes[0].why() == f"{nodes[0].members.hosts[1]} failed: rank 5: out of memory"
    finally:
        close(nodes)


def test_three_nodes_by_hand_know_each_other(port: int) -> None:
    nodes = [by_hand(port, number, run, 3) for number, run in enumerate("abc")]
    try:
        turn(nodes, lambda: all(len(node.members.hosts) == 3 for node in nodes))
        nodes[2].ended(1, failed())
        turn(nodes, lambda: nodes[1].tick(1, 0.0) == "node")
        assert [sorted(node.members.hosts) for node in nodes] == [[0, 1, 2]] * 3
    finally:
        close(nodes)


def test_a_node_that_joins_later_counts_attempts_as_node_0(port: int) -> None:
    first = by_hand(port, 0, "a")
    first.ended(1, failed())
    first.tick(2, 0.0)
    late = by_hand(port, 1, "b")
    nodes = [first, late]
    try:
        turn(nodes, lambda: not any(node.is_alone for node in nodes))
        assert late.tick(1, 0.0) == "", "what was before it joined is none of its ends"
        late.ended(1, failed())
        turn(nodes, lambda: first.tick(2, 0.0) == "node")
    finally:
        close(nodes)


def test_an_end_before_the_answer_to_the_introduction_is_not_lost(port: int) -> None:
    first, late = by_hand(port, 0, "a"), by_hand(port, 1, "b")
    nodes = [first, late]
    try:
        turn(nodes, lambda: not first.is_alone or bool(late.introduced))
        late.ended(1, failed())
        turn(nodes, lambda: first.is_alone or 1 in first.ends.get(1, {}))
        assert first.is_alone or first.tick(1, 0.0) == "node"
    finally:
        close(nodes)


def test_a_new_run_does_not_join_one_whose_attempt_has_ended(port: int) -> None:
    first = by_hand(port, 0, "a")
    first.ended(1, NodeEnd(state="stopped"))
    late = by_hand(port, 1, "b")
    try:
        turn([first, late], lambda: late.connections != [])
        turn([first, late], lambda: late.connections == [])
        assert first.is_alone
        assert late.is_alone
    finally:
        close([first, late])


def test_a_stranger_at_the_port_keeps_nobody_waiting(port: int) -> None:
    first, second = by_hand(port, 0, "a"), by_hand(port, 1, "b")
    assert second.meeting is not None
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        second.meeting.ports = (stranger.getsockname()[1], *second.meeting.ports)
        try:
            second.next_try = 0.0
            turn([first, second], lambda: second.connections != [])
            second.connections[0].opened_at -= 60.0
            turn([first, second], lambda: not second.is_alone)
        finally:
            close([first, second])


def test_nobody_waits_for_the_end_of_a_node_that_does_not_answer(pair: list[Peers]) -> None:
    pair[0].ended(1, NodeEnd(state="succeeded"))
    for link in list(pair[0].connections):
        pair[0]._drop(link)
    pair[0].heard[1] = time.monotonic() - peers.UNHEARD - 1
    assert pair[0].await_ends(1, lambda: False).keys() == {0}


def test_the_record_says_how_each_node_is(pair: list[Peers]) -> None:
    pair[1].ended(1, failed())
    turn(pair, lambda: 1 in pair[0].ends.get(1, {}))
    journal: Any = pair[0].journal
    shown = [(node.node, node.state, node.run) for node in journal.status.nodes]
    assert shown == [(0, "running", "a"), (1, "failed", "b")]


def test_a_failure_too_long_for_a_message_is_left_out(pair: list[Peers]) -> None:
    end = failed()
    end.failure = Failure(what="x" * connection.LINE_LIMIT)
    pair[1].ended(1, end)
    turn(pair, lambda: 1 in pair[0].ends.get(1, {}))
    assert pair[0].ends[1][1].failure is None
    assert pair[0].ends[1][1].what == "out of memory"
