"""Makes of the request of a job the request of its parts: launch.sh runs their coordinator.

The same for this machine and for a host: all that depends on the machine is in its report, or is
asked by the coordinator.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.model import FanOut, LateValue, Slot
from safelaunch.plan.members.words import late_values as late_words
from safelaunch.runtime import PLACE
from safelaunch.runtime.parts import TEMPLATE, expand
from safelaunch.runtime.records import EngineStart, FanOutSpec, MergeSpec
from safelaunch.script import quote
from safelaunch.start import preflight
from safelaunch.start.run_files import start_request
from safelaunch.start.scripts import late_values, members

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import Plan
    from safelaunch.start.caller import Caller
    from safelaunch.start.preflight import MachineReport
    from safelaunch.start.run_files import StartRequest

SCRIPT = "launch.sh"
_FILES = (LateValue("shard.input"), LateValue("shard.output"))  # in the folder of the run


def spec_of(fan_out: FanOut, cwd: str, host: int = 0, hosts: int = 1) -> FanOutSpec:
    """Return what the coordinator has to know; paths are those in the working directory.

    `host` is the number of its host among the `hosts` that share the parts.
    """
    spec = FanOutSpec(count=fan_out.count, by=fan_out.by, at_once=fan_out.at_once or 0)
    if fan_out.cards:
        spec.cards, spec.cards_each = list(fan_out.cards), fan_out.cards_each
        spec.at_once = fan_out.at_once or len(fan_out.cards) // fan_out.cards_each
    spec.matrix = {name: list(values) for name, values in fan_out.matrix.items()}
    if fan_out.over is not None:
        spec.over = posixpath.join(cwd, fan_out.over)
    if fan_out.merge is not None:
        merge = fan_out.merge
        output = posixpath.join(cwd, merge.output)
        spec.merge = MergeSpec(output=output, by=merge.by, command=list(merge.command))
    if fan_out.earlier is not None:
        spec.earlier = fan_out.earlier
    if hosts > 1:
        spec.hosts = hosts
        spec.share = list(range(host, expand.part_count(spec), hosts))
    if fan_out.shares:
        share = fan_out.shares[host]
        spec.share = list(share.parts)
        if share.earlier is not None:
            spec.earlier = share.earlier
    return spec


def with_parts(
    request: StartRequest,
    plan: Plan,
    caller: Caller,
    job_facts: Mapping[Slot, str],
    report: MachineReport,
    *,
    versions: Mapping[str, str],
    host: int = 0,
) -> StartRequest:
    """Return the request with the files of the parts. Raises StartError and ConfigError.

    `job_facts`, `report` and `versions` are those of the machine, with which the request was made;
    `host` is its number among those of the plan.
    """
    spec = spec_of(plan.fan_out or FanOut(), request.run.cwd, host, len(plan.nodes))
    plan = replace(plan, nodes=(replace(plan.nodes[host], node_rank=0),))  # of a part: it alone
    words = late_words(plan)
    if any(word.value.startswith("steps.") for word in words):
        raise ConfigError(
            "words of earlier steps in a step with parts",
            where=plan.job_file or None,
            hint="let the program find the output of the earlier step by its own path",
        )
    slots: list[Slot | LateValue] = [Slot.PORT, Slot.RUN_DIR, *words]
    late = late_values.placeholders(plan, job_facts[Slot.RUN_ID], slots, [Slot.RUN_DIR, *_FILES])
    part = start_request(
        replace(plan, log=None, services=(), fan_out=None),
        {**job_facts, **late},
        caller._replace(after=()),
        report.environ,
        versions=versions,
        packages=[preflight.package_versions(plan.nodes[0], report.probe)],
    ).unbound(late)
    return _with_files(request, plan, job_facts, part, late, spec=spec)


def with_array(
    request: StartRequest,
    plan: Plan,
    caller: Caller,
    job_facts: Mapping[Slot, str],
    report: MachineReport,
    *,
    versions: Mapping[str, str],
    environ: Mapping[str, str],
    engine: EngineStart,
) -> StartRequest:
    """Return the request of a run whose parts are tasks of an engine's array.

    Raises StartError and ConfigError.
    """
    slots: list[Slot | LateValue] = [*late_values.OF_NODE, Slot.RUN_DIR, *late_words(plan)]
    late = late_values.placeholders(plan, job_facts[Slot.RUN_ID], slots, [Slot.RUN_DIR, *_FILES])
    part = start_request(
        replace(plan, log=None, services=(), fan_out=None),
        {**job_facts, **late},
        caller._replace(after=()),
        environ,
        versions=versions,
        packages=[preflight.package_versions(plan.nodes[0], report.probe)],
    ).unbound(late)
    part.run.engine = EngineStart.from_json(engine.to_json())
    part.run.engine.placeholders = {slot.value: text for slot, text in late.items()}
    spec = spec_of(plan.fan_out or FanOut(), request.run.cwd)
    spec.is_array = True
    return _with_files(request, plan, job_facts, part, late, spec=spec)


def _with_files(
    request: StartRequest,
    plan: Plan,
    job_facts: Mapping[Slot, str],
    part: StartRequest,
    late: Mapping[Slot, str],
    *,
    spec: FanOutSpec,
) -> StartRequest:
    """Return the request of a run with the files of its parts, and of what comes after them."""
    run_dir = job_facts[Slot.RUN_DIR]
    part_files = dict(zip((name for name, _ in part.words["files"]), part.data, strict=True))
    files = dict(zip((name for name, _ in request.words["files"]), request.data, strict=True))
    script = next(name for name in files if posixpath.basename(name) == SCRIPT)
    files[script] = _coordinator_script(plan, run_dir, job_facts[Slot.PYTHON])
    files[FanOutSpec.FILE] = json.dumps(spec.to_json(), ensure_ascii=False).encode()
    files |= dict(members.member_files(TEMPLATE, part.run, part_files, late))
    _leave_to_parts(request)
    sizes = [[name, len(body)] for name, body in files.items()]
    return request._replace(words={**request.words, "files": sizes}, data=tuple(files.values()))


def _leave_to_parts(request: StartRequest) -> None:
    """Take from the run what each of its parts does for itself."""
    run = request.run
    run.ranks, run.world_size, run.single, run.rank_logs = 1, 1, "main", False
    run.capture, run.evidence, run.start = False, (), None
    run.success = run.hang = run.recovery = run.again = None
    run.progress, run.logs = (), ()


def _coordinator_script(plan: Plan, run_dir: str, python: str) -> bytes:
    """Return launch.sh; `python` is that of the run's supervisor, which all parts have too."""
    program = posixpath.join(run_dir, PLACE, "coordinator", "coordinate.py")
    argv = [python, "-I", "-S", "-B", program, run_dir]
    line = " ".join(map(quote, argv))
    count = expand.part_count(spec_of(plan.fan_out, "")) if plan.fan_out else 0
    return f"#!/bin/bash\n# {plan.name}: {count} parts\nexec {line}\n".encode()
