"""The status of a node as it is now, and its stop, whether or not an engine has its run."""

# ruff: noqa: PLC0415 - what asks an engine: few runs have one

from __future__ import annotations

import os

from safelaunch.runtime import members, run_state
from safelaunch.runtime.logs import reader
from safelaunch.runtime.records import EngineJob, FanOutSpec, RunRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.runtime.engines.nodes import EngineNode
    from safelaunch.runtime.records import Status

PART = "part-"  # begin of the folder of a part


def is_on_engine(folder: str) -> bool:
    """Whether an engine has the run in this folder, or the part that is in it."""
    return _has_job(folder) or _owner(folder) is not None


def _has_job(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "node-0", EngineJob.FILE))


def _owner(folder: str) -> tuple[str, int] | None:
    """Return the run on an engine that a part's folder belongs to, and the part's number."""
    above, name = os.path.split(folder)
    run_dir, place = os.path.split(above)
    number = name[len(PART) :]
    if place != members.FOLDER or not name.startswith(PART) or not number.isdigit():
        return None
    run = os.path.dirname(run_dir)
    return (run, int(number)) if _has_job(run) else None


def _is_array(folder: str) -> bool:
    spec = FanOutSpec.read(os.path.join(folder, "node-0"))
    return spec is not None and spec.is_array


def watch(folders: Sequence[str]) -> None:
    """Ask the engine about all its runs among some folders at once."""
    own = [folder for folder in folders if _has_job(folder)]
    if len(own) > 1:
        from safelaunch.runtime.engines import nodes

        nodes.watch(own)


def engine_nodes(folder: str) -> Mapping[str, EngineNode]:
    """Return {name of its folder: node} of a run as its engine has it; nothing for another run."""
    part = _owner(folder)
    if part is not None or (_has_job(folder) and _is_array(folder)):
        from safelaunch.runtime.engines import array_nodes

        whole = array_nodes.run_nodes(folder) if part is None else array_nodes.part_nodes(*part)
        return {f"node-{node.number}": node for node in whole}
    if not _has_job(folder):
        return {}
    from safelaunch.runtime.engines import nodes

    return {f"node-{node.number}": node for node in nodes.nodes(folder)}


def status(node_dir: str) -> Status:
    """Return the status of a node as it is now."""
    folder, name = os.path.split(node_dir)
    node = engine_nodes(folder).get(name)
    return run_state.current_status(node_dir) if node is None else node.status


def shell(node_dir: str) -> Sequence[str]:
    """Return the command that opens a shell on a node, within the engine's job; else nothing."""
    run = RunRecord.read(node_dir)
    if run is None or run.engine is None or not run.engine.is_joined:
        return ()
    if _owner(os.path.dirname(node_dir)) is not None:
        return ()
    from safelaunch.runtime.engines import table

    job = EngineJob.read(os.path.join(os.path.dirname(node_dir), "node-0")) or EngineJob()
    name = run.engine.name
    return table.load(name).shell(job, run.hosts[run.node]) if table.has(name) else ()


def job_log(folder: str) -> str:
    """Return the path of what the engine's own job of a run prints; "" of an unknown engine's."""
    from safelaunch.runtime.engines import table

    part = _owner(folder)
    run = folder if part is None else part[0]
    job = EngineJob.read(os.path.join(run, "node-0")) or EngineJob()
    if not table.has(job.name):
        return ""
    place = folder
    if part is None and _is_array(folder):  # one of each task
        place = os.path.join(folder, "node-0", members.FOLDER, f"{PART}*")
    return os.path.join(place, table.load(job.name).LOG)


def batch_log_alone(folder: str) -> str | None:
    """Return the path of the log of the engine's job where no node has one, of any attempt."""
    if not is_on_engine(folder):
        return None
    path = job_log(folder)
    names = [name for name in os.listdir(folder) if name.startswith("node-")]
    has_others = any(reader.attempts(os.path.join(folder, name)) for name in names)
    return path if os.path.isfile(path) and not has_others else None


def stop(node_dir: str, grace: float) -> tuple[Status, bool]:
    """Stop a node, or with an engine its whole run.

    Returns its status, and whether it had ended before.
    """
    folder = os.path.dirname(node_dir)
    if not is_on_engine(folder):
        had_ended = run_state.current_status(node_dir).state in run_state.ENDED
        return run_state.stop(node_dir, grace), had_ended
    if _is_array(folder):
        from safelaunch.runtime.engines import array_nodes

        return _stopped(node_dir, had_ended=array_nodes.stop(folder, grace))
    from safelaunch.runtime.engines import nodes

    return _stopped(node_dir, had_ended=nodes.stop(folder, grace))


def _stopped(node_dir: str, *, had_ended: bool) -> tuple[Status, bool]:
    return status(node_dir), had_ended
