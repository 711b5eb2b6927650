"""Frames, however they are cut on their way, and the agent's end of them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import safelaunch
from safelaunch.runtime.agent import wire


class Line:
    """What is written here is read again, at most `most` bytes at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.data = bytearray()

    def write(self, data: bytes | memoryview) -> None:
        self.data += data

    def read(self, size: int) -> bytes:
        part = bytes(self.data[: min(size, self.most)])
        del self.data[: len(part)]
        return part


BODY = os.urandom(2 * wire.PIECE + 3)


@pytest.mark.parametrize("most", [1, 4096, 1 << 20])
@pytest.mark.parametrize("kind", ["pieces", "views"])
def test_data_arrives_as_it_went(kind: str, most: int) -> None:
    line = Line(most)
    link = wire.Link(line.read, line.write)
    body = BODY if most > 1 else BODY[:300]
    link.data(body)
    link.end()
    link.send({"then": "this"})
    assert b"".join(bytes(piece) for piece in getattr(link, kind)()) == body
    assert link.message() == {"then": "this"}


def test_a_frame_fills_whole_packets() -> None:
    written: list[int] = []
    link = wire.Link(lambda _: b"", lambda data: written.append(len(data)))
    link.data(bytes(2 * wire.PIECE))
    assert sum(written) % wire.PACKET == 0
    assert all(size % wire.PACKET == 0 for size in written)


@pytest.mark.parametrize(
    "stream",
    [
        b"X" + bytes(4),
        b"J" + bytes(4),
        wire.HEAD.pack(wire.DATA, wire.PIECE + 1),
        wire.HEAD.pack(wire.DATA, 9) + b"short",
    ],
)
def test_what_is_no_data_is_refused(stream: bytes) -> None:
    line = Line(99)
    line.write(stream)
    with pytest.raises(wire.Broken):
        list(wire.Link(line.read, line.write).views())


LINK_SCRIPT = """
from safelaunch.runtime.agent import server
link = server.Stdio(print, b"")
results = [link.is_closed()]
results.append(link.message())
results.append(link.message())
results.append(link.is_closed())
print(results)
"""


def test_a_request_that_waits_is_not_the_end_of_the_client() -> None:
    """A followed log ends with its client, not with the next request."""
    line = Line(1)
    link = wire.Link(line.read, line.write)
    link.send({"verb": "a"})
    link.send({"verb": "b"})
    folder = os.path.dirname(os.path.dirname(safelaunch.__file__))
    done = subprocess.run(
        [sys.executable, "-c", LINK_SCRIPT],
        input=bytes(line.data), cwd=folder, capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.decode().strip() == "[False, {'verb': 'a'}, {'verb': 'b'}, True]"


def test_what_came_of_a_frame_that_breaks_off_is_given_before_the_error() -> None:
    line = Line(99)
    wire.Link(line.read, line.write).data(b"x" * 1000)
    del line.data[-400:]
    views = wire.Link(line.read, line.write).views()
    assert bytes(next(views)) == b"x" * 600
    with pytest.raises(wire.Broken):
        next(views)
