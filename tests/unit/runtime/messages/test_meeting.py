"""Where supervisors of nodes that were started by hand meet."""

from __future__ import annotations

import socket

from support.workspace import wait_for

from safelaunch.runtime.messages import meeting
from safelaunch.runtime.messages.meeting import Meeting, meeting_ports

LOOPBACK = "127.0.0.1"
# of the block for documentation, RFC 5737: no machine has it
ELSEWHERE = "192.0.2.1"


def test_each_node_finds_the_same_ports() -> None:
    assert meeting_ports(29500, 2) == meeting_ports(29500, 2)
    assert len(set(meeting_ports(29500, 2))) == meeting.TRIES


def test_jobs_of_neighbouring_ports_meet_elsewhere() -> None:
    ports = [set(meeting_ports(29500 + n, 2)) for n in range(50)]
    rendezvous = set(range(29500, 29550))
    assert all(not own & rendezvous for own in ports)
    assert len(set.union(*ports)) > 140


def test_the_port_of_the_launcher_is_left_to_it() -> None:
    for port in range(meeting.FIRST_PORT, meeting.LAST_PORT + 1):
        ports = meeting_ports(port, 2)
        assert port not in ports
        assert all(meeting.FIRST_PORT <= p <= meeting.LAST_PORT for p in ports)


def test_node_0_takes_the_next_port_where_one_is_used() -> None:
    place = Meeting(LOOPBACK, 29500, 2)
    with socket.create_server((LOOPBACK, 0)) as other:
        place.ports = (other.getsockname()[1], *place.ports)
        link = place.listen(everywhere=True)
    assert link is not None
    with link:
        assert link.getsockname() == (LOOPBACK, place.ports[1])


def test_another_machine_has_the_address() -> None:
    assert Meeting(ELSEWHERE, 29500, 2).listen(everywhere=False) is None


def test_node_0_behind_a_router_listens_everywhere() -> None:
    link = Meeting(ELSEWHERE, 29500, 2).listen(everywhere=True)
    assert link is not None
    with link:
        assert link.getsockname()[0] in ("::", "0.0.0.0")  # noqa: S104 - compared, not bound


def test_a_name_is_looked_up() -> None:
    place = Meeting("localhost", 29500, 2)
    assert place.next_place() is None
    place.resolve()
    wait_for(lambda: place.is_resolved, "answer for localhost")
    assert {place.next_place() for _ in range(9)} >= {(LOOPBACK, port) for port in place.ports}


def test_a_name_that_nobody_knows_is_no_place() -> None:
    place = Meeting("no-such-host.invalid", 29500, 2)
    place.resolve()
    wait_for(lambda: place.is_resolved, "answer", 60.0)
    assert place.next_place() is None
    assert place.listen(everywhere=True) is None
