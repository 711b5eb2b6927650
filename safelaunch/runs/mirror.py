"""What this machine knows of a run elsewhere: where it is, and how it was when last seen.

Its folder lies beside those of the runs here and has the same files, so that everything that reads
a run reads this one too. `mirror` in it says that the truth lies on a host.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.runs import store
from safelaunch.runtime import json_files
from safelaunch.runtime.records import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runtime.agent import runs as agent_runs

POINTER = "remote.json"


class Place(NamedTuple):
    """Where a node of a run is: the host as the user named it, and the folder there."""

    host: str
    node: int
    run_dir: str


class Pointer(NamedTuple):
    """Where a run's nodes are, and the hosts file that says how to reach them."""

    places: tuple[Place, ...]
    hosts_file: str | None

    def place(self, node: int) -> Place:
        """Return the place of a node. Raises ConfigError."""
        for place in self.places:
            if place.node == node:
                return place
        known = ", ".join(f"{place.node} ({place.host})" for place in self.places)
        raise ConfigError(f"it has no node {node}", hint=f"nodes: {known}")


def make(
    home: str, run_id: str, places: Sequence[Place], name: str, hosts_file: str | None = None
) -> store.Run:
    """Write down where a run is: before its start, so that no dropped connection loses it."""
    run = run_of(home, run_id)
    for folder in (home, store.folder(home), run.folder):
        os.makedirs(folder, 0o700, exist_ok=True)
    for place in places:
        node_dir = os.path.join(run.folder, f"node-{place.node}")
        os.makedirs(node_dir, 0o700, exist_ok=True)
        store.Mirror(host=place.host, run_dir=place.run_dir).write(node_dir)
        if Status.read(node_dir) is None:
            Status(version=1, id=run_id, name=name, state="pending").write(node_dir)
    _point(run, Pointer(tuple(places), hosts_file))
    return run


def add(run: store.Run, places: Sequence[Place]) -> None:
    """Add nodes that were found on another host to where a run is."""
    at = pointer(run)
    known = {place.node for place in at.places} if at is not None else set()
    new = [place for place in places if place.node not in known]
    if at is not None and new:
        both = sorted((*at.places, *new), key=lambda place: place.node)
        _point(run, at._replace(places=tuple(both)))


def _point(run: store.Run, at: Pointer) -> None:
    pointer = {
        "version": 1,
        "id": run.id,
        "hosts_file": at.hosts_file,
        "places": [place._asdict() for place in at.places],
    }
    json_files.write_json(os.path.join(run.folder, POINTER), pointer)


def run_of(home: str, run_id: str) -> store.Run:
    """Return the run of that id, whether there is one or not."""
    return store.Run(run_id, os.path.join(store.folder(home), run_id))


def pointer(run: store.Run) -> Pointer | None:
    """Return where a run is; None for a run of this machine."""
    found: dict[str, Any] | None = json_files.read_json(os.path.join(run.folder, POINTER))
    if found is None:
        return None
    try:
        places = [Place(str(p["host"]), int(p["node"]), str(p["run_dir"])) for p in found["places"]]
    except (KeyError, TypeError, ValueError):
        return None
    hosts_file = found.get("hosts_file")
    return Pointer(tuple(places), str(hosts_file) if hosts_file else None)


def keep(run: store.Run, place: Place, view: agent_runs.NodeView) -> None:
    """Write down how a node of a run was just seen."""
    node_dir = store.node_dir(run, place.node)
    os.makedirs(node_dir, 0o700, exist_ok=True)
    for name, body in view.files.items():
        data = json.loads(body) if isinstance(body, (str, bytes)) else body
        if isinstance(data, dict):
            json_files.write_json(os.path.join(node_dir, os.path.basename(name)), data)
    mirror = store.Mirror()
    for name in ("ranks", "attempts", "served", "notes"):
        if name in view:
            setattr(mirror, name, getattr(view, name))
    mirror.host, mirror.run_dir, mirror.at = place.host, place.run_dir, time.time()
    earlier = store.mirrored(run, place.node)
    if earlier is not None:
        mirror.ahead = earlier.ahead
    mirror.write(node_dir)
    view.status.write(node_dir)


def note_clock(run: store.Run, node: int, ahead: float) -> None:
    """Write down how far the clock of a node's host is ahead of this one."""
    mirror = store.mirrored(run, node) or store.Mirror()
    mirror.ahead = ahead
    mirror.write(store.node_dir(run, node))


def forget(run: store.Run) -> None:
    """Remove a pointer whose run never was."""
    shutil.rmtree(run.folder, ignore_errors=True)
