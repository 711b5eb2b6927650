"""The manifest of a synced project: which files a job is launched with, and its hash."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.sync.project_tree import Entry


def manifest_hash(entries: Iterable[Entry]) -> str:
    """Return the SHA-256 over sorted lines of path, kind, mode and content of entries.

    The content is the SHA-256 of a file as it was sent, or the target of a link; each file has it
    once a sync has ended.
    """
    lines = (f"{e.path}\0{e.kind}\0{e.mode:o}\0{e.content}" for e in entries)
    text = "\n".join(sorted(lines))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
