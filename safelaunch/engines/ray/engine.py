"""What Ray is to a plan: the answers of `engines.Engine`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.engines import conflicts
from safelaunch.engines.ray.job import body, driver_line, request_path, submission
from safelaunch.errors import HostError, Refused, StartError
from safelaunch.model import BUILT_IN, PlanWarning, Ray
from safelaunch.runtime.engines.errors import SubmitError, UnclearSubmitError, UnreachableEngine
from safelaunch.runtime.engines.ray.allocation import DEVICES as _DEVICES
from safelaunch.runtime.records import EngineStart
from safelaunch.runtime.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.engines.submission import Reason, Submission
    from safelaunch.errors import SafelaunchError
    from safelaunch.model import Job, NodePlan, Origin, Plan, Slot, Word

TITLE = "Ray"
REQUEST = "ray"
HOW_TO_SUBMIT = ""
PRINTS_FILE = False
ONE_SCRIPT = False
RAY_CLUSTER = False
DEVICES = _DEVICES


def _block(plan: Plan) -> Ray:
    if not isinstance(plan.engine, Ray):
        raise TypeError("the plan is not for Ray")
    return plan.engine


def late_values(_plan: Plan) -> Mapping[Slot, Word]:
    """Return nothing: each node fills in its own script as it joins."""
    return {}


def first_lines(_plan: Plan, _node: NodePlan, _script: str) -> Sequence[str]:
    """Return nothing."""
    return ()


def warnings(job: Job, node: NodePlan, accelerator: str) -> Iterator[PlanWarning]:
    """Warn about what a job says itself and Ray decides, and what it does not ask for."""
    block = job.ray
    if block is None:
        return
    devices = conflicts.device_variable(DEVICES, node)
    if devices is not None:
        message = f"{devices.name}={devices.value}, where Ray chooses the GPUs"
        yield PlanWarning("engine-gpus", message, str(devices.origin), "leave it out: Ray sets it")
    yield from conflicts.addresses(job, node, TITLE)
    fix = "gpus: N asks for them all the same"
    yield from conflicts.idle_keys(job, block, accelerator, fix)
    where = str(job.origin("launcher") if block.origin == BUILT_IN else block.origin)
    if accelerator != "cpu" and not block.gpus_per_node:
        message = "no GPUs are asked for, so that the ranks see none, or those of other jobs"
        fix = "gpus: N for each node, or profile `cpu`"
        yield PlanWarning("engine-no-gpus", message, str(job.origin("launcher")), fix)
    if not block.cpus:
        message = "no cores are asked for: Ray may give them to other jobs too"
        yield PlanWarning("engine-no-cores", message, where, "ray: {cpus: N}")


def notes(_job: Job) -> Iterator[str]:
    """Yield nothing: the supervisors run on the nodes, so that all of a job has its effect."""
    yield from ()


def origins(plan: Plan) -> Iterator[tuple[str, Origin]]:
    """Yield the keys that are asked for, each with its origin."""
    block = _block(plan)
    for key, origin in block.job_origins.items():
        yield f"{key} of the job", origin
    for key in ("address", "placement", "placement_timeout"):
        yield f"{key}: {_shown(key, getattr(block, key))}", block.origins.get(key, BUILT_IN)
    for key in ("gpus_per_node", "cpus", "resources", "token_from"):
        if key in block.origins:
            yield f"{key}: {_shown(key, getattr(block, key))}", block.origins[key]


def _shown(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={count}" for name, count in value.items())
    return duration(value) if key == "placement_timeout" else str(value)


def file(plan: Plan, _scripts: Sequence[str]) -> str:
    """Return the request that starts the scripts of the nodes."""
    return body(plan, _block(plan))


def sections(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the request, and the line that Ray then runs."""
    block = _block(plan)
    yield f"POST {block.address.rstrip('/')}/api/jobs/", body(plan, block)
    yield "the line that Ray runs", driver_line(plan, block)


def start(plan: Plan) -> EngineStart:
    """Return how Ray starts the nodes: once."""
    return EngineStart(name=_block(plan).engine_name, may_restart=False)


def request(plan: Plan, place: Submission) -> dict[str, Any]:
    """Return the request, and where it goes."""
    block = _block(plan)
    return {
        "script": [request_path(place), body(plan, block, place)],
        "comment": place.run_id,
        "cluster": block.address.rstrip("/"),
        "token_from": block.token_from,
    }


def secret(plan: Plan) -> str | None:
    """Return the name of the variable that has Ray's token."""
    return _block(plan).token_from


def refusal(reason: Reason) -> SafelaunchError:
    """Return the error of a submission that has failed."""
    kind, words, where = reason.kind, reason.words, reason.host or None
    if kind == UnreachableEngine.__name__:
        hint = "ray: {address: http://HEAD:8265}, as `ray start` prints it; `token_from: NAME` "
        hint += "names the variable with a token; `pip install 'ray[default]'` brings the interface"
        return HostError(words, where=where or "--on ray", hint=hint)
    if kind == UnclearSubmitError.__name__:
        message = f"Ray did not say whether it has accepted the job: {words}"
        hint = f"safelaunch stop {reason.run_id}"
        return HostError(message, where=where or reason.run_id, hint=hint)
    if kind == SubmitError.__name__:
        return Refused(f"Ray does not accept the job: {words}", where=where)
    return StartError(words, where=where)


def to_json(plan: Plan, _scripts: Sequence[str]) -> dict[str, Any]:
    """Return what a start would post, and where each part of it comes from."""
    block = _block(plan)
    return {
        "name": block.engine_name,
        "address": block.address,
        "request": submission(plan, block),
        "origins": [{"request": words, "origin": str(origin)} for words, origin in origins(plan)],
    }
