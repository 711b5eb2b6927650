"""What differs in the plan of a job whose machines an engine chooses: they are not known yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.launchers import load as load_launcher
from safelaunch.model import BUILT_IN, PlanWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.model import Job, NodePlan, Slurm

# variables by which Slurm tells a step its GPUs (slurm.conf, gres.conf: gpu/nvml, gpu/rsmi,
# gpu/oneapi); a program that does not inherit them sees those of other jobs too
DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


def node_name(rank: int) -> str:
    """Return what stands for the name of a node that the engine will choose."""
    return f"<node-{rank}>"


def warnings(job: Job, node: NodePlan, accelerator: str) -> Iterator[PlanWarning]:
    """Warn about what a job says itself and the engine decides, and what it does not ask for."""
    if job.slurm is None:
        return
    devices = next((name for name in DEVICES if name in node.env), None)
    if devices is not None and node.env[devices].value:  # empty: no GPU is wanted
        message = f"{devices}={node.env[devices].value}, where Slurm chooses the GPUs"
        origin, fix = node.env[devices].origin, "leave it out: Slurm sets it"
        if origin.source.startswith("launcher"):
            fix = "right only where Slurm hides those of other jobs (cgroup.conf, ConstrainDevices)"
        yield PlanWarning("engine-gpus", message, str(origin), fix)
    if job.topology.nodes > 1:
        meeting = load_launcher(job.launcher).rendezvous(job, node.env)
        for address, setting in meeting.addresses:
            message = f"{setting} is {address}, where Slurm chooses the nodes"
            fix = "leave it out: the first node's address is measured"
            yield PlanWarning("engine-address", message, str(job.origin("launcher_args")), fix)
    yield from _requests(job, job.slurm, accelerator)


def _requests(job: Job, block: Slurm, accelerator: str) -> Iterator[PlanWarning]:
    where = str(job.origin("launcher") if block.origin == BUILT_IN else block.origin)
    has_gpus = block.gpus_per_node or any(
        word.startswith(("--gres", "--gpus", "-G")) for o in block.options for word in o.words[:1]
    )
    if accelerator != "cpu" and not has_gpus:
        message = "no GPUs are asked for, so that the ranks see none, or those of other jobs"
        fix = "gpus: N for each node, or profile `cpu`"
        yield PlanWarning("engine-no-gpus", message, str(job.origin("launcher")), fix)
    says_cpus = block.cpus_per_task or (block.cpus_per_gpu and block.gpus_per_node)
    if not says_cpus and not block.exclusive:
        message = "no cores are asked for: most sites then give each node one"
        fix = "slurm: {cpus_per_gpu: N} or {cpus_per_task: N}"
        yield PlanWarning("engine-no-cores", message, where, fix)
    limit, own = block.time, job.supervision.max_duration
    if limit is not None and own is not None and limit < own:
        message = "Slurm ends the job before `max_duration` does"
        yield PlanWarning("engine-time", message, str(block.origins["time"]), "raise `time`")
