"""Pulls from hosts that send without end; prints the most MB that this process has used."""

from __future__ import annotations

import bz2
import itertools
import json
import sys
from typing import TYPE_CHECKING, Any

from safelaunch.runtime.agent import wire
from safelaunch.runtime.transfer import compression
from safelaunch.sync.answers import BadAnswer
from safelaunch.sync.download.pull import pull
from support.hostile_agent import ZEROS, HostileAgent, answer, bomb, data, endless, frame, listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from support.hostile_agent import Answers

SIZE = 1 << 19  # of the file that is listed: it is sent in pieces
LIMIT = wire.ANSWER_LIMIT


def search(frames: Iterable[bytes]) -> Answers:
    """Return a host that answers the search so."""
    return lambda _: frames


def contents(size: int, frames: Iterable[bytes]) -> Answers:
    """Return a host that lists a file of some size, and sends it so."""

    def answers(request: dict[str, Any]) -> Iterator[bytes]:
        is_search = request["verb"] == "send.find"
        yield from listing([[0, "x", "/run/x", size, 1]]) if is_search else frames

    return answers


def message(text: str, repeated: str) -> list[bytes]:
    """Return a message of the longest size that is read."""
    count = (LIMIT - len(text) - 2) // len(repeated)
    return [frame(wire.MESSAGE, (text + repeated * count)[:-1].encode() + b"]}")]


def attacks() -> Iterator[tuple[str, Answers]]:
    piece = ZEROS[: wire.PIECE]
    yield "data without end", search(endless(piece))
    yield "empty data without end", search(endless(b""))
    yield "a list that inflates", search([*data(bomb(b"", b"\0", b"", 1 << 29)), answer(notes=[])])
    lists = bomb(b"[[]", b",[]", b"]", LIMIT - 100)
    yield "a list of lists", search([*data(lists), answer(notes=[])])
    yield "a message of 255 MB", search([wire.HEAD.pack(b"J", 255 << 20), *[ZEROS] * 300])
    yield "a message of lists", search(message('{"ok":[', "[],"))
    wide = json.dumps("\U0001f600" + "a" * (1 << 20)) + ","
    yield "a message of wide characters", search(message('{"ok":[', wide))
    block = compression.DEFLATED + (1 << 22).to_bytes(4, "big")
    yield "a block without end", contents(9, [frame(wire.DATA, block), *data(ZEROS * 8)])
    packed = bomb(b"\0\0\0\2{}", b"\0", b"", 1 << 29)
    block = compression.DEFLATED + len(packed).to_bytes(4, "big") + packed
    yield "a block that inflates", contents(9, [*data(block), answer()])
    packed = bz2.compress(b"\0\0\0\2{}" + bytes(1 << 25))
    block = compression.BZIPPED + len(packed).to_bytes(4, "big") + packed
    yield "a block of bzip2 that expands", contents(9, [*data(block), answer()])
    if compression.ZSTD in compression.available():
        kind, packed = compression.Compressor([compression.ZSTD]).compress(bytes(1 << 25))
        block = kind + len(packed).to_bytes(4, "big") + packed
        yield "a block of zstd that expands", contents(9, [*data(block), answer()])
    start = frame(wire.DATA, b"0")
    yield (
        "a piece that inflates",
        contents(
            SIZE, [start, frame(wire.DATA, compression.DEFLATED + bomb(b"", b"\0", b"", 40 << 20))]
        ),
    )
    yield (
        "a file without end",
        contents(SIZE, itertools.chain([start], endless(compression.STORED + piece[1:]))),
    )


def peak() -> int:
    # not ru_maxrss: it survives exec, and would be that of the tests
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


for name, answers in attacks():
    try:
        pull(HostileAgent(answers), ["x"], sys.argv[1], root="/run")
    except BadAnswer as e:  # noqa: PERF203 - each attack by itself
        sys.stderr.write(f"{peak()} MB, {name}: {e}\n")
    else:
        sys.exit(f"{name}: accepted")
unread = HostileAgent(search(endless(ZEROS[: wire.PIECE])))
unread.ask("receive.compare")
try:
    unread.call("start.look")
except BadAnswer as e:
    sys.stderr.write(f"{peak()} MB, data before the answer of a later request: {e}\n")
sys.stdout.write(str(peak()))
