"""The host's side of a pull: finds files by globs and sends them, from an offset on.

Data of one file comes in pieces: a byte of kind (stored, deflated), then the bytes.
"""

from __future__ import annotations

import glob
import hashlib
import os
import stat
import zlib

from safelaunch.runtime.transfer import blocks, compression, safe_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from safelaunch.runtime.agent.wire import Link

PIECE = 1 << 16
_BLOCK = 1 << 20
_SAMPLE = 1 << 12
_DENSE = 0.9


def find(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Send [pattern, name, path, size, mtime_ns] of files that match `patterns`, sorted by name.

    A pattern is [folder, glob]: a folder that matches means all files in it. The name is the path
    below that folder, the pattern its number in the request. `moved` is [folder, instead]: where
    that folder is gone, patterns below it are looked for in the other.
    """
    source, fallback = request.get("moved") or ("", "")
    if source and os.path.isdir(os.path.expanduser(safe_paths.encode(source))):
        source = ""
    files: dict[bytes, list[Any]] = {}
    notes: list[str] = []
    for number, (base, pattern) in enumerate(request["patterns"]):
        is_moved = source and (base + "/").startswith(source + "/")
        folder = fallback + base[len(source) :] if is_moved else base
        at = os.path.join(os.path.expanduser(b"~"), os.path.expanduser(safe_paths.encode(folder)))
        whole = os.path.join(glob.escape(at), safe_paths.encode(pattern))
        for match in sorted(glob.glob(whole, recursive=True)):
            for path in _files(match, notes):
                _add(files, number, at, path, notes)
    rows = sorted(files.values(), key=lambda row: row[1:])
    if rows:
        link.data(blocks.rows(rows))
    return {"notes": notes}


def _files(path: bytes, notes: list[str]) -> Iterator[bytes]:
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        links = [p for p in (os.path.join(folder, name) for name in folders) if os.path.islink(p)]
        notes += [f"{safe_paths.decode(link)}: a link to a folder: not fetched" for link in links]
        for name in sorted(names):
            yield os.path.join(folder, name)


def _add(
    files: dict[bytes, list[Any]], number: int, folder: bytes, path: bytes, notes: list[str]
) -> None:
    shown = safe_paths.decode(path)
    try:
        info = os.stat(path)  # the target of a link is fetched: `latest.pt` is meant as a file
    except OSError as e:
        notes.append(f"{shown}: {e.strerror}: not fetched")
        return
    if not stat.S_ISREG(info.st_mode):
        notes.append(f"{shown}: no file: not fetched")
        return
    name = safe_paths.decode(os.path.relpath(path, folder))
    files.setdefault(path, [number, name, shown, info.st_size, info.st_mtime_ns])


def hashes(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Return the hash of the first bytes of each of `files`, [path, length], or null."""
    del link
    values: list[str | None] = []
    for path, length in request["files"]:
        try:
            with open(safe_paths.encode(path), "rb", buffering=0) as file:
                hasher = hashlib.sha256()
                whole = _update_hash(hasher, file, length)
            values.append(hasher.hexdigest() if whole else None)
        except OSError:
            values.append(None)
    return {"hashes": values}


def _update_hash(hasher: Any, file: Any, length: int) -> bool:
    while length:
        data = file.read(min(1 << 20, length))
        if not data:
            return False
        hasher.update(data)
        length -= len(data)
    return True


def small(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Send files in blocks (blocks.py), of the size that `find` reported.

    `files` are [path, size]; heads are f [number, size] and bad [number, why].
    """
    rows, bad, contents, size = [], [], [], 0
    for number, (path, length) in enumerate(request["files"]):
        try:
            with open(safe_paths.encode(path), "rb") as file:
                data = file.read(length)
        except OSError as e:
            bad.append([number, e.strerror])
            continue
        rows.append([number, len(data)])
        contents.append(data)
        size += len(data)
        if size >= _BLOCK:
            link.data(blocks.pack({"f": rows}, contents, 1))
            rows, contents, size = [], [], 0
    link.data(blocks.pack({"f": rows, "bad": bad}, contents, 1))
    return {}


def send(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Send `path` after its first `offset` bytes if their hash is `hash`, else all of it.

    Where the request has a `size`, the file counts as no longer than that: a log grows meanwhile.

    The answer: `hash` and `size` of the whole file, `offset` from which it was sent, whether it
    has `changed` meanwhile (a file that only grew has not). The first piece is the offset.
    """
    offset = int(request["offset"])
    with open(safe_paths.encode(request["path"]), "rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        length = min(before.st_size, int(request.get("size", before.st_size)))
        hasher = hashlib.sha256()
        is_prefix = offset <= length and _update_hash(hasher, file, offset)
        if not offset or not is_prefix or hasher.hexdigest() != request.get("hash"):
            offset = 0
            hasher = hashlib.sha256()
        level = 0 if _is_dense(file, length) else 1
        file.seek(offset)
        link.data(b"%d" % offset)
        left = length - offset
        while left:
            data = file.read(min(PIECE - 1, left))
            if not data:
                break
            hasher.update(data)
            left -= len(data)
            link.data(_piece(data, level))
        after = os.fstat(file.fileno())
    grown = after.st_size > before.st_size
    changed = bool(left) or (not grown and after.st_mtime_ns != before.st_mtime_ns)
    size = length - left
    return {"hash": hasher.hexdigest(), "size": size, "offset": offset, "changed": changed}


def _piece(data: bytes, level: int) -> bytes:
    return b"".join(compression.deflate(data, level))


def _is_dense(file: Any, size: int) -> bool:
    """Return whether a file hardly deflates, by a sample from its middle: archives, weights."""
    file.seek(size // 2)
    sample = file.read(_SAMPLE)
    return len(zlib.compress(sample, 1)) > _DENSE * len(sample)


VERBS = {verb.__name__: safe_paths.with_path_errors(verb) for verb in (find, hashes, small, send)}
