"""What differs between a tree here and the folder on a host. Pure, but for hashes it asks for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from safelaunch.sync.project_tree import Item, Tree

_BLOCKED = "a folder of its path is a link, or a file, on the host"


class Row(NamedTuple):
    """What the host says of a path (runtime/tree.py)."""

    path: str
    kind: str
    mode: int
    content: str
    size: int
    state: str


@dataclass(slots=True)
class Difference:
    """What a sync does."""

    folders: list[Item] = field(default_factory=list)
    links: list[Item] = field(default_factory=list)
    files: list[Item] = field(default_factory=list)
    adopted: list[Item] = field(default_factory=list)  # there and the same: on record from now on
    conflicts: list[tuple[str, str]] = field(default_factory=list)  # path, why it stays
    gone: list[Row] = field(default_factory=list)  # put by an earlier sync, no longer here

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to travel."""
        return not (self.folders or self.links or self.files or self.adopted)


def digest(tree: Tree) -> str:
    """Return what stands for a whole tree whose hashes are known."""
    lines = [f"{i.path}\0{i.kind}\0{i.mode}\0{i.content}" for i in tree.items.values()]
    text = "\n".join(sorted(lines))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def unknown(tree: Tree, rows: Mapping[str, Row]) -> list[Item]:
    """Return what the host has no record of, or has lost."""
    return [i for i in tree.items.values() if i.path not in rows]


def doubtful(tree: Tree, rows: Mapping[str, Row]) -> list[Item]:
    """Return files whose hash decides whether they travel, and is not known yet."""
    found = []
    for item in tree.files:
        row = rows.get(item.path)
        if row is None or item.hash or row.kind != "f" or row.state in ("g", "b"):
            continue
        # a script that gets LF is smaller there; its hash is needed then
        if row.size == item.size or row.state == "c" or item.path.endswith("sh"):
            found.append(item)
    return found


def compare(
    tree: Tree, rows: Mapping[str, Row], recorded: Iterable[str], *, force: bool
) -> Difference:
    """Return what to do. `recorded`: the paths that an earlier sync put there."""
    found = Difference()
    known = set(recorded)
    replaced: set[str] = set()  # folders that take the place of something else
    for item in tree.items.values():
        row = rows.get(item.path)
        if row is None or row.state == "g":
            _send(found, item)
        elif row.state == "b":
            if force or any(above in replaced for above in _above(item.path)):
                _send(found, item)
            else:
                found.conflicts.append((item.path, _BLOCKED))
        elif item.kind == "d":
            if _folder(found, item, row, force=force):
                replaced.add(item.path)
        elif (row.kind, row.content) == (item.kind, item.content) and item.content:
            if row.state == "c" or row.mode != item.mode or item.path not in known:
                found.adopted.append(item)
        elif (item.path in known and row.state == "") or (force and row.kind != "d"):
            _send(found, item)
        else:
            found.conflicts.append((item.path, _why(row, known)))
    found.gone = [rows[path] for path in known if path in rows and path not in tree.items]
    found.gone = [row for row in found.gone if row.state != "g"]
    return found


def _folder(found: Difference, item: Item, row: Row, *, force: bool) -> bool:
    """Plan a folder; whether it takes the place of something else."""
    if row.kind == "d" and row.state == "":
        return False
    # an earlier sync's file gives way
    if (row.kind != "d" and row.state == "") or (force and row.kind != "?"):
        found.folders.append(item)
        return True
    found.conflicts.append((item.path, "is no folder on the host"))
    return False


def _above(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(1, len(names))]


def _why(row: Row, known: set[str]) -> str:
    if row.kind == "d":
        return "is a folder on the host"
    if row.path in known:
        return "was changed on the host"
    return "is there, and no sync put it there"


def _send(found: Difference, item: Item) -> None:
    kinds = {"d": found.folders, "l": found.links, "f": found.files}
    kinds[item.kind].append(item)
