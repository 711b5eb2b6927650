"""Fetches files of a run or a working directory, from where an earlier try has got to.

A file that is here already is only replaced by one that begins with all that it holds (a log that
grew), unless `force` says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import ConfigError, HostError, Refused, RunError
from safelaunch.runtime.transfer import blocks
from safelaunch.runtime.units import quantity, transfer_size
from safelaunch.sync import transfer_progress
from safelaunch.sync.sender import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.sync.sender import Agent
    from safelaunch.sync.transfer_progress import Progress

SMALL = 1 << 18  # bytes up to which files come together
_BATCH = 8 << 20
_TRIES = 2
_PIECE = 1 << 20
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_WINDOWS = re.compile(
    r'[<>:"\\|?*\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)', re.IGNORECASE
)


class File(NamedTuple):
    """A file on the host: `name` is its place below `into`."""

    name: str
    path: str
    size: int
    mtime: int
    mode: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull did."""

    into: str
    files: tuple[str, ...]  # that matched
    fetched: int
    size: int  # bytes that were fetched
    seconds: float
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return what people want to know of it, a line each."""
        how = f"{transfer_size(self.size)} in {self.seconds:.1f} s"
        said = f"fetched {quantity(self.fetched, 'file')} ({how}) into {self.into}"
        same = len(self.files) - self.fetched
        if same:
            said += f"; {quantity(same, 'file')} {'was' if same == 1 else 'were'} up to date"
        return [said, *(f"note: {note}" for note in self.notes)]


def pull(
    agent: Agent,
    patterns: Sequence[str],
    into: str,
    progress: Callable[[Progress], None] | None = None,
    *,
    root: str | None = None,
    force: bool = False,
) -> Pulled:
    """Fetch the files that match, relative to `root` on the host or absolute.

    Raises ConfigError where nothing matches, Refused where other files would be overwritten,
    HostError, RunError where nothing can be written here.
    """
    begun = time.monotonic()
    data, answer = whole(agent.stream("send.find", root=root, patterns=list(patterns)))
    found = [File(*row) for row in blocks.read_rows(data)] if data else []
    pulling = _Pull(agent, into, list(answer["notes"]))
    files = pulling.placed(found)
    if not files:
        where = f"{agent.host}:{root}" if root else agent.host
        shown = ", ".join(f"`{pattern}`" for pattern in patterns)
        hint = "a glob is meant from that folder; `**/` stands for any folders below"
        raise ConfigError(f"no file matches {shown}", where=where, hint=hint)
    try:
        wanted = pulling.wanted(files, force=force)
        pulling.meter = transfer_progress.Meter(
            "fetching", sum(file.size for file in wanted), progress
        )
        pulling.fetch(wanted)
    except OSError as e:
        raise RunError(f"cannot be written: {e.strerror}", where=e.filename or into) from e
    return Pulled(
        into=into,
        files=tuple(file.name for file in files),
        fetched=len(wanted) - pulling.missed,
        size=pulling.size,
        seconds=time.monotonic() - begun,
        notes=tuple(pulling.notes),
    )


class _Pull:
    def __init__(self, agent: Agent, into: str, notes: list[str]) -> None:
        self.agent = agent
        self.into = into
        self.notes = notes
        self.meter = transfer_progress.Meter("", 0, None)
        self.size = 0
        self.missed = 0

    # -- which, and where to

    def placed(self, found: list[File]) -> list[File]:
        """Return those that this machine can hold under their names."""
        taken: dict[str, str] = {}
        files = []
        for file in found:
            if not _is_safe(file.name):
                self.notes.append(f"{file.path}: no name that can be used here: not fetched")
                continue
            name = file.name.lower() if os.name == "nt" else file.name
            if name in taken:
                said = f"{file.path}: would stand where {taken[name]} does: not fetched"
                self.notes.append(said)
                continue
            taken[name] = file.path
            files.append(file)
        return files

    def local(self, file: File) -> str:
        """Return where a file goes."""
        names = file.name.split("/")
        if os.name != "nt":
            names = [os.fsdecode(n.encode("utf-8", "surrogateescape")) for n in names]
        return os.path.join(self.into, *names)

    def wanted(self, files: list[File], *, force: bool) -> list[File]:
        """Return those that are not here as they are there. Raises Refused."""
        here = [
            (file, os.path.getsize(p)) for file in files if os.path.isfile(p := self.local(file))
        ]
        folders = [file.name for file in files if os.path.isdir(self.local(file))]
        if folders:
            raise Refused(
                f"a folder is in the way: {transfer_progress.some(folders)}", where=self.into
            )
        lengths = [(file, size, min(size, file.size)) for file, size in here]
        theirs: list[str | None] = []
        if lengths:
            asked = [[file.path, length] for file, _, length in lengths]
            theirs = self.agent.call("send.hashes", files=asked)["hashes"]
        same, other = set(), []
        for (file, size, length), hash_ in zip(lengths, theirs, strict=True):
            begins = _hash(self.local(file), length).hexdigest() == hash_
            if begins and size == file.size:
                same.add(file.name)
            elif begins and size < file.size:
                self._begin(file)
            else:
                other.append(file.name)
        if other and not force:
            raise Refused(
                f"not overwritten: {transfer_progress.some(other)}",
                where=self.into,
                hint="fetch into another folder, or --force",
            )
        return [file for file in files if file.name not in same]

    def _begin(self, file: File) -> None:
        """Let what is here be the beginning of what comes."""
        if file.size > SMALL and not os.path.exists(self._part(file)):
            shutil.copyfile(self.local(file), self._part(file))

    def _part(self, file: File) -> str:
        folder, name = os.path.split(self.local(file))
        digest = hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest()
        return os.path.join(folder, f".safelaunch-{digest}.part")

    # -- fetching

    def fetch(self, files: list[File]) -> None:
        """Fetch them all. Raises HostError, OSError."""
        for folder in {os.path.dirname(self.local(file)) for file in files}:
            os.makedirs(folder, exist_ok=True)
        batch: list[File] = []
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

    def _small(self, files: list[File]) -> None:
        asked = [[file.path, file.size] for file in files]
        stream = self.agent.stream("send.small", files=asked)
        for head, contents in blocks.unpack(stream):
            begin = 0
            for number, size in head.get("f", ()):
                file = files[number]
                with open(self._part(file), "wb") as part:
                    part.write(contents[begin : begin + size])
                self._finish(file)
                begin += size
                self.size += size
                self.meter.add(size)
            for number, why in head.get("bad", ()):
                self._miss(files[number], why)

    def _large(self, file: File) -> None:
        for _ in range(_TRIES):
            answer = self._once(file)
            if answer is None:
                return
            if (
                not answer["changed"]
                and _hash(self._part(file), None).hexdigest() == answer["hash"]
            ):
                self._finish(file)
                return
            os.unlink(self._part(file))
        self._miss(file, "changed while it was fetched, twice")

    def _once(self, file: File) -> Any:
        """Fetch what is missing of a part; None for a file that cannot be read there."""
        part = self._part(file)
        have = os.path.getsize(part) if os.path.exists(part) else 0
        have = min(have, file.size)
        begun = _hash(part, have).hexdigest() if have else ""
        stream = self.agent.stream("send.send", path=file.path, offset=have, hash=begun)
        try:
            offset = int(next(stream))
        except HostError as e:
            if getattr(e, "errno", None) is None:
                raise
            self._miss(file, e.message.removesuffix(f" ({getattr(e, 'path', None)})"))
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

    def _finish(self, file: File) -> None:
        part, local = self._part(file), self.local(file)
        if os.name != "nt" and file.mode & 0o111:
            os.chmod(part, os.stat(part).st_mode | 0o100)
        with contextlib.suppress(OSError):
            os.utime(part, ns=(file.mtime, file.mtime))
        os.replace(part, local)

    def _miss(self, file: File, why: str) -> None:
        self.missed += 1
        self.notes.append(f"{file.path}: {why}: not fetched")


def _is_safe(name: str) -> bool:
    names = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in names):
        return False
    return os.name != "nt" or not any(_WINDOWS.search(part) for part in names)


def _hash(path: str, length: int | None) -> Any:
    """Return the hash of a file's first bytes, or of all."""
    found = hashlib.sha256()
    left = length
    with open(path, "rb", buffering=0) as file:
        while left is None or left:
            data = file.read(_PIECE if left is None else min(_PIECE, left))
            if not data:
                break
            found.update(data)
            left = None if left is None else left - len(data)
    return found
