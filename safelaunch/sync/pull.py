"""Fetch files of a run or a working directory, and resume interrupted transfers.

A local file is only replaced by a file that begins with the same content (a log that grew), unless
`force` is set.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sys
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import ConfigError, HostError, Refused, RunError
from safelaunch.runtime.transfer import blocks
from safelaunch.runtime.units import quantity, transfer_size
from safelaunch.sync import transfer_progress
from safelaunch.sync.sender import read_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.sync.sender import AgentCalls
    from safelaunch.sync.transfer_progress import TransferProgress

SMALL = 1 << 18  # bytes up to which files come together
_BATCH = 8 << 20
_ATTEMPTS = 2
_CHUNK = 1 << 20
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_WINDOWS_UNSAFE = re.compile(
    r'[<>:"\\|?*\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)', re.IGNORECASE
)


class RemoteFile(NamedTuple):
    """A file on the host; `name` is its relative path below `into`."""

    name: str
    path: str
    size: int
    mtime: int
    mode: int


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
        return [message, *(f"note: {note}" for note in self.notes)]


def pull(
    agent: AgentCalls,
    patterns: Sequence[str],
    into: str,
    progress: Callable[[TransferProgress], None] | None = None,
    *,
    root: str | None = None,
    force: bool = False,
) -> PullSummary:
    """Fetch the files that match, relative to `root` on the host or absolute.

    Raises ConfigError if nothing matches, Refused if other files would be overwritten, HostError,
    RunError if a local file cannot be written.
    """
    start_time = time.monotonic()
    data, answer = read_all(agent.stream("send.find", root=root, patterns=list(patterns)))
    remote_files = [RemoteFile(*row) for row in blocks.read_rows(data)] if data else []
    pulling = _Pull(agent, into, list(answer["notes"]))
    files = pulling.with_valid_names(remote_files)
    if not files:
        where = f"{agent.host}:{root}" if root else agent.host
        shown = ", ".join(f"`{pattern}`" for pattern in patterns)
        hint = "a glob is relative to that folder; `**/` matches folders of any depth"
        raise ConfigError(f"no file matches {shown}", where=where, hint=hint)
    try:
        files_to_fetch = pulling.files_to_fetch(files, force=force)
        total = sum(file.size for file in files_to_fetch)
        pulling.meter = transfer_progress.Meter("fetching", total, progress)
        pulling.fetch(files_to_fetch)
    except OSError as e:
        raise RunError(f"cannot be written: {e.strerror}", where=e.filename or into) from e
    return PullSummary(
        into=into,
        files=tuple(file.name for file in files),
        fetched=len(files_to_fetch) - pulling.failed,
        size=pulling.size,
        seconds=time.monotonic() - start_time,
        notes=tuple(pulling.notes),
    )


class _Pull:
    def __init__(self, agent: AgentCalls, into: str, notes: list[str]) -> None:
        self.agent = agent
        self.into = into
        self.notes = notes
        self.meter = transfer_progress.Meter("", 0, None)
        self.size = 0
        self.failed = 0

    # -- which, and where to

    def with_valid_names(self, remote_files: list[RemoteFile]) -> list[RemoteFile]:
        """Return the files whose names are valid and unique on this machine."""
        taken: dict[str, str] = {}
        files = []
        for file in remote_files:
            name = file.name.lower() if os.name == "nt" else file.name
            if not _is_safe(file.name):
                problem = "not a valid file name on this machine"
            elif name in taken:
                problem = f"has the same local name as {taken[name]}"
            else:
                taken[name] = file.path
                files.append(file)
                continue
            self.notes.append(f"{file.path}: {problem}: not fetched")
        return files

    def local(self, file: RemoteFile) -> str:
        """Return the local path of a file."""
        names = file.name.split("/")
        if os.name != "nt":
            names = [os.fsdecode(n.encode("utf-8", "surrogateescape")) for n in names]
        return os.path.join(self.into, *names)

    def files_to_fetch(self, files: list[RemoteFile], *, force: bool) -> list[RemoteFile]:
        """Return the files that are missing or different locally. Raises Refused."""
        folders = [file.name for file in files if os.path.isdir(self.local(file))]
        if folders:
            names = transfer_progress.join_some(folders)
            raise Refused(f"a folder is in the way: {names}", where=self.into)
        existing = [
            (file, os.path.getsize(p)) for file in files if os.path.isfile(p := self.local(file))
        ]
        remote_hashes: list[str | None] = []
        if existing:
            requests = [[file.path, min(size, file.size)] for file, size in existing]
            remote_hashes = self.agent.call("send.hashes", files=requests)["hashes"]
        identical, conflicting = set(), []
        for (file, size), hash_ in zip(existing, remote_hashes, strict=True):
            is_prefix = _hash(self.local(file), min(size, file.size)) == hash_
            if is_prefix and size == file.size:
                identical.add(file.name)
            elif is_prefix and size < file.size:
                self._seed_part(file)
            else:
                conflicting.append(file.name)
        if conflicting and not force:
            raise Refused(
                f"not overwritten: {transfer_progress.join_some(conflicting)}",
                where=self.into,
                hint="fetch into another folder, or --force",
            )
        return [file for file in files if file.name not in identical]

    def _seed_part(self, file: RemoteFile) -> None:
        """Copy the local file to the partial file, to fetch only the remainder."""
        if file.size > SMALL and not os.path.exists(self._part(file)):
            shutil.copyfile(self.local(file), self._part(file))

    def _part(self, file: RemoteFile) -> str:
        folder, name = os.path.split(self.local(file))
        digest = hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest()
        return os.path.join(folder, f".safelaunch-{digest}.part")

    # -- fetching

    def fetch(self, files: list[RemoteFile]) -> None:
        """Fetch them all. Raises HostError, OSError."""
        for folder in {os.path.dirname(self.local(file)) for file in files}:
            os.makedirs(folder, exist_ok=True)
        batch: list[RemoteFile] = []
        for file in files:
            if file.size > SMALL:
                self._large(file)
                continue
            batch.append(file)
            if sum(f.size for f in batch) >= _BATCH:
                self._small(batch)
                batch = []
        if batch:
            self._small(batch)

    def _small(self, files: list[RemoteFile]) -> None:
        requests = [[file.path, file.size] for file in files]
        stream = self.agent.stream("send.small", files=requests)
        for head, contents in blocks.unpack(stream):
            position = 0
            for number, size in head.get("f", ()):
                file = files[number]
                with open(self._part(file), "wb") as part:
                    part.write(contents[position : position + size])
                self._finish(file)
                position += size
                self.size += size
                self.meter.add(size)
            for number, reason in head.get("bad", ()):
                self._fail(files[number], reason)

    def _large(self, file: RemoteFile) -> None:
        for _ in range(_ATTEMPTS):
            answer = self._fetch_part(file)
            if answer is None:
                return
            if not answer["changed"] and _hash(self._part(file), None) == answer["hash"]:
                self._finish(file)
                return
            os.unlink(self._part(file))
        self._fail(file, "changed while it was fetched, twice")

    def _fetch_part(self, file: RemoteFile) -> Any:
        """Fetch the remainder of a partial file; None if the host cannot read the file."""
        part = self._part(file)
        local_size = min(os.path.getsize(part), file.size) if os.path.exists(part) else 0
        prefix_hash = _hash(part, local_size) if local_size else ""
        stream = self.agent.stream("send.send", path=file.path, offset=local_size, hash=prefix_hash)
        try:
            offset = int(next(stream))
        except HostError as e:
            if getattr(e, "errno", None) is None:
                raise
            self._fail(file, e.message.removesuffix(f" ({getattr(e, 'path', None)})"))
            return None
        self.meter.skip(offset)
        with open(part, "r+b" if offset else "wb") as out:
            out.truncate(offset)
            out.seek(offset)
            while True:
                try:
                    piece = next(stream)
                except StopIteration as e:
                    return e.value
                data = memoryview(piece)[1:]
                if piece[:1] == blocks.DEFLATED:
                    data = memoryview(zlib.decompress(data))
                out.write(data)
                self.size += len(data)
                self.meter.add(len(data))

    def _finish(self, file: RemoteFile) -> None:
        part, local = self._part(file), self.local(file)
        if os.name != "nt" and file.mode & 0o111:
            os.chmod(part, os.stat(part).st_mode | 0o100)
        with contextlib.suppress(OSError):
            os.utime(part, ns=(file.mtime, file.mtime))
        os.replace(part, local)

    def _fail(self, file: RemoteFile, reason: str) -> None:
        self.failed += 1
        self.notes.append(f"{file.path}: {reason}: not fetched")


def _is_safe(name: str) -> bool:
    names = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in names):
        return False
    return os.name != "nt" or not any(_WINDOWS_UNSAFE.search(part) for part in names)


def _hash(path: str, length: int | None) -> str:
    """Return the hash of a file's first bytes, or of all."""
    hasher = hashlib.sha256()
    remaining = sys.maxsize if length is None else length
    with open(path, "rb", buffering=0) as file:
        while data := file.read(min(_CHUNK, remaining)):
            hasher.update(data)
            remaining -= len(data)
    return hasher.hexdigest()
