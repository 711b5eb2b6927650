"""The host's side of a sync: reports what exists, and replaces files atomically.

A sync is `compare`, `stat_paths` for paths that no earlier sync wrote, `put` and, for large files,
`prefix`, `receive`, `commit`; then `put` with `finish`. `branch` instead gives a run a tree of its
own, and the next `compare` is of that. The state between these calls is kept in the agent that
serves them. Nothing is written outside the target, and no link is followed in it.

A row is [path, kind, mode, content, size, state]; kinds as in manifest.Entry; states: "" as it was
written, "c" changed since (the content is the present one), "g" removed, "b" below a file or link.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import time

from safelaunch.runtime.transfer import blocks, living_runs, manifest, run_trees, safe_paths
from safelaunch.runtime.transfer import session as transfer_session
from safelaunch.runtime.units import transfer_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.runtime.agent.wire import Link


_MARK = struct.Struct(">Q")
_sessions: list[transfer_session.Session] = []  # at most one


def _session() -> transfer_session.Session:
    if not _sessions:
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


def compare(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Start a sync: answer that the tree matches `digest`, or send rows of the recorded paths.

    `busy` in the answer: another sync is running, and last wrote so many seconds ago. With `owner`
    the target is a project's place: another checkout's gets a `suffix`, and `living` are the runs
    that use it.
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
    rows = session.rows()
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
    """Write the files of the received blocks (blocks.py); return those not written, and why.

    Heads: d [path, mode], l [path, target], a [path, kind, mode, content], x paths to remove,
    f [path, mode, content, size]; `finish`, {digest, left} of the whole tree, ends the sync.
    """
    pieces = link.pieces()
    done = _PutResult()
    try:
        session = _session()
        _check_space(session, int(request.get("need") or 0))
        session.root_folder()
        session.own()
        session.manifest.unmark()
        try:
            for head, contents in blocks.unpack(pieces):
                session.lock.refresh()
                started = time.monotonic()
                done.block(session, head, contents, force=bool(request.get("force")))
                session.manifest.flush()
                done.worked = time.monotonic() - started
        finally:
            session.manifest.flush()
    except OSError:
        for _ in pieces:  # the client reads the answer only after it has sent all data
            pass
        raise
    left = session.manifest.count_left()
    if done.finished:
        release({} if done.conflicts else request, link)
    return {
        "conflicts": done.conflicts,
        "kept": done.not_removed,
        "removed": done.removed,
        "worked": done.worked,
        "left": left,
    }


class _PutResult:
    """The result of the blocks of one `put`."""

    def __init__(self) -> None:
        self.conflicts: list[tuple[str, str]] = []
        self.not_removed: list[tuple[str, str]] = []  # paths that were not removed, and why
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
        """Write the files of a block. Raises OSError."""

        def attempt(failures: list[tuple[str, str]], function: Any, *args: Any) -> None:
            try:
                self.removed += bool(function(*args, force=force))
            except transfer_session.Conflict as e:
                failures.append((args[0], str(e)))

        for path in head.get("x", ()):
            attempt(self.not_removed, session.remove, path)
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
        start, last = 0, None
        for row in rows:
            path, size = row[0], row[3]
            folder = path.rpartition("/")[0]
            if folder != last:
                session.lock.set_folder(os.path.join(session.target, safe_paths.encode(folder)))
                last = folder
            attempt(self.conflicts, session.file, path, row, contents[start : start + size])
            start += size


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
    old = session.large.pop(path, None)
    if old is not None:
        os.close(old.fd)
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
    """Append the received data to the part."""
    pieces = link.views()
    try:
        session = _session()
        large = session.large[request["path"]]
        os.lseek(large.fd, large.size, os.SEEK_SET)
        for data in pieces:
            session.lock.refresh()
            safe_paths.write_all(large.fd, data)
            large.hash.update(data)
            large.size += len(data)
    except (OSError, KeyError):
        for _ in pieces:
            pass
        raise
    return {"size": large.size}


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
    for verb in (compare, branch, stat_paths, put, prefix, receive, commit, release)
}
