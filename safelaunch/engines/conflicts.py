"""Warnings about what a job says itself, where any engine decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.launchers import load as load_launcher
from safelaunch.model import PlanWarning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.model import EngineBlock, EnvVar, Job, NodePlan


def device_variable(names: Sequence[str], node: NodePlan) -> EnvVar | None:
    """Return the variable by which a job itself names the GPUs of its ranks."""
    name = next((name for name in names if name in node.env), None)
    # an empty value: no GPU is wanted
    return node.env[name] if name is not None and node.env[name].value else None


def addresses(job: Job, node: NodePlan, title: str) -> Iterator[PlanWarning]:
    """Warn about addresses of node 0 that the job fixes."""
    if job.topology.nodes == 1:
        return
    meeting = load_launcher(job.launcher).rendezvous(job, node.env)
    for address, setting in meeting.addresses:
        message = f"{setting} is {address}, where {title} chooses the nodes"
        fix = "leave it out: that of the first node is filled in"
        yield PlanWarning("engine-address", message, str(job.origin("launcher_args")), fix)


def idle_keys(job: Job, block: EngineBlock, accelerator: str, fix: str) -> Iterator[PlanWarning]:
    """Warn that a block counts by GPUs, where the profile has none."""
    if not block.idle:
        return
    gpus = job.origins.get("gpus")
    names = ["gpus" if origin == gpus else key for key, origin in block.idle.items()]
    shown = ", ".join(f"`{name}`" for name in names)
    message = f"the profile is for {accelerator}: no GPUs are asked for, {shown} without effect"
    yield PlanWarning("engine-idle-keys", message, str(next(iter(block.idle.values()))), fix)
