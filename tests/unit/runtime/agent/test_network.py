"""The addresses of a machine, and connections between two of them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.agent import network
from safelaunch.runtime.start import network_cards

if TYPE_CHECKING:
    from collections.abc import Iterator

# proc(5); of a GPU host with a public address, a private one, two networks cards and a bridge
IF_INET6 = """\
00000000000000000000000000000001 01 80 10 80       lo
20010db8000000010000000000000017 02 40 00 80     eth0
20010db80000000189abcdef01234567 02 40 00 01     eth0
20010db8000000020000000000000017 02 40 00 a0     eth0
fe8000000000000002163efffe112233 02 40 20 80     eth0
fd000000000000000000000000000002 03 40 00 82      ib0
fd000000000000000000000000000003 03 40 00 c0      ib0
fd000000000000000000000000000004 04 40 00 08  docker0
half a line
"""


def test_ipv6_addresses_are_those_that_another_machine_can_use() -> None:
    assert network_cards.ipv6_addresses(IF_INET6) == [
        ("eth0", "2001:db8:0:1::17"),
        ("ib0", "fd00::2"),
    ]
    assert network_cards.ipv6_addresses("") == []  # a kernel without IPv6


@pytest.fixture
def server() -> Iterator[network.TokenServer]:
    """Yield a port that sends its token."""
    token_server = network.TokenServer(0, "token")
    yield token_server
    token_server.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_one_port_answers_over_ipv4_and_ipv6(server: network.TokenServer, address: str) -> None:
    with socket.socket(network_cards.family(address), socket.SOCK_DGRAM) as probe:
        if probe.connect_ex((address, 9)) != 0:
            pytest.skip(f"{address} is no address of this machine")
    way = network.connect(address, server.port, "token", {address: "lo"})
    assert way == {"address": address, "interface": "lo"}
