"""Frames between a client and the agent on a host: one byte of kind, four of length, the body.

`J` is a JSON message, `D` a piece of data, `E` the end of data. A request is a message, with data
behind it where the verb takes some; its answer is data, where the verb sends some, then a message.
Requests may come before earlier ones are answered; answers come in the same order. The files of the
agent itself come as `F`, and only to what starts it.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias

    Message: TypeAlias = dict[str, Any]  # JSON; of a request `verb` and its arguments

HEAD = struct.Struct(">cI")
MESSAGE, DATA, END, FILES = b"J", b"D", b"E", b"F"
PACKET = 32768 - 64  # bytes that an SSH packet holds where the server is OpenSSH's
PIECE = 8 * PACKET - HEAD.size  # bytes of data in one frame, which fills its packets
MESSAGE_LIMIT = 1 << 28  # bytes; more is no message but a garbled stream
# of what a client accepts from a host: with them the largest answer takes less than 200 MB there
ANSWER_LIMIT = 1 << 24  # bytes
VALUES_LIMIT = 1 << 20  # separators and brackets: each may become an object of some 90 bytes


class Broken(EOFError):  # noqa: N818 - reads as what happened
    """The other side is gone, or does not send frames."""


class Garbled(Broken):
    """The other side sends what this protocol does not have, or more of it than is accepted."""


class Link:
    """Both directions of a stream. `read(n)` returns up to n bytes, none at the end.

    A longer message than `limit` is refused before it is read.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        write: Callable[[bytes | memoryview], object],
        limit: int = MESSAGE_LIMIT,
    ) -> None:
        self._read = read
        self._write = write
        self._limit = limit

    def is_closed(self) -> bool:
        """Whether the other side is gone, as far as that is visible without waiting."""
        return False

    def send(self, message: Message) -> None:
        """Send a message."""
        self._frame(MESSAGE, json.dumps(message).encode())

    def data(self, data: bytes) -> None:
        """Send data, of any length."""
        view = memoryview(data)
        for start in range(0, len(view), PIECE):
            self._frame(DATA, view[start : start + PIECE])

    def end(self) -> None:
        """Send the end of data."""
        self._frame(END, b"")

    def next(self) -> tuple[bytes, bytes]:
        """Return kind and body of the next frame. Raises Broken."""
        kind, length = self._head()
        return kind, self._exactly(length)

    def message(self) -> Message:
        """Return the next frame, which must be a message. Raises Broken."""
        kind, body = self.next()
        if kind != MESSAGE:
            raise Garbled(f"expected a message, got {kind!r}")
        return parse(body)

    def pieces(self) -> Iterator[bytes]:
        """Yield data up to its end. Raises Broken."""
        while True:
            kind, body = self.next()
            if kind == END:
                return
            if kind != DATA:
                raise Garbled(f"expected data, got {kind!r}")
            yield body

    def files(self, data: bytes) -> None:
        """Send the agent's own files."""
        self._frame(FILES, data)

    def views(self) -> Iterator[memoryview]:
        """Yield data up to its end, each piece in the same memory as the last. Raises Broken.

        The first part of a frame that breaks off is yielded too: it need not travel again.
        """
        memory = memoryview(bytearray(PIECE))
        while True:
            kind, length = self._head()
            if kind == END:
                return
            if kind != DATA:
                raise Garbled(f"expected data, got {kind!r}")
            count = self._fill(memory[:length])
            yield memory[:count]
            if count < length:
                raise Broken("the other side is gone")

    def _frame(self, kind: bytes, body: bytes | memoryview) -> None:
        head = HEAD.pack(kind, len(body))
        first = PACKET - len(head)
        self._write(head + bytes(body[:first]))
        if len(body) > first:  # not copied
            self._write(memoryview(body)[first:])

    def _head(self) -> tuple[bytes, int]:
        kind, length = HEAD.unpack(self._exactly(HEAD.size))
        most = {MESSAGE: self._limit, DATA: PIECE, END: 0}.get(kind)
        if most is None:
            raise Garbled(f"not a frame: {kind!r}")
        if length > most:
            raise Garbled(f"a frame of {length:,} bytes, which is more than {most:,}")
        return kind, length

    def _fill(self, memory: memoryview) -> int:
        """Return how many bytes were read: fewer than fit at the end of the stream."""
        filled = 0
        while filled < len(memory):
            count = self._into(memory[filled:])
            if not count:
                break
            filled += count
        return filled

    def _into(self, memory: memoryview) -> int:
        data = self._read(len(memory))
        memory[: len(data)] = data
        return len(data)

    def _exactly(self, length: int) -> bytes:
        parts = []
        while length:
            part = self._read(min(length, 1 << 20))
            if not part:
                raise Broken("the other side is gone")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


def parse(body: bytes) -> Message:
    """Return a message. Raises Garbled."""
    try:
        message = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as e:
        raise Garbled(f"a message is no JSON: {e}") from None
    if not isinstance(message, dict):
        raise Garbled("a message is no object")
    return message


def check_size(text: bytes, limit: int = ANSWER_LIMIT, values: int = VALUES_LIMIT) -> bytes:
    """Return JSON of a host if it takes little memory once it is parsed. Raises Garbled.

    `dumps` writes ASCII only; any other byte could make each character take four.
    """
    if len(text) > limit or sum(map(text.count, (b",", b":", b"[", b"{"))) > values:
        raise Garbled("an answer is longer than this machine accepts")
    if not text.isascii():
        raise Garbled("an answer is not ASCII")
    return text
