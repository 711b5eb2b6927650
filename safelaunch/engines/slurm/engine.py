"""What Slurm is to a plan: the answers of `engines.Engine`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.engines import conflicts
from safelaunch.engines.slurm import refusals
from safelaunch.engines.slurm.batch_script import sbatch_script, script_path, submit_line
from safelaunch.engines.slurm.directives import SCRIPT, comment, directives
from safelaunch.engines.submission import PLACEHOLDERS
from safelaunch.model import BUILT_IN, PlanWarning, Slurm
from safelaunch.runtime.records import EngineStart
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.engines.submission import Reason, Submission
    from safelaunch.errors import SafelaunchError
    from safelaunch.model import Job, NodePlan, Origin, Plan, Slot, Word

TITLE = "Slurm"
REQUEST = "sbatch"
HOW_TO_SUBMIT = ""
PRINTS_FILE = False
ONE_SCRIPT = False
RAY_CLUSTER = True
# variables by which Slurm tells a step its GPUs (slurm.conf, gres.conf: gpu/nvml, gpu/rsmi,
# gpu/oneapi); a program that does not inherit them sees those of other jobs too
DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


def late_values(_plan: Plan) -> Mapping[Slot, Word]:
    """Return nothing: each node fills in its own script as it joins."""
    return {}


def first_lines(_plan: Plan, _node: NodePlan, _script: str) -> Sequence[str]:
    """Return nothing."""
    return ()


def warnings(job: Job, node: NodePlan, accelerator: str) -> Iterator[PlanWarning]:
    """Warn about what a job says itself and Slurm decides, and what it does not ask for."""
    if job.slurm is None:
        return
    devices = conflicts.device_variable(DEVICES, node)
    if devices is not None:
        message = f"{devices.name}={devices.value}, where Slurm chooses the GPUs"
        origin, fix = devices.origin, "leave it out: Slurm sets it"
        if origin.source.startswith("launcher"):
            fix = "right only where Slurm hides those of other jobs (cgroup.conf, ConstrainDevices)"
        yield PlanWarning("engine-gpus", message, str(origin), fix)
    yield from conflicts.addresses(job, node, TITLE)
    fix = "gpus: N asks for them all the same"
    yield from conflicts.idle_keys(job, job.slurm, accelerator, fix)
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


def notes(_job: Job) -> Iterator[str]:
    """Yield nothing: the supervisors run on the nodes, so that all of a job has its effect."""
    yield from ()


def origins(plan: Plan) -> Iterator[tuple[str, Origin]]:
    """Yield each option of sbatch with its origin."""
    for directive in directives(plan, PLACEHOLDERS):
        yield " ".join(map(quote, directive.words)), directive.origin


def file(plan: Plan, _scripts: Sequence[str]) -> str:
    """Return the batch script, which starts the scripts of the nodes."""
    return sbatch_script(plan)


def sections(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the batch script, and how it is submitted."""
    yield SCRIPT, sbatch_script(plan)
    yield "the line that submits it", " ".join(map(quote, submit_line(plan, script_path())))


def _block(plan: Plan) -> Slurm:
    if not isinstance(plan.engine, Slurm):
        raise TypeError("the plan is not for Slurm")
    return plan.engine


def start(plan: Plan) -> EngineStart:
    """Return how Slurm starts the nodes: with a warning of the time limit, and maybe again."""
    block = _block(plan)
    begin = EngineStart(name=block.engine_name, notice=block.signal)
    begin.can_resume = block.requeue and plan.nodes[0].resume_argv is not None
    return begin


def request(plan: Plan, place: Submission) -> dict[str, Any]:
    """Return the script, the line that submits it, and the words before Slurm's programs."""
    path = script_path(place)
    return {
        "script": [path, sbatch_script(plan, place)],
        "submit": submit_line(plan, path),
        "comment": comment(place),
        "prefix": _block(plan).prefix,
    }


def secret(_plan: Plan) -> str | None:
    """Return nothing: Slurm knows the user."""
    return None


def refusal(reason: Reason) -> SafelaunchError:
    """Return the error of a submission that has failed."""
    return refusals.refusal(reason)


def to_json(plan: Plan, _scripts: Sequence[str]) -> dict[str, Any]:
    """Return what a start would submit, and where each of its options comes from."""
    return {
        "name": "slurm",
        "submit": list(submit_line(plan, script_path())),
        "script": sbatch_script(plan),
        "directives": [
            {"words": list(directive.words), "origin": str(directive.origin)}
            for directive in directives(plan, PLACEHOLDERS)
        ],
    }
