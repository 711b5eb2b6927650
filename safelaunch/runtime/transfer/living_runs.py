"""Which runs use a folder: those that live in it, and starts whose files have just arrived."""

from __future__ import annotations

import os

from safelaunch.runtime import json_files, processes, run_state
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.runtime.engines import current
from safelaunch.runtime.home import home
from safelaunch.runtime.records import Process, RunRecord, Status
from safelaunch.runtime.transfer import manifest, safe_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def node_dirs(run_id: str) -> list[str]:
    """Return the folders of a run's nodes on this machine."""
    folder = os.path.join(home(), "runs", run_id)
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith("node-"))
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names]
    return [path for path in paths if not os.path.exists(os.path.join(path, agent_runs.MIRROR))]


def is_over(node_dir: str) -> bool:
    """Whether no process of a node is left, and none will come."""
    status = current.status(node_dir)
    # the processes of an `unknown` one are on another machine, and may be alive
    return status.state != "unknown" and agent_runs.is_over(status)


def in_folder(folder: bytes, but: str = "") -> list[str]:
    """Return the ids of the runs that use files of a folder, without the run `but`."""
    ids = set(_started_in(folder)) | set(_reserved(folder))
    return sorted(ids - {but})


def _started_in(folder: bytes) -> Iterator[str]:
    try:
        ids = os.listdir(os.path.join(home(), "runs"))
    except OSError:
        return
    for run_id in ids:
        if any(_uses(node_dir, folder) for node_dir in node_dirs(run_id)):
            yield run_id


def _uses(node_dir: str, folder: bytes) -> bool:
    status = Status.read(node_dir)
    if status is not None and status.state in run_state.ENDED:
        return False  # most runs: nothing else of them is read
    run = RunRecord.read(node_dir)
    paths = [run.tree or run.place, run.cwd, *run.roots] if run is not None else []
    inside = any(is_inside(safe_paths.encode(path), folder) for path in paths if path)
    return inside and not is_over(node_dir)


def is_inside(path: bytes, folder: bytes) -> bool:
    """Whether a path is a folder, or lies below it."""
    return (os.path.realpath(path) + b"/").startswith(folder.rstrip(b"/") + b"/")


# -- between the end of a sync and the start of its run --------------------------------------------


def reserve(folder: bytes, run_id: str) -> None:
    """Record that a run will start in a folder: it counts as a user from now on."""
    path = _reservation(folder, run_id)
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    json_files.write_json(path, processes.identity(os.getpid()).to_json())


def _reservation(folder: bytes, run_id: str) -> str:
    return f"{manifest.record_path(home(), folder)}.{run_id}.start"


def _reserved(folder: bytes) -> Iterator[str]:
    """Yield the runs whose start is under way."""
    prefix = os.path.basename(manifest.record_path(home(), folder)) + "."
    parent = os.path.join(home(), "sync")
    try:
        names = [n for n in os.listdir(parent) if n.startswith(prefix) and n.endswith(".start")]
    except OSError:
        return
    for name in names:
        run_id, path = name[len(prefix) : -len(".start")], os.path.join(parent, name)
        records = [os.path.join(node_dir, RunRecord.FILE) for node_dir in node_dirs(run_id)]
        if not any(map(os.path.exists, records)) and _is_pending(path):
            yield run_id
        else:  # its run directory says more, or it never started
            json_files.remove(path)


def _is_pending(path: str) -> bool:
    """Whether the agent that made a reservation is alive: it ends with its client's connection."""
    agent = json_files.read_json(path)
    return agent is not None and processes.is_alive(Process.from_json(agent))
