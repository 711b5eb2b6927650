"""A host that answers as no agent of safelaunch does, over the real protocol."""

from __future__ import annotations

import itertools
import json
import zlib
from typing import TYPE_CHECKING, Any

from safelaunch.remote.agent_client import Agent
from safelaunch.runtime.agent import wire
from safelaunch.runtime.transfer import blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Answers = Callable[[dict[str, Any]], Iterable[bytes]]  # frames for a request

MIB = 1 << 20
ZEROS = bytes(MIB)


class HostileAgent(Agent):
    """An agent whose host answers each request with the frames of a function."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._requests = bytearray()
        self._frames: Iterator[bytes] = iter(())
        self._unread = b""
        super().__init__("box", self._receive, self._requests.extend)

    def _receive(self, size: int) -> bytes:
        if not self._unread:
            self._frames = itertools.chain(self._frames, self._replies())
            self._unread = next(self._frames, b"")
        data, self._unread = self._unread[:size], self._unread[size:]
        return data

    def _replies(self) -> Iterator[bytes]:
        while self._requests:
            kind, length = wire.HEAD.unpack_from(self._requests)
            body = bytes(self._requests[wire.HEAD.size : wire.HEAD.size + length])
            del self._requests[: wire.HEAD.size + length]
            if kind == wire.MESSAGE:
                yield from self._answers(json.loads(body))


def frame(kind: bytes, body: bytes) -> bytes:
    return wire.HEAD.pack(kind, len(body)) + body


def data(body: bytes) -> Iterator[bytes]:
    """Yield data as pieces."""
    for start in range(0, len(body), wire.PIECE):
        yield frame(wire.DATA, body[start : start + wire.PIECE])


def answer(**values: Any) -> bytes:
    return frame(wire.MESSAGE, json.dumps({"ok": values}).encode())


def listing(rows: list[Any], notes: Iterable[str] = ()) -> Iterator[bytes]:
    """Yield the answer to a search for files."""
    yield from data(blocks.rows(rows))
    yield answer(notes=list(notes))


def endless(piece: bytes) -> Iterator[bytes]:
    return itertools.repeat(frame(wire.DATA, piece))


def bomb(start: bytes, repeated: bytes, end: bytes, size: int) -> bytes:
    """Return a deflated text of that size, about a thousandth of it."""
    packer = zlib.compressobj(1)
    many = repeated * (MIB // len(repeated))
    parts = [packer.compress(start)]
    parts += [packer.compress(many) for _ in range(size // len(many))]
    return b"".join([*parts, packer.compress(end), packer.flush()])
