"""The files of claims: in one folder of the machine for all its users, each locked by its owner.

The folder itself is the lock under which claims are compared and changed; both locks end with the
process that has them. A file's name has its order: `wait.PRIORITY.NUMBER.RUN.NODE` of a run in the
queue, `have.PRIORITY.NUMBER.RUN.NODE` once it has cards, so that a waiter opens the files only of
those before it. Files of other users are opened to read, never followed, and never written.
"""

# ruff: noqa: PLC0415 - fcntl is missing on Windows, where a client imports this module

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import time
from typing import NamedTuple

from safelaunch.runtime.card_claims import FOLDER, VARIABLE
from safelaunch.runtime.records import CardClaim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 4096  # bytes of a claim, blanks included: written in place, also where the disk is full
MOST = 5000  # files that are looked at
_NAME = re.compile(r"(wait|have)\.(\d{4})\.(\d{9})\.([A-Za-z0-9][A-Za-z0-9_-]{0,99})\.(\d{1,4})")
_SHARED = 0o1777
_PAUSE = 0.002  # seconds between two tries to lock


class FolderBusyError(OSError):
    """Another process has the folder locked; nothing was changed."""


class ClaimFile(NamedTuple):
    """A claim, as its file's name has it."""

    name: str
    is_waiting: bool
    priority: int
    number: int  # order among those of one priority
    run: str
    node: int


class Claim(NamedTuple):
    """The claim of a process that lives."""

    file: ClaimFile
    uid: int  # of its owner, as the kernel has it
    record: CardClaim


@contextlib.contextmanager
def open_folder(path: str, *, create: bool = True) -> Iterator[int]:
    """Yield a descriptor of the folder. Raises OSError where it is none that users can share."""
    if create:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags)
    try:
        status = os.fstat(fd)
        is_own = status.st_uid == os.geteuid()
        if is_own and path == FOLDER and stat.S_IMODE(status.st_mode) != _SHARED:
            os.fchmod(fd, _SHARED)  # mkdir obeys the umask
            status = os.fstat(fd)
        is_shared = bool(status.st_mode & stat.S_ISVTX) or not status.st_mode & 0o022
        if not is_shared or not (is_own or status.st_mode & 0o002):
            what = "is not a folder that all users may write to (chmod 1777)"
            raise OSError(
                errno.EPERM, f"{what}; remove it, or name another one in {VARIABLE}", path
            )
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def locked_folder(path: str, patience: float) -> Iterator[int]:
    """Yield a descriptor of the folder, locked: no claim changes meanwhile.

    Raises FolderBusyError where another process has it for longer, and OSError.
    """
    with open_folder(path) as fd:
        until = time.monotonic() + patience
        while not try_lock(fd):
            if time.monotonic() > until:
                raise FolderBusyError(errno.EAGAIN, "another start is looking for cards", path)
            time.sleep(_PAUSE)
        yield fd


def try_lock(fd: int) -> bool:
    """Lock an open file for this process alone; False where another one has it. Raises OSError."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def files(folder: int) -> list[ClaimFile]:
    """Return the files of claims, also of owners that are gone, in the order of the queue."""
    result = []
    for name in sorted(os.listdir(folder))[:MOST]:
        match = _NAME.fullmatch(name)
        if match:
            kind, rank, number, run, node = match.groups()
            priority = 1000 - int(rank)
            result.append(ClaimFile(name, kind == "wait", priority, int(number), run, int(node)))
    return result


def read(folder: int, file: ClaimFile, *, sweep: bool = False) -> Claim | None:
    """Return the claim of a file whose owner lives, else None, and with `sweep` remove the file.

    A file gets its name once it is locked: without a lock its owner is gone for good.

    Raises OSError for a fault of the system.
    """
    import fcntl

    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(file.name, flags, dir_fd=folder)
    except OSError as e:
        if e.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO):
            raise
        return None  # gone, a link, or of a user who hides it
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return Claim(file, status.st_uid, _record(os.pread(fd, SIZE, 0)))
        if sweep:
            with contextlib.suppress(OSError):  # of another user: his next start removes it
                os.unlink(file.name, dir_fd=folder)
        return None
    finally:
        os.close(fd)


def _record(data: bytes) -> CardClaim:
    try:
        values = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        values = None
    return CardClaim.from_json(values if isinstance(values, dict) else {})


def live(path: str, *, with_queue: bool = True) -> list[Claim]:
    """Return the claims of all processes that live; none where there is no folder."""
    try:
        with open_folder(path, create=False) as fd:
            listed = [file for file in files(fd) if with_queue or not file.is_waiting]
            claims = (read(fd, file) for file in listed)
            return [claim for claim in claims if claim is not None]
    except FileNotFoundError:
        return []


class OwnClaim:
    """The claim of this process: its file, locked until `close` or the end of the process."""

    def __init__(self, path: str, fd: int, name: str, record: CardClaim) -> None:
        self.path = path
        self.fd = fd
        self.name = name
        self.record = record

    @property
    def file(self) -> ClaimFile:
        """The claim by its file's name."""
        kind, rank, number, run, node = self.name.split(".")
        priority = 1000 - int(rank)
        return ClaimFile(self.name, kind == "wait", priority, int(number), run, int(node))

    def is_there(self, folder: int) -> bool:
        """Whether the file is still where others look for it."""
        try:
            status = os.stat(self.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(status, os.fstat(self.fd))

    def write(self) -> None:
        """Write the record anew. Raises OSError."""
        os.pwrite(self.fd, _padded(self.record), 0)

    def assign(self, folder: int, cards: list[str], words: list[str]) -> None:
        """Say that it has these cards. The folder is locked. Raises OSError, with none taken."""
        self.record.cards, self.record.words = cards, words
        self.record.since = time.time()
        self.write()
        name = self.name.replace("wait", "have", 1)
        os.rename(self.name, name, src_dir_fd=folder, dst_dir_fd=folder)
        self.name = name

    def close(self) -> None:
        """End the claim."""
        if self.fd < 0:
            return
        with contextlib.suppress(OSError), open_folder(self.path, create=False) as folder:
            if self.is_there(folder):
                os.unlink(self.name, dir_fd=folder)
        os.close(self.fd)
        self.fd = -1


def _padded(record: CardClaim) -> bytes:
    data = json.dumps(record.to_json()).encode()
    if len(data) > SIZE:
        raise OSError(errno.EFBIG, "too many cards for one claim")
    return data.ljust(SIZE)


def create(
    path: str, folder: int, record: CardClaim, priority: int = 0, *, is_waiting: bool
) -> OwnClaim:
    """Return a new claim, behind those of its priority that are there. The folder is locked.

    Others see the file only once it is locked and complete. Raises OSError, with nothing left.
    """
    number = max((file.number for file in files(folder)), default=0) + 1
    kind, rank = "wait" if is_waiting else "have", 1000 - priority
    name = f"{kind}.{rank:04d}.{number:09d}.{record.run}.{record.node}"
    temporary = f"new.{os.getpid()}.{os.urandom(6).hex()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o644, dir_fd=folder)
    try:
        os.fchmod(fd, 0o644)  # all users see who has a card, whatever the umask
        try_lock(fd)  # nobody else knows the file
        os.pwrite(fd, _padded(record), 0)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        os.close(fd)
        raise
    return OwnClaim(path, fd, name, record)
