"""Read what a host answers: of a limited size, and checked before it is used."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from safelaunch.errors import HostError
from safelaunch.runtime.agent import wire
from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.transfer import blocks

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

MAX_BLOCK = 1 << 22  # bytes of a block of small files; `send.small` sends half of that
_ROW = 400  # bytes of a row of a listing, the path included, that a known entry may take
_ROW_VALUES = 12
_PIECE_COST = 1 << 14  # bytes as which a piece counts at least: agents send 256 KiB in each


class BadAnswer(HostError):  # noqa: N818 - reads as what happened
    """The answer of a host is not one of safelaunch's agent. Not a lost connection."""

    code = "host-answer"


def bad_answer(host: str, why: object) -> BadAnswer:
    """Return the error of an answer that no agent gives."""
    return BadAnswer(
        f"its answer is not that of safelaunch's agent: {printable(str(why))[:200]}",
        where=host,
        hint="nothing of it was used. Was ~/.safelaunch/agent changed there? Remove it, and give "
        "the command again",
    )


@contextlib.contextmanager
def checked(host: str) -> Iterator[None]:
    """Raise BadAnswer where an answer has other keys or types than an agent's."""
    try:
        yield
    except (wire.Garbled, LookupError, TypeError, ValueError, AttributeError, OverflowError) as e:
        raise bad_answer(host, f"{type(e).__name__}: {e}") from e


def read_rows(
    host: str, stream: Generator[bytes, None, Any], entries: int = 0
) -> tuple[list[Any], Any]:
    """Return the rows that a stream brings, and the answer behind it. Raises BadAnswer.

    `entries`: of how many paths this machine knows already: the list may be longer by as many.
    """
    limit, values = wire.ANSWER_LIMIT + _ROW * entries, wire.VALUES_LIMIT + _ROW_VALUES * entries
    data, answer = read_all(host, stream, limit)
    with checked(host):
        return blocks.read_rows(data, limit, values) if data else [], answer


def read_all(host: str, stream: Generator[bytes, None, Any], limit: int) -> tuple[bytes, Any]:
    """Return all data of a stream, and its answer. Raises BadAnswer for more than `limit` bytes."""
    data, size = bytearray(), 0
    while True:
        try:
            piece = next(stream)
        except StopIteration as e:
            return bytes(data), e.value
        data += piece
        size += max(len(piece), _PIECE_COST)  # empty pieces do not go on for ever either
        if size > limit + _PIECE_COST:
            raise bad_answer(host, f"more than {limit:,} bytes")
