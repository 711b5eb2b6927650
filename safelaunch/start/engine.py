"""Starts a plan on an engine: each node's files, with placeholders for what the node fills in.

The machine of the start is a login node. It shares its file system with the nodes, so paths, the
interpreter and the packages are those of the nodes; address, ports, card and cores are not.
"""

from __future__ import annotations

import os
import shutil
import zlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.engines.slurm.batch_script import sbatch_script, script_path, submit_line
from safelaunch.engines.slurm.directives import Submission
from safelaunch.errors import Refused, StartError
from safelaunch.model import Slot
from safelaunch.runs import store
from safelaunch.runtime.engines import slurm, submission
from safelaunch.runtime.engines.join import UNBOUND
from safelaunch.runtime.engines.slurm.submit import SubmitError, UnclearSubmitError, partitions
from safelaunch.runtime.records import EngineStart, NodePlace, PlanRecord
from safelaunch.runtime.start import starter
from safelaunch.start import local, preflight
from safelaunch.start.caller import Started
from safelaunch.start.local_probe import LocalProbe
from safelaunch.start.run_files import start_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import Plan, Slurm
    from safelaunch.start.caller import Caller
    from safelaunch.start.preflight import MachineReport

_LATE = (Slot.MASTER_ADDR, Slot.PORT, Slot.INTERFACE, Slot.THREADS)


# in Slurm's words about a request that no partition can satisfy
_LIMITED = ("node count", "node configuration", "memory", "time limit", "cpu")


class EngineRequest(NamedTuple):
    """What runtime/engines/submission.py needs for the nodes of a run, and the bytes behind it."""

    nodes: Sequence[dict[str, Any]]
    env: Mapping[str, str]  # values of `env_from`
    data: bytes
    notes: tuple[str, ...]


def placeholders(plan: Plan, run_id: str) -> dict[Slot, str]:
    """Return what stands for the late values: letters and digits, quoted as the values are."""
    text, number = repr(plan.nodes), zlib.crc32(run_id.encode())
    while f"{number:08x}" in text:
        number += 1
    names = {slot: slot.value.replace("-", "") for slot in _LATE}
    return {slot: f"safelaunch{name}{number:08x}" for slot, name in names.items()}


def request(
    plan: Plan,
    engine: EngineStart,
    report: MachineReport,
    caller: Caller,
    *,
    run_id: str,
    more: Mapping[Slot, str] = MappingProxyType({}),
    files: Mapping[str, bytes] = MappingProxyType({}),
    versions: Mapping[str, str] = MappingProxyType({}),
) -> EngineRequest:
    """Return the request for all nodes of an unbound plan. Raises ConfigError and StartError.

    `more` are facts beside those of the report, `files` go into the folder of node 0, `versions`
    decide open gates.
    """
    late = placeholders(plan, run_id)
    nodes: list[dict[str, Any]] = []
    data: list[bytes] = []
    env: dict[str, str] = {}
    notes: list[str] = []
    for rank, node in enumerate(plan.nodes):
        facts = {**preflight.facts(node, report, run_id), **more, **late}
        packages = [preflight.package_versions(node, report.probe)] * len(plan.nodes)
        start = start_request(
            plan,
            facts,
            caller,
            caller.environ,
            rank=rank,
            versions=versions,
            more={} if rank else files,
            packages=packages,
        )
        own = EngineStart.from_json(engine.to_json())
        own.placeholders = {slot.value: text for slot, text in late.items()}
        start.run.engine = own
        sizes = [[f"{UNBOUND}/{name}", size] for name, size in start.words["files"]]
        # until the node fills in its own: `show` and `rerun` read it while the job waits
        unbound = _with_names(start.plan_json, late)
        sizes.append([PlanRecord.FILE, len(unbound)])
        nodes.append({"run": start.run.to_json(), "files": sizes})
        data += [*start.data, unbound]
        env |= start.words["env"]
        notes += [*start.notes, *start.run.decisions]
    return EngineRequest(nodes, env, b"".join(data), tuple(dict.fromkeys(notes)))


def _with_names(text: bytes, late: Mapping[Slot, str]) -> bytes:
    """Return a file with `<port>` and the like in place of the placeholders."""
    for slot, placeholder in late.items():
        text = text.replace(placeholder.encode(), str(slot).encode())
    return text


def submit(
    plan: Plan, caller: Caller, files: Mapping[str, bytes] = MappingProxyType({})
) -> Started:
    """Submit a plan to the engine of this machine, with `files` in the folder of node 0.

    Raises StartError, with nothing left behind.
    """
    block = plan.engine
    if block is None:
        raise ValueError("the plan is for no engine")
    program = submit_line(plan, "")[0]
    if shutil.which(program, path=caller.environ.get("PATH")) is None:
        raise StartError(
            f"no `{program}` on PATH", hint="start it on a login node of the cluster, or --dry-run"
        )
    first = plan.nodes[0]
    preflight.check_secrets(first, caller.environ)
    preflight.check_assets(first.assets)
    run_id = caller.run_id(plan.name)
    report, versions = local.machine_report(
        first, caller, LocalProbe(first, caller.environ, has_backend=False)
    )
    engine = EngineStart(name=slurm.NAME, notice=block.signal)
    engine.can_resume = block.requeue and first.resume_argv is not None
    choice = local.newest_checkpoint(plan, caller)
    parts = request(
        choice.plan,
        engine,
        report,
        caller,
        run_id=run_id,
        more={slot: str(word) for slot, word in choice.facts(0, report.home).items()},
        files=files,
        versions=versions,
    )
    folder = os.path.join(store.folder(caller.home), run_id)
    place = Submission(run_id, folder, report.python)
    path = script_path(place)
    words = {
        "nodes": parts.nodes,
        "env": parts.env,
        "script": [path, sbatch_script(plan, place)],
        "submit": submit_line(plan, path),
        "comment": place.comment,
        "python": report.python,
        "prefix": block.prefix,
    }
    try:
        answer = submission.submit(words, parts.data, caller.environ, caller.home)
    except UnclearSubmitError as e:
        raise StartError(
            f"Slurm did not say whether it has accepted the job: {e}",
            where=run_id,
            hint=f"squeue --me; then safelaunch stop {run_id}",
        ) from e
    except SubmitError as e:
        message = f"Slurm does not accept the job: {e}"
        raise Refused(message, hint=_choices(str(e), block, caller)) from e
    except starter.StartFailed as e:
        raise StartError(str(e)) from e
    except OSError as e:
        raise StartError(f"{e.strerror} ({e.filename})" if e.filename else str(e)) from e
    notes = tuple(note for note in (choice.note, *parts.notes) if note)
    run = store.Run(run_id, os.path.dirname(answer.run_dir))
    places = [
        NodePlace(host=str(node.host), node=rank, run_dir=store.node_dir(run, rank))
        for rank, node in enumerate(plan.nodes)
    ]
    return Started(run=run, places=places, notes=notes, attach=(), job=answer.job.key)


def _choices(words: str, block: Slurm, caller: Caller) -> str | None:
    """Return what there is instead of what the engine does not have; None where that is unknown."""
    words = words.lower()
    if "account" in words or "qos" in words:
        return "yours: sacctmgr show assoc user=$USER format=account,partition,qos"
    has_limits = any(name in words for name in _LIMITED)
    if "partition" not in words and not has_limits:
        return None
    names = partitions(block.prefix, caller.environ, with_limits=has_limits)
    return f"partitions here: {', '.join(names)}" if names else None
