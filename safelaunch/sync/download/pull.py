"""Fetch files of a run or a working directory, and resume interrupted transfers.

The host is not trusted: what it lists is matched against the patterns here, nothing is written
outside the destination or through a link, and no file becomes executable. A local file is only
replaced by a file that begins with the same content (a log that grew), unless `force` is set.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safelaunch.errors import ConfigError, HostError, Refused, RunError
from safelaunch.runtime.plain_text import clipped, printable
from safelaunch.runtime.transfer import blocks
from safelaunch.runtime.units import quantity, transfer_size
from safelaunch.sync import answers, transfer_progress
from safelaunch.sync.answers import bad_answer, checked
from safelaunch.sync.download import listing
from safelaunch.sync.download.folder import DownloadFolder
from safelaunch.sync.download.listing import RemotePattern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.sync.download.listing import RemoteFile
    from safelaunch.sync.sender import AgentCalls
    from safelaunch.sync.transfer_progress import TransferProgress

SMALL = 1 << 18  # bytes up to which files come together
_BATCH = 8 << 20
_BATCH_FILES = 10_000  # of a request
_ATTEMPTS = 2
_MAX_NOTES = 20  # that are shown


@dataclass(frozen=True, slots=True)
class PullSummary:
    """The result of a pull."""

    into: str
    files: tuple[str, ...]  # that matched
    fetched: int
    size: int  # bytes that were fetched
    seconds: float
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return the lines of output."""
        how = f"{transfer_size(self.size)} in {self.seconds:.1f} s"
        message = f"fetched {quantity(self.fetched, 'file')} ({how}) into {self.into}"
        if identical := len(self.files) - self.fetched:
            verb = "was" if identical == 1 else "were"
            message += f"; {quantity(identical, 'file')} {verb} up to date"
        shown = [f"note: {clipped(note)}" for note in self.notes[:_MAX_NOTES]]
        more = len(self.notes) - len(shown)
        return [message, *shown, *([f"note: and {more:,} more"] if more else [])]


def pull(
    agent: AgentCalls,
    patterns: Sequence[str],
    into: str,
    progress: Callable[[TransferProgress], None] | None = None,
    *,
    root: str | None = None,
    fallback: str | None = None,
    force: bool = False,
) -> PullSummary:
    """Fetch the files that match, relative to `root` on the host, to `fallback`, or absolute.

    Raises ConfigError if nothing matches, Refused if other files would be overwritten, HostError,
    RunError if a local file cannot be written.
    """
    start_time = time.monotonic()
    requested = [RemotePattern.parse(pattern, root) for pattern in patterns]
    moved = [root, fallback] if root and fallback and root != fallback else None
    stream = agent.stream("send.find", patterns=list(map(list, requested)), moved=moved)
    rows, answer = answers.read_rows(agent.host, stream)
    with checked(agent.host):
        notes = [printable(str(note)) for note in answer["notes"]]
        files = listing.read(rows, requested, notes)
    del rows
    if not files:
        where = f"{agent.host}:{root}" if root else agent.host
        shown = ", ".join(f"`{pattern}`" for pattern in patterns)
        hint = "a glob is relative to that folder; `**/` matches folders of any depth"
        if notes:
            hint = notes[0]
        raise ConfigError(f"no file matches {shown}", where=where, hint=hint)
    destination = DownloadFolder(into)
    pulling = _Pull(agent, destination, notes)
    try:
        files_to_fetch = pulling.files_to_fetch(files, force=force)
        total = sum(file.size for file in files_to_fetch)
        pulling.check_space(files_to_fetch)
        pulling.meter = transfer_progress.Meter("fetching", total, progress)
        pulling.fetch(files_to_fetch)
    except OSError as e:
        name = os.fsdecode(e.filename) if e.filename else into
        raise RunError(f"cannot be written: {e.strerror}", where=name) from e
    finally:
        destination.close()
    return PullSummary(
        into=into,
        files=tuple(file.name for file in files),
        fetched=len(files_to_fetch) - pulling.failed,
        size=pulling.size,
        seconds=time.monotonic() - start_time,
        notes=tuple(pulling.notes),
    )


class _Pull:
    def __init__(self, agent: AgentCalls, destination: DownloadFolder, notes: list[str]) -> None:
        self.agent = agent
        self.destination = destination
        self.notes = notes
        self.meter = transfer_progress.Meter("", 0, None)
        self.size = 0
        self.failed = 0

    # -- which

    def files_to_fetch(self, files: Sequence[RemoteFile], *, force: bool) -> list[RemoteFile]:
        """Return the files that are missing or different locally. Raises Refused, OSError."""
        into = self.destination.path
        existing, conflicting = self._existing(files)
        identical = set()
        for (file, size), hash_ in zip(existing, self._remote_hashes(existing), strict=True):
            is_prefix = self.destination.hash(file.name, min(size, file.size)) == hash_
            if is_prefix and size == file.size:
                identical.add(file.name)
            elif is_prefix and size < file.size:
                self._seed_part(file)
            else:
                conflicting.append(file.name)
        if conflicting and not force:
            raise Refused(
                f"not overwritten: {transfer_progress.join_some(conflicting)}",
                where=into,
                hint="fetch into another folder, or --force",
            )
        return [file for file in files if file.name not in identical]

    def _existing(
        self, files: Sequence[RemoteFile]
    ) -> tuple[list[tuple[RemoteFile, int]], list[str]]:
        """Return the files that exist here with their sizes, and names of what is no file."""
        existing, blocking, others = [], [], []
        for file in files:
            try:
                info = self.destination.lookup(file.name)
            except NotADirectoryError:
                blocking.append(file.name)
                continue
            if info is None:
                continue
            if stat.S_ISDIR(info.st_mode):
                blocking.append(file.name)
            elif stat.S_ISREG(info.st_mode):
                existing.append((file, info.st_size))
            else:
                others.append(file.name)
        if blocking:
            names = transfer_progress.join_some(blocking)
            raise Refused(
                f"a folder, or a link in the path, is in the way: {names}",
                where=self.destination.path,
                hint="fetch into another folder: nothing is written through a link",
            )
        return existing, others

    def _remote_hashes(self, existing: Sequence[tuple[RemoteFile, int]]) -> list[Any]:
        """Return the host's hash of as many bytes of each file as both sides have."""
        requests = [[file.path, min(size, file.size)] for file, size in existing]
        hashes: list[Any] = []
        for start in range(0, len(requests), _BATCH_FILES):
            batch = requests[start : start + _BATCH_FILES]
            answer = self.agent.call("send.hashes", files=batch)["hashes"]
            if not isinstance(answer, list) or len(answer) != len(batch):
                raise bad_answer(self.agent.host, "another number of hashes")
            hashes += answer
        return hashes

    def check_space(self, files: Sequence[RemoteFile]) -> None:
        """Raise RunError where the disk has no room: a host may also state a wrong size."""
        parts = [self.destination.lookup(_part(file)) for file in files if file.size > SMALL]
        present = sum(part.st_size for part in parts if part is not None)
        missing, free = sum(file.size for file in files) - present, self.destination.free_space()
        if missing > free:
            raise RunError(
                f"the disk is too full: {transfer_size(missing)} to come, "
                f"{transfer_size(free)} free",
                where=self.destination.path,
                hint="fetch into a folder on another disk, or fewer files",
            )

    def _seed_part(self, file: RemoteFile) -> None:
        """Copy the local file to the partial file, to fetch only the remainder."""
        part = _part(file)
        if file.size > SMALL and self.destination.lookup(part) is None:
            self.destination.copy(file.name, part)

    # -- fetching

    def fetch(self, files: Sequence[RemoteFile]) -> None:
        """Fetch them all. Raises HostError, OSError."""
        previous = None
        batch: list[RemoteFile] = []
        size = 0
        for file in files:
            folder = file.name.rpartition("/")[0]
            if folder != previous:
                self.destination.make_folders(file.name)
                previous = folder
            if file.size > SMALL:
                self._large(file)
                continue
            batch.append(file)
            size += file.size
            if size >= _BATCH or len(batch) >= _BATCH_FILES:
                self._small(batch)
                batch, size = [], 0
        if batch:
            self._small(batch)

    def _small(self, files: Sequence[RemoteFile]) -> None:
        requests = [[file.path, file.size] for file in files]
        stream = self.agent.stream("send.small", files=requests)
        missing = dict(enumerate(files))
        with checked(self.agent.host):
            for head, contents in blocks.unpack(stream, answers.MAX_BLOCK):
                position = 0
                for number, size in head.get("f", ()):
                    file = missing.pop(number)
                    if not 0 <= size <= min(file.size, len(contents) - position):
                        raise bad_answer(self.agent.host, f"{size} bytes of {file.name}")
                    with self.destination.open(_part(file)) as part:
                        part.write(contents[position : position + size])
                    self._finish(file)
                    position += size
                    self.size += size
                    self.meter.add(size)
                for number, reason in head.get("bad", ()):
                    self._fail(missing.pop(number), str(reason))
        for file in missing.values():
            self._fail(file, "the host did not send it")

    def _large(self, file: RemoteFile) -> None:
        for _ in range(_ATTEMPTS):
            answer = self._fetch_part(file)
            if answer is None:
                return
            is_whole = not answer["changed"]
            if is_whole and self.destination.hash(_part(file)) == answer["hash"]:
                self._finish(file)
                return
            self.destination.remove(_part(file))
        self._fail(file, "changed while it was fetched, twice")

    def _fetch_part(self, file: RemoteFile) -> Any:
        """Fetch the remainder of a partial file; None if the host cannot read the file."""
        part = _part(file)
        info = self.destination.lookup(part)
        local_size = min(info.st_size, file.size) if info is not None else 0
        prefix_hash = self.destination.hash(part, local_size) if local_size else ""
        stream = self.agent.stream(
            "send.send", path=file.path, offset=local_size, hash=prefix_hash, size=file.size
        )
        try:
            with checked(self.agent.host):
                offset = int(next(stream, b""))
        except HostError as e:
            if getattr(e, "errno", None) is None:
                raise
            self._fail(file, e.message.removesuffix(f" ({getattr(e, 'path', None)})"))
            return None
        if offset not in (0, local_size):
            raise bad_answer(self.agent.host, f"{file.name} from byte {offset} on")
        self.meter.skip(offset)
        with self.destination.open(part, resume=offset > 0) as out:
            out.truncate(offset)
            out.seek(offset)
            position = offset
            while True:
                try:
                    piece = next(stream)
                except StopIteration as e:
                    return e.value
                with checked(self.agent.host):
                    data = blocks.piece_data(piece)
                position += len(data)
                if position > file.size:
                    raise bad_answer(self.agent.host, f"{file.name} is longer than it said")
                out.write(data)
                self.size += len(data)
                self.meter.add(len(data))

    def _finish(self, file: RemoteFile) -> None:
        self.destination.rename(_part(file), file.name, file.mtime)

    def _fail(self, file: RemoteFile, reason: str) -> None:
        self.failed += 1
        self.notes.append(f"{file.shown}: {printable(reason)}: not fetched")


def _part(file: RemoteFile) -> str:
    """Return the path of a partial file, in the folder of the file."""
    folder, _, name = file.name.rpartition("/")
    encoded = name.encode("utf-8", "surrogateescape")
    part = f".safelaunch-{hashlib.blake2b(encoded, digest_size=8).hexdigest()}.part"
    return f"{folder}/{part}" if folder else part
