"""The host's side of a sync: says what is there, and puts files there that a reader sees whole.

A sync is `compare`, `look` for paths that no earlier sync put there, `put` and, for large files,
`prefix`, `receive`, `commit`; then `put` with `finish`. What is between them is kept in the one
agent that serves them. Nothing is written but below the target, and no link is followed there.

A row is [path, kind, mode, content, size, state]; kinds as in manifest.Entry; states: "" as it was
put there, "c" changed since (the content is today's), "g" gone, "b" below what is no folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import time

from safelaunch.runtime.transfer import blocks, manifest, safe_paths
from safelaunch.runtime.transfer import session as transfer_session
from safelaunch.runtime.units import transfer_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.runtime.agent.wire import Link


_MARK = struct.Struct(">Q")
_going_on = []  # type: list[transfer_session.Session] # at most one


def _session() -> transfer_session.Session:
    if not _going_on:
        raise OSError(errno.EINVAL, "no sync is going on")
    _going_on[0].hold.beat()
    return _going_on[0]


def release(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """End the sync that is going on, if any."""
    del request, link
    while _going_on:
        _going_on.pop().close()
    return {}


def compare(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Begin a sync: answer that all is as `digest` says, or send rows of what is on record.

    `busy` in the answer: another sync is going on, and was last seen so many seconds ago.
    """
    release(request, link)
    try:
        session = transfer_session.Session(
            request["target"], take_over=bool(request.get("take_over"))
        )
    except manifest.Busy as e:
        return {"busy": e.idle}
    _going_on.append(session)
    rows = session.rows()
    known, digest, left = session.manifest, request.get("digest"), session.manifest.left
    same = bool(digest) and digest == known.digest
    same = same and not session.fresh and not (left and request.get("delete"))
    same = same and not any(row[5] for row in rows if row[0] not in left)
    answer = {
        "target": safe_paths.decode(session.target),
        "same": same,
        "left": known.count_left(),
        "digest": known.digest,
        "fresh": session.fresh,
    }
    if same:
        release(request, link)
    elif rows:
        link.data(blocks.rows(rows))
    return answer


def look(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Return rows of what stands at the paths that come as [path, size], where there is any."""
    del request
    paths = blocks.read_rows(b"".join(link.pieces()))
    return {"rows": _session().look(paths)}


def put(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Put what comes in blocks (packs.py), and answer with what could not be put, and why.

    Heads: d [path, mode], l [path, target], a [path, kind, mode, content], x paths to remove,
    f [path, mode, content, size]; `finish`, {digest, left} of the whole tree, ends the sync.
    """
    pieces = link.pieces()
    done = _Done()
    try:
        session = _session()
        _check_space(session, int(request.get("need") or 0))
        session.manifest.unmark()
        try:
            for head, contents in blocks.unpack(pieces):
                session.hold.beat()
                begun = time.monotonic()
                done.block(session, head, contents, force=bool(request.get("force")))
                session.manifest.flush()
                done.worked = time.monotonic() - begun
        finally:
            session.manifest.flush()
    except OSError:
        for _ in pieces:  # the answer can only be heard behind the data
            pass
        raise
    if done.finished:
        release(request, link)
    return {
        "conflicts": done.conflicts,
        "kept": done.kept,
        "removed": done.removed,
        "worked": done.worked,
        "left": session.manifest.count_left(),
    }


class _Done(object):
    """What has become of the blocks of one `put`."""

    def __init__(self) -> None:
        self.conflicts = []  # type: list[tuple[str, str]]
        self.kept = []  # type: list[tuple[str, str]] # that were to be removed
        self.removed = 0
        self.worked = 0.0  # seconds for the last block
        self.finished = False

    def block(
        self,
        session: transfer_session.Session,
        head: dict[str, Any],
        contents: memoryview,
        *,
        force: bool,
    ) -> None:
        """Put what is in a block. Raises OSError."""

        def attempt(bad: list[tuple[str, str]], function: Any, *words: Any) -> None:
            try:
                self.removed += bool(function(*words, force=force))
            except transfer_session.Conflict as e:
                bad.append((words[0], str(e)))

        for path in head.get("x", ()):
            attempt(self.kept, session.remove, path)
        for path, mode in head.get("d", ()):
            attempt(self.conflicts, session.folder, path, mode)
        for path, target in head.get("l", ()):
            attempt(self.conflicts, session.link, path, target)
        for row in head.get("a", ()):
            session.adopt(*row)
        self._files(session, head.get("f", ()), contents, attempt)
        if head.get("finish"):
            self.finished = True
            left = session.manifest.entries.keys() & set(head["finish"]["left"])
            digest = "" if self.conflicts else head["finish"]["digest"]
            session.manifest.mark(digest, frozenset(left))

    def _files(
        self, session: transfer_session.Session, rows: Any, contents: memoryview, attempt: Any
    ) -> None:
        begin = 0
        last = None
        for row in rows:
            path, size = row[0], row[3]
            folder = path.rpartition("/")[0]
            if folder != last:
                session.hold.working_in(os.path.join(session.target, safe_paths.encode(folder)))
                last = folder
            attempt(self.conflicts, session.file, path, row, contents[begin : begin + size])
            begin += size


def _check_space(session: transfer_session.Session, need: int) -> None:
    """Refuse before anything is written what cannot fit. Quotas show only when they are met."""
    if not need:
        return
    found = os.statvfs(transfer_session.existing(session.target))
    if found.f_frsize * found.f_bavail < need:
        free = found.f_frsize * found.f_bavail
        text = "the disk is too full: %s to come, %s free" % (
            transfer_size(need),
            transfer_size(free),
        )
        raise OSError(errno.ENOSPC, text, safe_paths.decode(session.target))


# -- large files -----------------------------------------------------------------------------------


def prefix(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Open the part of a large file; send where it stands and its digest, after each `step` bytes.

    What follows is written behind the last of them; `restart` throws away what is there.
    """
    session, path = _session(), request["path"]
    parts = safe_paths.split(path)
    try:
        session.check(path, parts, force=bool(request.get("force")))
    except transfer_session.Conflict as e:
        return {"conflicts": [(path, str(e))]}
    name = (*parts[:-1], _part_of(parts[-1]))
    old = session.large.pop(path, None)
    if old is not None:
        os.close(old.fd)
    flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if request.get("restart") else 0)
    large = session.large[path] = transfer_session.Large(
        session.below().open(name, flags, 0o600), name
    )
    there = os.fstat(large.fd).st_size
    _check_space(session, int(request["size"]) - there)
    if there > int(request["size"]):
        os.ftruncate(large.fd, 0)  # the beginning of another file
        there = 0
    session.manifest.unmark()
    session.manifest.put(safe_paths.decode(b"/".join(name)), manifest.Entry("p", 0, "", 0, ()))
    session.manifest.flush()
    step = int(request["step"])
    while large.size < there:
        _hash_on(large, min(step, there - large.size))
        session.hold.beat()
        link.data(_MARK.pack(large.size) + large.hash.digest())
    return {"size": large.size}


def _hash_on(large: transfer_session.Large, length: int) -> None:
    while length:
        data = os.read(large.fd, min(transfer_session.PIECE, length))
        if not data:
            raise OSError(errno.EIO, "the file got shorter while it was read")
        large.hash.update(data)
        large.size += len(data)
        length -= len(data)


def receive(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Write the data that comes behind what the part holds."""
    pieces = link.views()
    try:
        session = _session()
        large = session.large[request["path"]]
        os.lseek(large.fd, large.size, os.SEEK_SET)
        for data in pieces:
            session.hold.beat()
            safe_paths.write_all(large.fd, data)
            large.hash.update(data)
            large.size += len(data)
    except (OSError, KeyError):
        for _ in pieces:
            pass
        raise
    return {"size": large.size}


def commit(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Put a large file in its place if it is the one that was meant: `hash`, `mode`."""
    del link
    session, path = _session(), request["path"]
    large, parts = session.large.pop(path), safe_paths.split(path)
    try:
        if large.hash.hexdigest() != request["hash"]:
            return {"same": False}
        session.check(path, parts, force=bool(request.get("force")))
        mode = int(request["mode"])
        os.fchmod(large.fd, mode & 0o777 & ~transfer_session.umask())
        fd = session.below().folder(parts[:-1])
        os.rename(large.name[-1], parts[-1], src_dir_fd=fd, dst_dir_fd=fd)
        session.record(path, "f", mode, request["hash"], os.fstat(large.fd))
    except transfer_session.Conflict as e:
        return {"conflicts": [(path, str(e))]}
    finally:
        os.close(large.fd)
    session.manifest.drop(safe_paths.decode(b"/".join(large.name)))
    session.manifest.flush()
    return {"same": True}


def _part_of(name: bytes) -> bytes:
    return b".safelaunch-" + hashlib.blake2b(name, digest_size=8).hexdigest().encode() + b".part"


def _target() -> bytes:
    return _going_on[0].target if _going_on else b""


VERBS = {
    verb.__name__: safe_paths.naming(verb, _target)
    for verb in (compare, look, put, prefix, receive, commit, release)
}
