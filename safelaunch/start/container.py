"""What a start asks of the container of a node, and what it writes down of it."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch import environ
from safelaunch.engines.slurm.container import PYTHON
from safelaunch.errors import Refused
from safelaunch.model import Slot, bind_word
from safelaunch.plan import direct
from safelaunch.plan.container import (
    HOME_FOLDER,
    bind_mounts,
    container_name,
    spec_of,
)
from safelaunch.runtime.commands import CommandResult
from safelaunch.runtime.containers.command_line import run_words, supervisor_words
from safelaunch.runtime.records import ContainerStart
from safelaunch.start import preflight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import NodePlan
    from safelaunch.runtime.containers.image_probe import ContainerReport
    from safelaunch.runtime.records import ContainerSpec

_GATES = {"torch": "torch", "nvidia-nccl-cu12": "nccl", "nvidia-nccl-cu13": "nccl"}


def probe_request(
    node: NodePlan, run_id: str, home: str, base: str
) -> tuple[ContainerSpec, list[str]]:
    """Return what image_probe.py asks for: the container of the run, and the probe's arguments.

    `home` is the user's home folder, `base` safelaunch's folder on the machine.
    """
    if node.container is None:
        raise ValueError("the node runs in no container")
    facts = {Slot.HOME: home, Slot.STORE: base}
    node = replace(node, container=bind_mounts(node.container, facts))
    spec = spec_of(node, bind_word(HOME_FOLDER, facts))
    path = node.env.get("PYTHONPATH")
    search = "" if path is None or path.value is None else str(bind_word(path.value, facts))
    arguments = [str(zlib.crc32(run_id.encode())), str(bind_word(node.cwd, facts)), search]
    return spec, [*arguments, *direct.packages(node)]


def machine_report(
    node: NodePlan, report: ContainerReport, home: str, base: str
) -> preflight.MachineReport:
    """Return what a machine reports by a container of the job's image. Raises Refused."""
    if report.error:
        where = None if node.host == "localhost" else node.host
        raise Refused(report.error, where=where, hint=report.hint or None)
    code, out, err = report.probe
    probe = CommandResult(int(str(code)), str(out), str(err))
    python = str(node.interpreter.path or (node.container and node.container.python) or PYTHON)
    return preflight.MachineReport(home, base, {}, python, "bash", probe, "", report)


def gate_versions(report: ContainerReport) -> dict[str, str]:
    """Return the versions in the image by which gates of a profile are decided."""
    return {
        _GATES[name]: version.partition("+")[0]
        for name, version in report.packages.items()
        if name in _GATES
    }


def start_record(
    node: NodePlan, report: ContainerReport, facts: Mapping[Slot, str]
) -> ContainerStart:
    """Return what run.json says of the container of a bound node."""
    run_id, run_dir = facts[Slot.RUN_ID], facts[Slot.RUN_DIR]
    spec = spec_of(node, bind_word(HOME_FOLDER, facts))
    name, python = container_name(run_id, node.node_rank), str(node.interpreter.path)
    words = run_words(spec, report.machine, name, supervisor_words(python, run_dir), run_dir)
    values = dict(line.split(" ", 1) for line in str(report.probe[1]).splitlines() if " " in line)
    return ContainerStart(
        engine=report.machine.engine,
        name=name,
        image=spec.image,
        image_id=report.image_id,
        argv=words,
        environ=dict(report.environ),
        python=values["version"],
        packages=dict(report.packages),
    )


def passed_variables(node: NodePlan, environ_: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's variables that the container gets."""
    names = environ.inherited(environ_, node.passed)
    return {name: environ_[name] for name in names}
