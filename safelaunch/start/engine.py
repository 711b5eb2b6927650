"""Requests of a run for an engine: each node's files, with placeholders for what the node fills in.

The machine of the start is a login node. It shares its file system with the nodes, so paths, the
interpreter and the packages are those of the nodes; address, ports, card and cores are not.
"""

from __future__ import annotations

import zlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.model import Slot
from safelaunch.runtime.engines.join import UNBOUND
from safelaunch.runtime.records import EngineStart
from safelaunch.start import preflight
from safelaunch.start.run_files import start_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import Plan
    from safelaunch.start.caller import Caller
    from safelaunch.start.preflight import MachineReport

LATE = (Slot.MASTER_ADDR, Slot.PORT, Slot.INTERFACE, Slot.THREADS)


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
    names = {slot: slot.value.replace("-", "") for slot in LATE}
    return {slot: f"safelaunch{name}{number:08x}" for slot, name in names.items()}


def request(
    plan: Plan,
    engine: EngineStart,
    report: MachineReport,
    caller: Caller,
    *,
    run_id: str,
    versions: Mapping[str, str] = MappingProxyType({}),
) -> EngineRequest:
    """Return the request for all nodes of an unbound plan. Raises ConfigError and StartError."""
    late = placeholders(plan, run_id)
    nodes: list[dict[str, Any]] = []
    data: list[bytes] = []
    env: dict[str, str] = {}
    notes: list[str] = []
    for rank, node in enumerate(plan.nodes):
        facts = {**preflight.facts(node, report, run_id), **late}
        packages = [preflight.package_versions(node, report.probe)] * len(plan.nodes)
        start = start_request(
            plan, facts, caller, caller.environ, rank=rank, versions=versions, packages=packages
        )
        own = EngineStart.from_json(engine.to_json())
        own.placeholders = {slot.value: text for slot, text in late.items()}
        start.run.engine = own
        files = [[f"{UNBOUND}/{name}", size] for name, size in start.words["files"]]
        nodes.append({"run": start.run.to_json(), "files": files})
        data += start.data
        env |= start.words["env"]
        notes += [*start.notes, *start.run.decisions]
    return EngineRequest(nodes, env, b"".join(data), tuple(dict.fromkeys(notes)))
