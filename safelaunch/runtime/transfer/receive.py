"""The host's side of a sync: reports what exists, and replaces files atomically.

A sync is `compare`, `stat_paths` for paths that no earlier sync wrote, `put` and, for large files,
`prefix`, `receive`, `commit`; then `put` with `finish`. `list_target` before it does the most of
`compare` while the client reads its own files. `branch` instead gives a run a tree of its own, and
the next `compare` is of that. The state between these calls is kept in the agent that serves them.
Nothing is written outside the target, and no link is followed in it.

A row is [path, kind, mode, content, size, state]; kinds as in manifest.Entry; states: "" as it was
written, "c" changed since (the content is the present one), "g" removed, "b" below a file or link.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import time

from safelaunch.runtime.transfer import (
    blocks,
    compression,
    living_runs,
    manifest,
    run_trees,
    safe_paths,
)
from safelaunch.runtime.transfer import session as transfer_session
from safelaunch.runtime.units import transfer_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from safelaunch.runtime.agent.wire import Link


_MARK = struct.Struct(">Q")
_OPENS = ("target", "owner", "force")  # the words of a request that say what is opened, and how
_sessions: list[transfer_session.Session] = []  # at most one


def _session() -> transfer_session.Session:
    if not _sessions or _sessions[0].result.failed:
        raise OSError(errno.EINVAL, "no sync is going on")
    _sessions[0].lock.refresh()
    return _sessions[0]


def release(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """End the present sync, if any; with `run` as the files that this run starts with."""
    del link
    while _sessions:
        session = _sessions.pop()
        try:
            if request.get("run"):
                session.own()
                living_runs.reserve(session.target, str(request["run"]))
        finally:
            session.close()
    return {}


def list_target(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Lock the target of a sync and read what is there: the next `compare` of it needs not.

    Sent while the client reads its own side. `busy` in the answer is that of `compare`.
    """
    release({}, link)
    owner = str(request.get("owner") or "")
    try:
        session = transfer_session.Session(
            request["target"],
            take_over=bool(request.get("take_over")),
            owner=owner,
            force=bool(request.get("force")),
        )
    except manifest.Busy as e:
        return {"busy": e.idle}
    _sessions.append(session)
    if owner:
        run_trees.settle_ended(session.target)
    session.list_rows({name: request.get(name) for name in _OPENS})
    return {}


def compare(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Start a sync: answer that the tree matches `digest`, or send rows of the recorded paths.

    `busy` in the answer: another sync is running, and last wrote so many seconds ago. With `owner`
    the target is a project's place: another checkout's gets a `suffix`, and `living` are the runs
    that use it.
    """
    words = {name: request.get(name) for name in _OPENS}
    if not _sessions or not _sessions[0].serves(words):
        busy = list_target(request, link)
        if busy:
            return busy
    session = _sessions[0]
    rows, session.listing = session.listing or [], None
    record, digest, left = session.manifest, request.get("digest"), session.manifest.leftover
    same = bool(digest) and digest == record.digest and not session.fresh
    same = same and not (left and request.get("delete"))
    same = same and not any(row[5] for row in rows if row[0] not in left)
    answer = {
        "target": safe_paths.decode(session.target),
        "same": same,
        "left": record.count_left(),
        "digest": record.digest,
        "fresh": session.fresh,
        "suffix": session.suffix,
        "compression": compression.available(),
    }
    if not same and request.get("run"):
        answer["living"] = living_runs.in_folder(session.target, str(request["run"]))
    if same:
        release(request, link)
    elif rows:
        link.data(blocks.rows(rows))
    return answer


def branch(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Make the tree of a `run` from the present sync's place, which stays as it is."""
    session = _session()
    tree, shared = run_trees.make(session, str(request["run"]))
    release({}, link)
    return {"target": safe_paths.decode(tree), "shared": shared}


def stat_paths(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Return rows of the existing paths among those that come as [path, size]."""
    del request
    paths = blocks.read_rows(b"".join(link.pieces()))
    return {"rows": _session().stat_paths(paths)}


def put(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Write the files of the received blocks (blocks.py); the answer says how fast they came.

    Heads: d [path, mode], l [path, target], a [path, kind, mode, content], x paths to remove,
    f [path, mode, content, size]; `finish`, {digest, left} of the whole tree, ends the sync. Its
    answer has what was not written in the whole sync, and why. An error ends the sync too: the
    client may have sent the next `put` before it hears of it.
    """
    pieces = Arrivals(link.pieces())
    try:
        session = _session()
        pieces.read_ahead()
        _check_space(session, int(request.get("need") or 0))
        session.root_folder()
        session.own()
        session.manifest.unmark()
        try:
            for head, contents in blocks.unpack(pieces, expander=session.expander):
                session.lock.refresh()
                _write_block(session, head, contents, force=bool(request.get("force")))
                session.manifest.flush()
        finally:
            session.manifest.flush()
    except OSError:
        for _ in pieces:  # the client reads the answer only after it has sent all data
            pass
        for session in _sessions:
            session.result.failed = True
        raise
    answer: dict[str, Any] = pieces.answer()
    done = session.result
    if done.finished:
        answer["left"] = session.manifest.count_left()
        answer["conflicts"], answer["kept"] = done.conflicts, done.not_removed
        answer["removed"] = done.removed
        release({} if done.conflicts else request, link)
    return answer


class Arrivals:
    """What comes from the client: how much, in which time, and how long of that was waited for."""

    _AHEAD = 1 << 20  # bytes

    def __init__(self, pieces: Iterator[Any]) -> None:
        self._pieces = pieces
        self._ahead: list[Any] = []
        self._size = 0  # bytes behind the first piece
        self._waited = 0.0  # seconds
        self._start: float | None = None  # when the first piece came
        self._end = 0.0

    def __iter__(self) -> Iterator[Any]:
        """Yield the pieces."""
        while self._ahead:
            yield self._ahead.pop(0)
        yield from self._arriving()

    def read_ahead(self) -> None:
        """Read a part before any of it is used: its arrival alone is what takes time then."""
        for piece in self._arriving():
            self._ahead.append(piece)
            if self._size >= self._AHEAD:
                break

    def _arriving(self) -> Iterator[Any]:
        while True:
            before = time.monotonic()
            piece = next(self._pieces, None)
            if piece is None:
                return
            self._end = time.monotonic()
            if self._start is None:
                self._start = self._end
            else:
                self._size += len(piece)
                self._waited += self._end - before
            yield piece

    def answer(self) -> dict[str, Any]:
        """Return the bytes, and the seconds, for the answer to the client."""
        took = 0.0 if self._start is None else self._end - self._start
        return {"arrived": self._size, "waited": self._waited, "took": took}


def _write_block(
    session: transfer_session.Session, head: dict[str, Any], contents: memoryview, *, force: bool
) -> None:
    """Write the files of a block. Raises OSError."""
    done = session.result

    def attempt(failures: list[tuple[str, str]], function: Any, *args: Any) -> None:
        try:
            done.removed += bool(function(*args, force=force))
        except transfer_session.Conflict as e:
            failures.append((args[0], str(e)))

    for path in head.get("x", ()):
        attempt(done.not_removed, session.remove, path)
    for path, mode in head.get("d", ()):
        attempt(done.conflicts, session.folder, path, mode)
    for path, target in head.get("l", ()):
        attempt(done.conflicts, session.link, path, target)
    for row in head.get("a", ()):
        session.adopt(*row)
    start, last = 0, None
    for row in head.get("f", ()):
        path, size = row[0], row[3]
        folder = path.rpartition("/")[0]
        if folder != last:
            session.lock.set_folder(os.path.join(session.target, safe_paths.encode(folder)))
            last = folder
        attempt(done.conflicts, session.file, path, row, contents[start : start + size])
        start += size
    if head.get("finish"):
        done.finished = True
        left = session.manifest.entries.keys() & set(head["finish"]["left"])
        digest = "" if done.conflicts else head["finish"]["digest"]
        session.manifest.mark(digest, frozenset(left))


def _check_space(session: transfer_session.Session, need: int) -> None:
    """Raise OSError where the disk has no room. A quota shows only when it is reached."""
    if not need:
        return
    disk = os.statvfs(transfer_session.existing(session.target))
    free = disk.f_frsize * disk.f_bavail
    if free < need:
        text = f"the disk is too full: {transfer_size(need)} to come, {transfer_size(free)} free"
        raise OSError(errno.ENOSPC, text, safe_paths.decode(session.target))


# -- large files -----------------------------------------------------------------------------------


def prefix(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Open the part of a large file; send its offset and digest after each `step` bytes.

    `receive` appends to the part; `restart` truncates it first.
    """
    session, path = _session(), request["path"]
    parts = safe_paths.split(path)
    try:
        session.check(path, parts, force=bool(request.get("force")))
    except transfer_session.Conflict as e:
        return {"conflicts": [(path, str(e))]}
    digest = hashlib.blake2b(parts[-1], digest_size=8).hexdigest()
    name = (*parts[:-1], f".safelaunch-{digest}.part".encode())
    session.drop_large(path)
    flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if request.get("restart") else 0)
    fd = session.root_folder().open(name, flags, 0o600)
    large = session.large[path] = transfer_session.Large(fd, name)
    present = os.fstat(large.fd).st_size
    _check_space(session, int(request["size"]) - present)
    if present > int(request["size"]):
        os.ftruncate(large.fd, 0)  # the part of another file
        present = 0
    session.own()
    session.manifest.unmark()
    part = safe_paths.decode(b"/".join(name))
    session.manifest.put(part, manifest.ManifestEntry("p", 0, "", 0, ()))
    session.manifest.flush()
    step = int(request["step"])
    while large.size < present:
        _update_hash(large, min(step, present - large.size))
        session.lock.refresh()
        link.data(_MARK.pack(large.size) + large.hash.digest())
    return {"size": large.size}


def _update_hash(large: transfer_session.Large, length: int) -> None:
    while length:
        data = os.read(large.fd, min(transfer_session.PIECE, length))
        if not data:
            raise OSError(errno.EIO, "the file got shorter while it was read")
        large.hash.update(data)
        large.size += len(data)
        length -= len(data)


def receive(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Append the received data (`blocks.extents`) to the part; the answer is as that of `put`."""
    pieces = Arrivals(link.views())
    try:
        session = _session()
        large = session.large[request["path"]]
        os.lseek(large.fd, large.size, os.SEEK_SET)
        for data in blocks.extents(iter(pieces), session.expander):
            session.lock.refresh()
            safe_paths.write_all(large.fd, data)
            large.hash.update(data)
            large.size += len(data)
    except (OSError, KeyError):
        for _ in pieces:
            pass
        for session in _sessions:  # the client may have sent more of it already
            session.drop_large(request["path"])
        raise
    return pieces.answer()


def commit(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Rename the part of a large file to its path, if it has the `hash`; set its `mode`."""
    del link
    session, path = _session(), request["path"]
    large, parts = session.large.pop(path), safe_paths.split(path)
    try:
        if large.hash.hexdigest() != request["hash"]:
            return {"same": False}
        session.check(path, parts, force=bool(request.get("force")))
        mode = int(request["mode"])
        os.fchmod(large.fd, mode & 0o777 & ~transfer_session.umask())
        fd = session.root_folder().folder(parts[:-1])
        os.rename(large.name[-1], parts[-1], src_dir_fd=fd, dst_dir_fd=fd)
        session.record(path, "f", mode, request["hash"], os.fstat(large.fd))
    except transfer_session.Conflict as e:
        return {"conflicts": [(path, str(e))]}
    finally:
        os.close(large.fd)
    session.manifest.drop(safe_paths.decode(b"/".join(large.name)))
    session.manifest.flush()
    return {"same": True}


VERBS = {
    verb.__name__: safe_paths.with_path_errors(
        verb, lambda: _sessions[0].target if _sessions else b""
    )
    for verb in (list_target, compare, branch, stat_paths, put, prefix, receive, commit, release)
}
