"""Sends what differs: small files together in blocks, large ones alone so that they can go on."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from safelaunch.runtime.agent import wire
from safelaunch.runtime.transfer import blocks as transfer_blocks
from safelaunch.sync import file_hashes
from safelaunch.sync.prefetch import ahead

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from safelaunch.sync.project_tree import Item
    from safelaunch.sync.transfer_progress import Meter

TRIAL = 1 << 19  # bytes of contents in the block that tells how fast the link is
BLOCK = 1 << 20  # bytes of contents in one block
CALL = 16 << 20  # bytes after which the host's answer is heard: it may say that the disk is full
CHUNK = 4 * wire.PIECE  # of a large file, read and hashed at once
LARGE_CALL = 16 * CHUNK
_STEP = 64 << 20  # between digests of what has arrived of a large file
_MARK = struct.Struct(">Q")
_SAMPLE = 1 << 11
_SAMPLED = 1 << 14  # bytes of a file from which on a sample is worth its time
_DENSE = 0.9  # of its size is left of a sample that is compressed already
_TRIES = 2


class Agent(Protocol):
    """The client's side of an agent on a host (remote/agent.py)."""

    host: str

    def call(self, verb: str, data: Iterable[bytes] | None = None, **request: Any) -> Any: ...  # noqa: D102
    def stream(self, verb: str, **request: Any) -> Generator[bytes, None, Any]: ...  # noqa: D102
    def ask(self, verb: str, data: Iterable[bytes] | None = None, **request: Any) -> Pending: ...  # noqa: D102
    def ask_first(self, verb: str, **request: Any) -> Pending: ...  # noqa: D102


class Pending(Protocol):
    """A request whose answer may still be on its way."""

    def result(self) -> Any: ...  # noqa: D102
    def pieces(self) -> Generator[bytes, None, Any]: ...  # noqa: D102


def whole(stream: Generator[bytes, None, Any]) -> tuple[bytes, Any]:
    """Return all data of a stream, and its answer."""
    answers = []

    def all_of_it() -> Iterator[bytes]:
        answers.append((yield from stream))

    return b"".join(all_of_it()), answers[0]


class Packed(NamedTuple):
    """A block as it travels, and the size of the files in it."""

    data: bytes
    size: int = 0
    is_trial: bool = False


def packed(**head: Any) -> Packed:
    """Return a block without files."""
    return Packed(transfer_blocks.pack(head, [], 1))


class Sender:
    """One sync's way to the host. Calls raise HostError."""

    def __init__(self, agent: Agent, meter: Meter, *, force: bool) -> None:
        self.agent = agent
        self.meter = meter
        self.force = force
        self.speed = _Speed()
        self._trying = False
        self._last = (0, 0.0)  # size of the last block, and when it went
        self.sent = 0  # bytes on the wire
        self.conflicts: list[tuple[str, str]] = []
        self.kept: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.removed = 0
        self.left = 0  # on the host, of earlier syncs
        self.lost: list[Item] = []  # could not be read any more

    # -- small files

    def blocks(self, blocks: Iterator[Packed], need: int) -> None:
        """Send blocks, in calls of a limited length."""
        with contextlib.closing(ahead(blocks, 4)) as made:
            try:
                self._blocks(made, need)
            finally:
                self.speed.give_up()  # nobody may wait for it now

    def _blocks(self, blocks: Iterator[Packed], need: int) -> None:
        first = next(blocks, None)
        while first is not None:
            answer = self.agent.call(
                "receive.put", data=self._one_call(first, blocks), force=self.force, need=need
            )
            if self._trying:
                size, begun = self._last
                self.speed.measured(size, time.perf_counter() - begun - answer["worked"])
                self._trying = False
            self.conflicts += map(tuple, answer["conflicts"])
            self.kept += map(tuple, answer["kept"])
            self.removed += answer["removed"]
            self.left = answer["left"]
            need = 0  # said once, before anything is there
            first = next(blocks, None)

    def _one_call(self, first: Packed, rest: Iterator[Packed]) -> Iterator[bytes]:
        sent, block = 0, first  # type: int, Packed | None
        while block is not None:
            self._last = (len(block.data), time.perf_counter())
            yield block.data
            self.meter.add(block.size)
            sent += len(block.data)
            if block.is_trial:
                self._trying = True
            block = next(rest, None) if sent < CALL and not block.is_trial else None
        self.sent += sent

    def pack(self, items: Iterable[Item]) -> Iterator[Packed]:
        """Yield blocks of small files; what is compressed already is not compressed again."""
        text, dense = _Block(0), _Block(0)
        tried = False
        for item in items:
            found = self._read(item)
            if found is None:
                continue
            block = dense if _is_dense(found.data) else text
            block.add(item, found.data)
            if not tried and block.size >= TRIAL:
                tried = True
                yield block.take(is_trial=True)
            elif block.size >= BLOCK:
                text.level = self.speed.level()
                yield block.take()
        text.level = self.speed.level() if tried else 1
        for block in (text, dense):
            if block.rows:
                yield block.take()

    def _read(self, item: Item) -> file_hashes.Content | None:
        try:
            found = file_hashes.read(item)
        except OSError as e:
            self._lose(item, e)
            return None
        if not found.settled:
            self.notes.append(f"{item.path}: changed while it was read, twice: sent as it was then")
        file_hashes.take(item, found)
        return found

    def _lose(self, item: Item, error: OSError) -> None:
        self.lost.append(item)
        self.notes.append(f"{item.path}: {error.strerror}: not sent")

    # -- large files

    def large(self, item: Item) -> None:
        """Send one file, from where an earlier try has got to."""
        for turn in range(_TRIES):
            try:
                settled = self._large(item, restart=turn > 0)
            except _Unreadable as e:
                self._lose(item, e.error)
                return
            if settled:
                return
        self.notes.append(f"{item.path}: changed while it was sent, twice: not sent")
        self.lost.append(item)

    def _large(self, item: Item, *, restart: bool) -> bool:
        """Send it; False if it changed meanwhile, or did not arrive as it was sent."""
        with _opened(item) as file:
            before = os.fstat(file.fileno())
            item.size = before.st_size
            hasher = hashlib.sha256()
            at = 0 if restart else self._resume(item, file, hasher)
            if at == 0:  # nothing there, or the beginning of something else
                hasher = hashlib.sha256()
                file.seek(0)
                if self._prefix(item, restart=True) is None:
                    return True
            elif at < 0:
                return True
            self.meter.skip(at)
            with contextlib.closing(ahead(_hashed(file, hasher, item.size - at), 4)) as pieces:
                self._receive(item, pieces, item.size - at)
            after = os.fstat(file.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            return False
        item.hash = hasher.hexdigest()
        answer = self.agent.call(
            "receive.commit", path=item.path, hash=item.hash, mode=item.mode, force=self.force
        )
        self.conflicts += map(tuple, answer.get("conflicts", ()))
        return bool(answer.get("same", True))

    def _receive(self, item: Item, pieces: Iterator[bytes], size: int) -> None:
        """Send what is left. The host writes a call's data while the next one's is on its way."""
        before: Pending | None = None
        while size:
            count = min(LARGE_CALL, size)
            data = self._pieces(pieces, count)
            asked = self.agent.ask("receive.receive", data=data, path=item.path)
            if before is not None:
                before.result()
            before, size = asked, size - count
        if before is not None:
            before.result()

    def _resume(self, item: Item, file: Any, hasher: Any) -> int:
        """Return how much is there and the same: 0 for nothing, -1 for a conflict."""
        stream = self._prefix(item, restart=False)
        if stream is None:
            return -1
        at, same = 0, True
        for mark in stream:
            (there,) = _MARK.unpack_from(mark)
            while same and at < there:
                data = file.read(min(CHUNK, there - at))
                if not data:
                    break
                hasher.update(data)
                at += len(data)
            same = same and at == there and hasher.digest() == mark[_MARK.size :]
        return at if same else 0

    def _prefix(self, item: Item, *, restart: bool) -> list[bytes] | Iterator[bytes] | None:
        """Open the host's part; yield its marks. None where something stands in the way."""
        stream = self.agent.stream(
            "receive.prefix",
            path=item.path, size=item.size, step=_STEP, restart=restart, force=self.force,
        )  # fmt: skip
        first = None
        try:
            first = next(stream)
        except StopIteration as e:
            if "conflicts" in e.value:
                self.conflicts += map(tuple, e.value["conflicts"])
                return None
            return []
        return _chain(first, stream)

    def _pieces(self, chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
        while count:
            chunk = next(chunks)
            yield chunk
            count -= len(chunk)
            self.sent += len(chunk)
            self.meter.add(len(chunk))


class _Unreadable(Exception):  # noqa: N818 - reads as what happened
    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _hashed(file: Any, hasher: Any, size: int) -> Iterator[bytes]:
    while size:
        try:
            data = file.read(min(CHUNK, size))
        except OSError as e:
            raise _Unreadable(e) from e
        data = data or bytes(min(CHUNK, size))  # it got shorter: its size at the end will say so
        hasher.update(data)
        yield data
        size -= len(data)


def _opened(item: Item) -> Any:
    try:
        return open(item.local, "rb", buffering=0)
    except OSError as e:
        raise _Unreadable(e) from e


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


class _Speed:
    """Whether compressing is worth its time: not where the link takes more than zlib saves.

    One block travels as it is, alone in its call; what the host did not work is the link's time.
    """

    _FAST = 30e6  # bytes a second

    def __init__(self) -> None:
        self._level = 1
        self._known = threading.Event()

    def measured(self, size: int, seconds: float) -> None:
        """Take what the trial has shown."""
        self._level = 0 if size > self._FAST * seconds else 1
        self._known.set()

    def give_up(self) -> None:
        """Leave it at what is known."""
        self._known.set()

    def level(self) -> int:
        """Return zlib's level, once the trial is over."""
        self._known.wait()
        return self._level


class _Block:
    """A block that is being filled."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.rows: list[list[Any]] = []
        self.contents: list[bytes] = []
        self.size = 0

    def add(self, item: Item, data: bytes) -> None:
        self.rows.append([item.path, item.mode, item.hash, len(data)])
        self.contents.append(data)
        self.size += len(data)

    def take(self, *, is_trial: bool = False) -> Packed:
        """Return the block and the size of its contents, and begin a new one."""
        data = transfer_blocks.pack({"f": self.rows}, self.contents, self.level)
        packed = Packed(data, self.size, is_trial)
        self.rows, self.contents, self.size = [], [], 0
        return packed


def _is_dense(data: bytes) -> bool:
    if len(data) < _SAMPLED:
        return False
    middle = len(data) // 2
    sample = data[middle : middle + _SAMPLE]
    return len(zlib.compress(sample, 1)) > _DENSE * len(sample)


def in_batches(found: list[Any], length: int) -> Iterator[list[Any]]:
    """Yield a list in parts of limited length."""
    for begin in range(0, len(found), length):
        yield found[begin : begin + length]
