"""Send changed files: small ones together in blocks, large ones alone so that they can resume."""
# ruff: noqa: D102 - remote/agent_client.py documents the calls of the two protocols

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import queue
import struct
import threading
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from safelaunch.runtime.agent import wire
from safelaunch.runtime.transfer import blocks as transfer_blocks
from safelaunch.runtime.transfer import compression
from safelaunch.sync import answers, file_hashes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator

    from safelaunch.sync.project_tree import Entry
    from safelaunch.sync.transfer_progress import Meter

TRIAL = 1 << 19  # bytes of contents in the block that measures the rate of the link
_SLICE = 1 << 14  # bytes of it on the wire that come by themselves
_AHEAD = 4  # blocks that are sent before the host's answer to those before them is read
BLOCK = 1 << 20  # bytes of contents in one block
CALL = 16 << 20  # bytes per call: the host's answer may be that the disk is full
CHUNK = 4 * wire.PIECE  # of a large file, read and hashed at once
LARGE_CALL = 16 * CHUNK
_STEP = 64 << 20  # bytes between the digests by which a large file is resumed
_MARK = struct.Struct(">Q")
_SAMPLE = 1 << 11
_SAMPLE_FROM = 1 << 14  # bytes of a file from which on a sample is worth its time
_DENSE = 0.9  # compressed size of a sample, as a fraction, from which on compression is useless
_ATTEMPTS = 2
T = TypeVar("T")


class AgentCalls(Protocol):
    """The calls of the agent on a host (remote/agent_client.py)."""

    host: str
    round_trip: float  # seconds, at most

    def launch(self) -> None: ...
    def call(self, verb: str, data: Iterable[bytes] | None = None, **request: Any) -> Any: ...
    def stream(self, verb: str, **request: Any) -> Generator[bytes, None, Any]: ...
    def ask(
        self, verb: str, data: Iterable[bytes] | None = None, **request: Any
    ) -> PendingAnswer: ...
    def ask_first(self, verb: str, **request: Any) -> PendingAnswer: ...


class PendingAnswer(Protocol):
    """A request whose answer may not have arrived yet."""

    def result(self) -> Any: ...
    def pieces(self) -> Generator[bytes, None, Any]: ...


def prefetch(source: Iterator[T], limit: int) -> Generator[T, None, None]:
    """Yield the items of a source that runs in a thread, at most `limit` items ahead.

    Reading, hashing and compressing release the interpreter lock, so they cost no time beside a
    slower network. Exceptions of the source are raised here.
    """
    results: queue.Queue[T | BaseException | None] = queue.Queue(limit)
    ended = threading.Event()

    def put(item: T | BaseException | None) -> bool:
        while not ended.is_set():
            with contextlib.suppress(queue.Full):
                results.put(item, timeout=0.1)
                return True
        return False

    def work() -> None:
        try:
            if all(put(item) for item in source):
                put(None)
        except BaseException as e:  # noqa: BLE001 - raised by the consumer
            put(e)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (item := results.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        ended.set()
        thread.join()


class PackedBlock(NamedTuple):
    """A block in its wire format, and the size of the files in it."""

    data: bytes
    size: int = 0
    is_trial: bool = False


def pack_header(**head: Any) -> PackedBlock:
    """Return a block without files."""
    return PackedBlock(transfer_blocks.pack(head, [], 1))


class PackedExtent(NamedTuple):
    """A part of a large file in its wire format, and its size in the file."""

    head: bytes
    data: bytes
    size: int


class Sender:
    """Sends the files of one sync to the host. Calls raise HostError."""

    def __init__(
        self,
        agent: AgentCalls,
        meter: Meter,
        *,
        force: bool,
        run: str | None = None,
        methods: Collection[str] = (),
    ) -> None:
        """`run`: the id of the run that the files are for; `methods` of compression there."""
        self.agent = agent
        self.meter = meter
        self.force = force
        self.run = run
        self.compressor = compression.Compressor(methods)
        self._unanswered: PendingAnswer | None = None  # whose data was sent
        self.sent = 0  # bytes on the wire
        self.conflicts: list[tuple[str, str]] = []
        self.not_removed: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.removed = 0
        self.left = 0  # on the host, of earlier syncs
        self.lost: list[Entry] = []  # could not be read any more

    # -- small files

    def blocks(self, blocks: Iterator[PackedBlock], need: int) -> None:
        """Send blocks, of which the last ends the sync or is followed by large files.

        They go in calls of a limited length; each is answered while the next one is on its way.
        """
        with contextlib.closing(prefetch(blocks, 4)) as prefetched:
            block = self._next(prefetched)
            while block is not None:
                reply = self.agent.ask(
                    "receive.put",
                    data=self._one_call(block, prefetched),
                    force=self.force,
                    need=need,
                    run=self.run,
                )
                self._settle()
                self._unanswered = reply
                need = 0  # checked once, before the first file
                block = self._next(prefetched)
        answer = self._settle()
        if "left" in answer:
            self.conflicts += map(tuple, answer["conflicts"])
            self.not_removed += map(tuple, answer["kept"])
            self.removed, self.left = answer["removed"], answer["left"]

    def _next(self, prefetched: Iterator[T]) -> T | None:
        """Return the next item, None at the end; meanwhile the link may be idle."""
        self.compressor.is_awaited = True
        item = next(prefetched, None)
        self.compressor.is_awaited = False
        return item

    def _settle(self) -> Any:
        """Wait for the answer of the call before, if it was not read yet, and return it."""
        reply, self._unanswered = self._unanswered, None
        if reply is None:
            return {}
        answer = reply.result()
        with answers.checked(self.agent.host):
            size = int(answer["arrived"])
            if size:
                self.compressor.measured(size, float(answer["waited"]), float(answer["took"]))
        return answer

    def _one_call(
        self, first_block: PackedBlock, remaining: Iterator[PackedBlock]
    ) -> Iterator[bytes]:
        sent, count, block = 0, 0, first_block  # type: int, int, PackedBlock | None
        while block is not None:
            step = _SLICE if block.is_trial else len(block.data)
            for start in range(0, len(block.data), step):
                yield block.data[start : start + step]
            self.meter.add(block.size)
            sent, count = sent + len(block.data), count + 1
            if count == _AHEAD:
                self._settle()
            block = self._next(remaining) if sent < CALL and not block.is_trial else None
        self.sent += sent

    def pack(self, items: Iterable[Entry]) -> Iterator[PackedBlock]:
        """Yield blocks of small files; compressed files are not compressed again."""
        text, dense = _BlockBuilder(), _BlockBuilder()
        is_measured = False
        for item in items:
            content = self._read(item)
            if content is None:
                continue
            block = dense if _is_dense(content.data) else text
            block.add(item, content.data)
            if block.size >= (BLOCK if is_measured else TRIAL):
                yield block.build(self._method(block is dense), is_trial=not is_measured)
                is_measured = True
        for block in (text, dense):
            if block.rows:
                yield block.build(self._method(block is dense))

    def _method(self, is_dense: bool) -> Callable[[bytes], tuple[bytes, bytes]]:
        return _store if is_dense else self.compressor.compress

    def _read(self, item: Entry) -> file_hashes.FileContent | None:
        try:
            content = file_hashes.read(item)
        except OSError as e:
            self._skip_unreadable(item, e.strerror)
            return None
        if not content.unchanged:
            self.notes.append(
                f"{item.path}: changed while it was read, twice: the last state was sent"
            )
        file_hashes.store_hash(item, content)
        return content

    def _skip_unreadable(self, item: Entry, reason: object) -> None:
        self.lost.append(item)
        self.notes.append(f"{item.path}: {reason}: not sent")

    # -- large files

    def large(self, item: Entry) -> None:
        """Send one file; resume an interrupted transfer."""
        for turn in range(_ATTEMPTS):
            try:
                unchanged = self._large(item, restart=turn > 0)
            except _ReadError as e:
                self._skip_unreadable(item, e)
                return
            if unchanged:
                return
        self.notes.append(f"{item.path}: changed while it was sent, twice: not sent")
        self.lost.append(item)

    def _large(self, item: Entry, *, restart: bool) -> bool:
        """Send a file; return False if it changed meanwhile or arrived damaged."""
        with _open(item) as file:
            previous = os.fstat(file.fileno())
            item.size = previous.st_size
            hasher = hashlib.sha256()
            offset = 0 if restart else self._resume(item, file, hasher)
            if offset == 0:  # nothing there, or the beginning of something else
                hasher = hashlib.sha256()
                file.seek(0)
                if self._prefix(item, restart=True) is None:
                    return True
            elif offset < 0:
                return True
            self.meter.skip(offset)
            remaining = item.size - offset
            self.compressor.restart()  # what was read ahead of a file that has changed is not sent
            extents = self._extents(_read_hashed(file, hasher, remaining))
            with contextlib.closing(prefetch(extents, 4)) as prefetched:
                self._receive(item, prefetched, remaining)
            after = os.fstat(file.fileno())
        if (previous.st_size, previous.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            return False
        item.hash = hasher.hexdigest()
        answer = self.agent.call(
            "receive.commit", path=item.path, hash=item.hash, mode=item.mode, force=self.force
        )
        self.conflicts += map(tuple, answer.get("conflicts", ()))
        return bool(answer.get("same", True))

    def _extents(self, pieces: Iterator[bytes]) -> Iterator[PackedExtent]:
        """Yield the pieces of a large file in their wire format."""
        for data in pieces:
            kind, packed = self._method(_is_dense(data))(data)
            yield PackedExtent(transfer_blocks.HEAD.pack(kind, len(packed)), packed, len(data))

    def _receive(self, item: Entry, extents: Iterator[PackedExtent], size: int) -> None:
        """Send the remainder. The host writes the data of a call while the next one is sent."""
        while size:
            # a short one measures the rate of the link
            count = min(LARGE_CALL if self.compressor.rate else CHUNK, size)
            data = self._pieces(extents, count)
            reply = self.agent.ask("receive.receive", data=data, path=item.path)
            self._settle()
            self._unanswered, size = reply, size - count
        self._settle()

    def _resume(self, item: Entry, file: Any, hasher: Any) -> int:
        """Return the length of the identical prefix on the host: 0 for none, -1 for a conflict."""
        stream = self._prefix(item, restart=False)
        if stream is None:
            return -1
        offset, matches = 0, True
        for mark in stream:
            (checked_length,) = _MARK.unpack_from(mark)
            while matches and offset < checked_length:
                data = file.read(min(CHUNK, checked_length - offset))
                if not data:
                    break
                hasher.update(data)
                offset += len(data)
            matches = matches and offset == checked_length and hasher.digest() == mark[_MARK.size :]
        return offset if matches else 0

    def _prefix(self, item: Entry, *, restart: bool) -> list[bytes] | Iterator[bytes] | None:
        """Open the partial file of the host; return its marks, None for a conflict."""
        stream = self.agent.stream(
            "receive.prefix",
            path=item.path, size=item.size, step=_STEP, restart=restart, force=self.force,
        )  # fmt: skip
        try:
            first_mark = next(stream)
        except StopIteration as e:
            if "conflicts" in e.value:
                self.conflicts += map(tuple, e.value["conflicts"])
                return None
            return []
        return itertools.chain((first_mark,), stream)

    def _pieces(self, extents: Iterator[PackedExtent], size: int) -> Iterator[bytes]:
        count = 0
        while size:
            extent = self._next(extents)
            assert extent is not None  # noqa: S101 - for mypy
            yield extent.head
            yield extent.data
            size, count = size - extent.size, count + 1
            self.sent += len(extent.data)
            self.meter.add(extent.size)
            if count == _AHEAD:
                self._settle()


class _ReadError(Exception):
    """A local file cannot be read; the message is the reason."""


def _read_hashed(file: Any, hasher: Any, size: int) -> Iterator[bytes]:
    while size:
        try:
            data = file.read(min(CHUNK, size))
        except OSError as e:
            raise _ReadError(e.strerror) from e
        data = data or bytes(min(CHUNK, size))  # it got shorter: the size at the end will differ
        hasher.update(data)
        yield data
        size -= len(data)


def _open(item: Entry) -> Any:
    try:
        return open(item.local, "rb", buffering=0)
    except OSError as e:
        raise _ReadError(e.strerror) from e


class _BlockBuilder:
    """Collects the files of a block."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.contents: list[bytes] = []
        self.size = 0

    def add(self, item: Entry, data: bytes) -> None:
        self.rows.append([item.path, item.mode, item.hash, len(data)])
        self.contents.append(data)
        self.size += len(data)

    def build(
        self, method: Callable[[bytes], tuple[bytes, bytes]], *, is_trial: bool = False
    ) -> PackedBlock:
        """Return the block, compressed by a method, and start a new one."""
        body = transfer_blocks.body({"f": self.rows}, self.contents)
        packed = PackedBlock(transfer_blocks.frame(*method(body)), self.size, is_trial)
        self.rows, self.contents, self.size = [], [], 0
        return packed


def _store(data: bytes) -> tuple[bytes, bytes]:
    return compression.STORED, data


def _is_dense(data: bytes) -> bool:
    if len(data) < _SAMPLE_FROM:
        return False
    middle = len(data) // 2
    sample = data[middle : middle + _SAMPLE]
    return len(zlib.compress(sample, 1)) > _DENSE * len(sample)


def batches(items: list[Any], length: int) -> Iterator[list[Any]]:
    """Yield a list in parts of limited length."""
    for start in range(0, len(items), length):
        yield items[start : start + length]
