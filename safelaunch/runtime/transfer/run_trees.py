"""Trees of runs: a copy of a synced project, beside its place, that belongs to one run.

A tree has the files that its run was launched with; tree_links.py adds what no sync has put into
the place. It is a sibling of the place, so that `../data` leads where it does from there.
"""

# ruff: noqa: PLC0415 - this module is imported on Windows too, which has no fcntl

from __future__ import annotations

import errno
import os
import shutil
import stat

from safelaunch.runtime import json_files
from safelaunch.runtime.home import home
from safelaunch.runtime.records import RunRecord, Status
from safelaunch.runtime.transfer import living_runs, manifest, safe_paths, tree_links
from safelaunch.runtime.transfer.session import Session, place_suffix, umask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from safelaunch.runtime.agent.wire import Link
    from safelaunch.runtime.transfer.safe_paths import Parts

# Copying 64 MiB takes a few hundredths of a second from the page cache. What is larger is data or
# weights, which programs replace rather than edit in place.
LINK_FROM = 64 << 20  # bytes from which a file is hard-linked where the disk has no reflinks
_FICLONE = 0x40049409  # linux/fs.h
_PIECE = 1 << 20


def tree_path(place: bytes, run_id: str) -> bytes:
    """Return the path of a run's tree."""
    return place + b"." + safe_paths.encode(run_id)


# -- making one ------------------------------------------------------------------------------------


def make(session: Session, run_id: str) -> tuple[bytes, list[str]]:
    """Copy what syncs have put into a place; return the tree, and the files that it shares.

    Files that were changed since are left out. Raises OSError, with nothing left behind.
    """
    tree = tree_path(session.target, run_id)
    os.mkdir(tree, 0o700)
    try:
        os.chmod(tree, stat.S_IMODE(os.stat(session.target).st_mode))  # others see as much of both
        record = manifest.load(home(), tree)
        place = safe_paths.decode(session.target)
        record.set_origin(session.manifest.head.owner, place, run_id)
        shared = _Copy(session, tree, record).all()
        living_runs.reserve(tree, run_id)
    except BaseException:
        remove(tree)
        raise
    return tree, shared


class _Copy:
    """A copy of the recorded entries of a place."""

    def __init__(self, session: Session, tree: bytes, record: manifest.Manifest) -> None:
        self.session = session
        self.record = record
        self.tree = safe_paths.RootFolder(tree)
        self.has_reflinks = True
        self.umask = umask()

    def all(self) -> list[str]:
        """Copy all entries; return the paths of the files that both places share."""
        shared = []
        try:
            for path, entry in sorted(self.session.manifest.entries.items()):
                try:
                    if self._entry(path, entry):
                        shared.append(path)
                except OSError as e:
                    if e.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                        raise
        finally:
            self.tree.close()
        self.record.mark("", self.session.manifest.leftover)
        self.record.flush()
        self.session.manifest.flush()
        return shared

    def _entry(self, path: str, entry: manifest.ManifestEntry) -> bool:
        """Copy an entry; return whether it is a file that both places share."""
        parts, place = safe_paths.split(path), self.session.root_folder()
        info = place.lookup(parts)
        kind, is_shared, key = entry.kind, False, None
        if info is None or kind == "p":
            return False
        if kind == "d":
            if stat.S_ISDIR(info.st_mode):
                self.tree.make(parts, entry.mode)
                self.record.put(path, manifest.ManifestEntry("d", entry.mode, "", 0, ()))
            return False
        if entry.key != safe_paths.key(info):
            return False  # changed since: the sync sends it, or has refused already
        if kind == "l":
            key = safe_paths.key(self.tree.link(parts, safe_paths.encode(entry.content)))
        else:
            is_shared = self._file(parts, entry)
            folder = self.tree.folder(parts[:-1])
            key = safe_paths.key(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False))
            if is_shared:  # another link to it has changed its time of change
                self.session.manifest.put(path, _with_key(entry, key, own=entry.own))
        self.record.put(path, _with_key(entry, key, own=True))
        return is_shared

    def _file(self, parts: Parts, entry: manifest.ManifestEntry) -> bool:
        """Copy a file; return whether it is a link to the same one."""
        place = self.session.root_folder()
        if entry.size >= LINK_FROM and not self._can_reflink(parts):
            folder = place.folder(parts[:-1])
            to = self.tree.folder(parts[:-1])
            try:
                os.link(parts[-1], parts[-1], src_dir_fd=folder, dst_dir_fd=to)
            except OSError as e:
                if e.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                    raise
            else:
                return True
        source = place.open(parts)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            copy = self.tree.open(parts, flags, (entry.mode & 0o777) | stat.S_IWUSR)
            try:
                if not (self.has_reflinks and self._reflink(source, copy)):
                    _copy_bytes(source, copy)
                os.fchmod(copy, entry.mode & 0o777 & ~self.umask)
            finally:
                os.close(copy)
        finally:
            os.close(source)
        self.session.lock.refresh()
        return False

    def _can_reflink(self, parts: Parts) -> bool:
        """Whether the disk shares blocks of files, tried with a file of the project."""
        if not self.has_reflinks:
            return False
        source = self.session.root_folder().open(parts)
        trial = (*parts[:-1], tree_links.OWN + b"trial")
        try:
            copy = self.tree.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                return self._reflink(source, copy)
            finally:
                os.close(copy)
                self.tree.remove(trial, is_folder=False)
        finally:
            os.close(source)

    def _reflink(self, source: int, copy: int) -> bool:
        import fcntl

        try:
            fcntl.ioctl(copy, _FICLONE, source)
        except OSError:
            self.has_reflinks = False  # of a disk, so of none of them
            return False
        return True


def _with_key(entry: manifest.ManifestEntry, key: Any, *, own: bool) -> manifest.ManifestEntry:
    return manifest.ManifestEntry(entry.kind, entry.mode, entry.content, entry.size, key, own)


def _copy_bytes(source: int, copy: int) -> None:
    while True:
        data = os.read(source, _PIECE)
        if not data:
            return
        safe_paths.write_all(copy, data)


# -- all trees of this machine ---------------------------------------------------------------------


def all_trees() -> Iterator[tuple[bytes, manifest.Head]]:
    """Yield each tree of this machine, with the head of its manifest."""
    for path, head in manifest.heads(home()).items():
        tree = safe_paths.encode(head.target)
        # another machine with this home may have a folder of the same path, which is another one
        if head.run and path == manifest.path_of(home(), tree) and os.path.isdir(tree):
            yield tree, head


def settle_ended(place: bytes) -> None:
    """Move into a place what its ended runs have made in their trees; remove unused trees."""
    for tree, head in list(all_trees()):
        if safe_paths.encode(head.place) != place or living_runs.in_folder(tree):
            continue
        if not tree_links.settle(tree, home()) and not living_runs.node_dirs(head.run):
            try:
                remove(tree)  # its run was never started
            except OSError:
                pass  # `clean` says so


def remove(tree: bytes) -> None:
    """Remove a tree and its manifest, nothing behind a link. Raises OSError."""
    path = manifest.load(home(), tree).path
    shutil.rmtree(tree, ignore_errors=True)
    if os.path.lexists(tree):
        raise OSError(errno.ENOTEMPTY, "cannot be removed", safe_paths.decode(tree))
    json_files.remove(path)
    json_files.remove(manifest.record_path(home(), tree) + ".lock")


def _may_go_on(run_id: str) -> bool:
    """Whether `--resume` may need the tree of a run: its job recovers, and it has not succeeded."""
    for node_dir in living_runs.node_dirs(run_id):
        run, status = RunRecord.read(node_dir), Status.read(node_dir)
        if run is not None and run.recovery and (status is None or status.state != "succeeded"):
            return True
    return False


# -- verbs -----------------------------------------------------------------------------------------


def finish(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Complete the tree of a run with what is not synced, and with its `outputs`."""
    del link
    tree = safe_paths.encode(request["tree"])
    tree_links.link_unsynced(tree, home())
    tree_links.make_outputs(tree, home(), request.get("outputs") or [])
    return {}


def place(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Return the `suffix` that the place of `owner` has beside `folder`."""
    del link
    path = os.path.expanduser(str(request["folder"]))
    return {"suffix": place_suffix(path, str(request["owner"]))}


def living(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Return the runs that use files of `folder`, without the run `but`."""
    del link
    folder = os.path.realpath(os.path.expanduser(safe_paths.encode(request["folder"])))
    return {"runs": living_runs.in_folder(folder, str(request.get("but") or ""))}


def clean(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Remove the trees of ended runs; return each tree with why it was kept, or "".

    `all` removes also those that a resume may need, `force` those with files that are nowhere
    else, `dry_run` none.
    """
    del link
    rows = []
    for tree, head in list(all_trees()):
        why, files = "", []
        if living_runs.in_folder(tree):
            why = "living"
        else:
            files = tree_links.settle(tree, home(), dry_run=bool(request.get("dry_run")))
            if files and not request.get("force"):
                why = "files"
            elif _may_go_on(head.run) and not request.get("all"):
                why = "resume"
        size = _size(tree)
        if not why and not request.get("dry_run"):
            try:
                remove(tree)
            except OSError as e:
                why = f"cannot be removed: {e.strerror}"
        rows.append(
            {
                "tree": safe_paths.decode(tree),
                "run": head.run,
                "size": size,
                "kept": why,
                "files": files[:20],
                "more_files": max(0, len(files) - 20),
            }
        )
    return {"trees": rows}


def _size(tree: bytes) -> int:
    """Return the bytes of a tree's own files; those shared with the place do not count."""
    size = 0
    for folder, _, names in os.walk(tree):
        for name in names:
            try:
                info = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            size += info.st_size if info.st_nlink == 1 else 0
    return size


VERBS = {
    verb.__name__: safe_paths.with_path_errors(verb) for verb in (finish, place, living, clean)
}
