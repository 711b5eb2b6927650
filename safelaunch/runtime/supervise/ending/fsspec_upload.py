"""Copies files to a store by fsspec, and compares what has arrived. It runs in the job's Python.

    python -B fsspec_upload.py FOLDER LIST URL

LIST has paths relative to FOLDER, a line each. A file has arrived where the store names the same
size, and the same MD5 if it has one. A file that is there already, and is the same, is not sent.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys

PIECE = 1 << 20


def _md5(path: str) -> str:
    hasher = hashlib.new("md5")  # noqa: S324 - what stores state
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(PIECE), b""):
            hasher.update(piece)
    return hasher.hexdigest()


def _stored_md5(info: dict[str, object]) -> str:
    """Return the MD5 that a store states, "" if it states none: S3, GCS, Azure."""
    tag = str(info.get("ETag") or "").strip('"').lower()
    if len(tag) == 32 and not set(tag) - set("0123456789abcdef"):  # noqa: PLR2004 - no multipart
        return tag
    coded = info.get("md5Hash") or (info.get("content_settings") or {}).get("content_md5")  # type: ignore[attr-defined]
    if isinstance(coded, str):
        coded = base64.b64decode(coded)
    return bytes(coded).hex() if isinstance(coded, (bytes, bytearray)) else ""


def difference(store: object, path: str, target: str) -> str:
    """Return how a file differs from what the store has of it; "" where it is the same."""
    try:
        info = store.info(target)  # type: ignore[attr-defined]
    except FileNotFoundError:
        return "it is not there"
    size = os.path.getsize(path)
    if info.get("size") != size:
        return f"{info.get('size')} of {size} bytes are there"
    stored = _stored_md5(info)
    if stored and stored != _md5(path):
        return "its MD5 there is another one"
    return ""


def main(folder: str, names: str, url: str) -> int:
    """Copy the files, and compare each; return the exit code."""
    try:
        import fsspec  # type: ignore[import-untyped,unused-ignore] # noqa: PLC0415 - the job's
    except ImportError as e:
        print(f"{sys.executable} has no fsspec: {e}")
        return 1
    store, root = fsspec.core.url_to_fs(url)
    store.use_listings_cache = False
    with open(names, encoding="utf-8", errors="surrogateescape") as file:
        paths = file.read().split("\n")[:-1]
    bad = 0
    for name in paths:
        path, target = os.path.join(folder, name), f"{root.rstrip('/')}/{name}"
        why = difference(store, path, target)
        if why:
            store.makedirs(target.rpartition("/")[0], exist_ok=True)
            store.put_file(path, target)
            store.invalidate_cache()
            why = difference(store, path, target)
        bad += bool(why)
        print(f"{name}: {why or 'verified'}", flush=True)
    print(f"{len(paths) - bad} of {len(paths)} files verified at {url}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
