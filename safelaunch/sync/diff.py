"""Compare a local tree with the folder on a host. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from safelaunch.sync.project_tree import Entry, Tree

_BLOCKED = "a folder of its path is a link, or a file, on the host"


class RemoteEntry(NamedTuple):
    """The state of a path on the host (runtime/transfer)."""

    path: str
    kind: str
    mode: int
    content: str
    size: int
    state: str


@dataclass(slots=True)
class Difference:
    """The changes that a sync makes."""

    folders: list[Entry] = field(default_factory=list)
    links: list[Entry] = field(default_factory=list)
    files: list[Entry] = field(default_factory=list)
    adopted: list[Entry] = field(default_factory=list)  # identical on the host: only recorded
    # path, reason why it is not overwritten
    conflicts: list[tuple[str, str]] = field(default_factory=list)
    # synced earlier, no longer in the project
    deleted: list[RemoteEntry] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not (self.folders or self.links or self.files or self.adopted)


def needs_hash(tree: Tree, rows: Mapping[str, RemoteEntry]) -> list[Entry]:
    """Return the files without a hash that must be hashed for the comparison."""
    entries = []
    for item in tree.files:
        row = rows.get(item.path)
        if row is None or item.hash or row.kind != "f" or row.state in ("g", "b"):
            continue
        # a script whose CRLF became LF is smaller on the host, so only its hash can be compared
        if row.size == item.size or row.state == "c" or item.path.endswith("sh"):
            entries.append(item)
    return entries


def compare(
    tree: Tree, rows: Mapping[str, RemoteEntry], recorded: Iterable[str], *, force: bool
) -> Difference:
    """Return the changes to make. `recorded`: the paths that an earlier sync created."""
    changes = Difference()
    recorded_paths = set(recorded)
    replaced: set[str] = set()  # folders that take the place of something else
    for item in tree.items.values():
        row = rows.get(item.path)
        if row is None or row.state == "g":
            _add(changes, item)
        elif row.state == "b":
            if force or any(above in replaced for above in parents(item.path)):
                _add(changes, item)
            else:
                changes.conflicts.append((item.path, _BLOCKED))
        elif item.kind == "d":
            if _plan_folder(changes, item, row, force=force):
                replaced.add(item.path)
        elif (row.kind, row.content) == (item.kind, item.content) and item.content:
            if row.state == "c" or row.mode != item.mode or item.path not in recorded_paths:
                changes.adopted.append(item)
        elif (item.path in recorded_paths and row.state == "") or (force and row.kind != "d"):
            _add(changes, item)
        else:
            changes.conflicts.append((item.path, _conflict_reason(row, recorded_paths)))
    deleted = [rows[path] for path in recorded_paths if path in rows and path not in tree.items]
    changes.deleted = [row for row in deleted if row.state != "g"]
    return changes


def _plan_folder(changes: Difference, item: Entry, row: RemoteEntry, *, force: bool) -> bool:
    """Plan a folder; return whether it replaces something else."""
    if row.kind == "d" and row.state == "":
        return False
    # a file of an earlier sync may be replaced
    if (row.kind != "d" and row.state == "") or (force and row.kind != "?"):
        changes.folders.append(item)
        return True
    changes.conflicts.append((item.path, "is not a folder on the host"))
    return False


def parents(path: str) -> list[str]:
    """Return the folders above a path, the outermost first."""
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(1, len(names))]


def _conflict_reason(row: RemoteEntry, recorded_paths: set[str]) -> str:
    if row.kind == "d":
        return "is a folder on the host"
    if row.path in recorded_paths:
        return "was changed on the host"
    return "exists on the host and was not created by a sync"


def _add(changes: Difference, item: Entry) -> None:
    kinds = {"d": changes.folders, "l": changes.links, "f": changes.files}
    kinds[item.kind].append(item)
