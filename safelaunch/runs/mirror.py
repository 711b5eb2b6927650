"""What this machine records of a run on hosts: where it is, and how it was when last seen.

Its folder lies beside those of this machine's runs and has the same files, so that all readers of
runs can read it too. A file `mirror` in it marks that the original is on a host.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from typing import TYPE_CHECKING

from safelaunch.file_lock import try_lock
from safelaunch.runs import store
from safelaunch.runtime import json_files, run_state
from safelaunch.runtime.agent.runs import FILES, PARTS_LIMIT
from safelaunch.runtime.records import (
    FanOutSpec,
    NodePlace,
    PartEnd,
    PlanRecord,
    RemoteRecord,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.runtime.agent import runs as agent_runs


PLAN_FILES = (PlanRecord.FILE, FanOutSpec.FILE)  # which never change
_FILES = (*FILES, *PLAN_FILES)  # of a node's view, whatever else it brings


@contextlib.contextmanager
def start_lock(home: str, run_id: str) -> Iterator[None]:
    """Mark a run as being started until the block ends, or this process does.

    Its hosts know nothing of it yet, and it must not seem lost to other commands.
    """
    path = _lock_path(run_by_id(home, run_id))
    for folder in (home, store.folder(home)):
        os.makedirs(folder, 0o700, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try_lock(fd)  # it succeeds: nobody else knows the id
        yield
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(path)


def is_starting(run: store.Run) -> bool:
    """Whether a command of this machine is starting a run on hosts."""
    try:
        fd = os.open(_lock_path(run), os.O_RDWR)
    except OSError:
        return False
    try:
        return not try_lock(fd)
    finally:
        os.close(fd)


def _lock_path(run: store.Run) -> str:
    return run.folder + ".start"  # beside the folder, which a start that fails removes


def create(
    home: str, run_id: str, places: Sequence[NodePlace], name: str, hosts_file: str | None = None
) -> store.Run:
    """Record where a run is: before its start, so that no dropped connection loses it."""
    run = run_by_id(home, run_id)
    for folder in (home, store.folder(home), run.folder):
        os.makedirs(folder, 0o700, exist_ok=True)
    for place in places:
        node_dir = store.node_dir(run, place.node)
        os.makedirs(node_dir, 0o700, exist_ok=True)
        store.Mirror(host=place.host, run_dir=place.run_dir).write(node_dir)
        if Status.read(node_dir) is None:
            Status(version=1, id=run_id, name=name, state="pending").write(node_dir)
    RemoteRecord(version=1, id=run_id, hosts_file=hosts_file, places=places).write(run.folder)
    return run


def add_nodes(run: store.Run, places: Sequence[NodePlace]) -> None:
    """Add nodes that are on another host to the record of a run on hosts."""
    record = pointer(run)
    if record is None:
        return
    numbers = {place.node for place in record.places}
    new = [place for place in places if place.node not in numbers]
    if new:
        record.places = sorted((*record.places, *new), key=lambda place: place.node)
        record.write(run.folder)


def run_by_id(home: str, run_id: str) -> store.Run:
    """Return the run of that id, whether it exists or not."""
    return store.Run(run_id, os.path.join(store.folder(home), run_id))


def pointer(run: store.Run) -> RemoteRecord | None:
    """Return where a run on hosts is; None for a run of this machine."""
    record = RemoteRecord.read(run.folder)
    if record is None or not all(place.host and place.run_dir for place in record.places):
        return None
    return record if record.places else None


def save(run: store.Run, place: NodePlace, view: agent_runs.NodeView) -> None:
    """Record how a node of a run was just seen."""
    node_dir = store.node_dir(run, place.node)
    os.makedirs(node_dir, 0o700, exist_ok=True)
    for name in _FILES:
        path, body = os.path.join(node_dir, name), view.files.get(name)
        data = json.loads(body) if isinstance(body, (str, bytes)) else body
        # `rerun` starts the plan that was recorded first, whatever a host says later
        if isinstance(data, dict) and not (name == PlanRecord.FILE and os.path.exists(path)):
            json_files.write_json(path, data)
    mirror = store.Mirror()
    for name in ("ranks", "attempts", "served", "shell", "notes"):
        if name in view:
            setattr(mirror, name, getattr(view, name))
    mirror.host, mirror.run_dir, mirror.at = place.host, place.run_dir, time.time()
    before = store.mirror_record(run, place.node)
    mirror.ahead = before.ahead
    if view.part_count is not None:
        mirror.part_count = view.part_count
        mirror.parts_done, mirror.parts_size = view.parts_done, view.parts_size
        _save_parts(node_dir, view)
    mirror.client = view.client or before.client
    mirror.job_file = view.job_file or before.job_file
    mirror.clock = before.clock if view.ahead is None else view.ahead
    mirror.write(node_dir)
    view.status.write(node_dir)


def _save_parts(node_dir: str, view: agent_runs.NodeView) -> None:
    """Write the ends of parts to where they are in the host's file: two commands may do so."""
    is_next = 0 <= view.parts_from <= parts_position(node_dir)
    if not view.parts or not is_next or len(view.parts) > PARTS_LIMIT:
        return
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)
    with open(os.open(os.path.join(node_dir, PartEnd.FILE), flags, 0o600), "wb") as file:
        file.seek(view.parts_from)
        file.write(view.parts.encode("latin-1", "replace"))


def parts_position(node_dir: str) -> int:
    """Return how many bytes of parts.jsonl of a run on a host are recorded here."""
    try:
        return os.stat(os.path.join(node_dir, PartEnd.FILE)).st_size
    except OSError:
        return 0


def parts_positions(run: store.Run) -> dict[int, int]:
    """Return `parts_position` of each node of a run."""
    return {node: parts_position(store.node_dir(run, node)) for node in store.node_numbers(run)}


def has_parts(run: store.Run, node: int) -> bool:
    """Whether the ends of parts that a host has of a run are recorded here."""
    size = store.mirror_record(run, node).parts_size
    return parts_position(store.node_dir(run, node)) >= size


def create_member(run: store.Run, member: store.Run, record: RemoteRecord) -> None:
    """Record where a member of a run on a host is: as a run on it, whose folder is in the run's.

    While the run goes on a member that has ended may start again: its last status is forgotten.
    """
    for place in record.places:
        node_dir = store.node_dir(member, place.node)
        os.makedirs(node_dir, 0o700, exist_ok=True)
        if store.Mirror.read(node_dir) is None:
            store.Mirror(host=place.host, run_dir=place.run_dir).write(node_dir)
        if not run_state.is_settled(store.last_status(run)):
            Status(version=1, id=member.id, state="pending").write(node_dir)
    record.write(member.folder)


def save_code(run: store.Run, node: int, files: Mapping[str, bytes]) -> None:
    """Record the code that a node was launched with: {name: content} of its files."""
    for name, data in files.items():
        json_files.replace(os.path.join(store.node_dir(run, node), name), data)


def save_clock_offset(run: store.Run, node: int, ahead: float) -> None:
    """Record how many seconds the clock of a node's host is ahead of this machine's."""
    mirror = store.mirror_record(run, node)
    mirror.ahead = ahead
    mirror.write(store.node_dir(run, node))


def remove(run: store.Run) -> None:
    """Remove the record of a run that was not started."""
    shutil.rmtree(run.folder, ignore_errors=True)
