"""What Kubernetes is to a plan: the answers of `engines.Engine`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.engines import conflicts
from safelaunch.engines.kubernetes.kubectl import create_secret
from safelaunch.engines.kubernetes.manifest import (
    JOB_LABEL,
    JOBSET_LABEL,
    documents,
    first_address,
    object_name,
    size,
)
from safelaunch.engines.kubernetes.yaml_text import dump
from safelaunch.model import (
    BUILT_IN,
    Hang,
    Kubernetes,
    PlanWarning,
    ShellVar,
    Slot,
    Supervision,
    text,
)
from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.start.accelerators import DEVICE_VARIABLES
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.model import Job, NodePlan, Origin, Plan, Word

TITLE = "Kubernetes"
REQUEST = "kubernetes"
HOW_TO_SUBMIT = (
    "add `--dry-run`: safelaunch run --on kubernetes --dry-run JOB.yaml > job.k8s.yaml; "
    "kubectl apply -f job.k8s.yaml"
)
PRINTS_FILE = True
ONE_SCRIPT = True
RAY_CLUSTER = False
DEVICES = ()  # a container sees its own devices alone
_PORT = 29500  # a pod has its own network, and torchrun takes this port by default
# variables of the script, each for a value that a start would fill in
_VARIABLES = {
    slot: ShellVar(f"safelaunch_{slot.name.lower()}")
    for slot in (
        Slot.NODE_RANK, Slot.MASTER_ADDR, Slot.PORT, Slot.INTERFACE, Slot.PYTHON, Slot.PREFIX,
        Slot.THREADS, Slot.RUN_DIR,
    )
}  # fmt: skip


def _request(plan: Plan) -> Kubernetes:
    block = plan.engine
    if not isinstance(block, Kubernetes):
        raise TypeError("the plan is not for Kubernetes")
    return block


# -- the launch script -----------------------------------------------------------------------------


def late_values(plan: Plan) -> Mapping[Slot, Word]:
    """Return the variables of the script, and the name of the job as that of the run."""
    values: dict[Slot, Word] = {slot: text(variable) for slot, variable in _VARIABLES.items()}
    return values | {Slot.RUN_ID: object_name(plan)}


def first_lines(plan: Plan, node: NodePlan, script: str) -> Sequence[str]:
    """Return lines that work out the values, before the variables of a cluster are removed."""
    assignments = _assignments(plan, node)
    lines = [*assignments[Slot.NODE_RANK]] if _names(Slot.NODE_RANK) in script else []
    for slot in (Slot.MASTER_ADDR, Slot.PORT, Slot.INTERFACE):
        lines += assignments[slot] if _names(slot) in script else []
    is_found = _names(Slot.PYTHON) in script or _names(Slot.PREFIX) in script
    lines += assignments[Slot.PYTHON] if is_found else []
    for slot in (Slot.PREFIX, Slot.THREADS, Slot.RUN_DIR):
        lines += assignments[slot] if _names(slot) in script else []
    return ["", "# what a start by safelaunch would fill in", *lines] if lines else []


def _assignments(plan: Plan, node: NodePlan) -> Mapping[Slot, Sequence[str]]:
    """Return the lines that give each variable its value."""
    block = _request(plan)
    address, port = first_address(plan, block.kind), str(_PORT)
    if block.kind == "trainjob":  # its runtime says both
        address, port = f"${{PET_MASTER_ADDR:-{address}}}", f"${{PET_MASTER_PORT:-{port}}}"
    missing = "is set in the pods of an Indexed Job; by hand it is 0 on the first node"
    python, folder = _VARIABLES[Slot.PYTHON], _VARIABLES[Slot.RUN_DIR]
    values: dict[Slot, Sequence[str]] = {
        Slot.NODE_RANK: [f'"${{JOB_COMPLETION_INDEX:?{missing}}}"'],
        Slot.MASTER_ADDR: [f'"${{SAFELAUNCH_MASTER_ADDR:-{address}}}"'],
        Slot.PORT: [f'"${{SAFELAUNCH_MASTER_PORT:-{port}}}"'],
        Slot.INTERFACE: _interface(),
        Slot.PYTHON: [
            "$(command -v python3 || command -v python) || {",
            '  echo "safelaunch: no python3 on the PATH of this image" >&2',
            "  exit 127",
            "}",
        ],
        Slot.PREFIX: [f"${{{python.name}%/*/*}}"],
        Slot.THREADS: _threads(block, node.processes or 1),
        Slot.RUN_DIR: [
            "$(mktemp -d) || exit 1",
            *(f'printf %s {quote(body)} > "{folder}"/{quote(name)}' for name, body in node.files),
        ],
    }
    return {slot: [f"{_names(slot)}={first}", *more] for slot, (first, *more) in values.items()}


def _names(slot: Slot) -> str:
    """Return the name of the variable for a slot."""
    return _VARIABLES[slot].name


def _threads(block: Kubernetes, processes: int) -> list[str]:
    if block.cpu is not None:
        return [str(max(1, block.cpu // processes))]
    name = _names(Slot.THREADS)
    more = [f'[ "${name}" -gt 0 ] || {name}=1'] if processes > 1 else []
    return [f"$(($(nproc) / {processes}))", *more]


def _interface() -> list[str]:
    """Return lines that find the card of the default route, without a program of the image."""
    assignment = f"{_names(Slot.INTERFACE)}=$safelaunch_card"
    return [
        "eth0",
        "while read -r safelaunch_card safelaunch_destination safelaunch_rest; do",
        f'  if [ "$safelaunch_destination" = 00000000 ]; then {assignment}; break; fi',
        "done < /proc/net/route",
    ]


# -- warnings and notes ----------------------------------------------------------------------------


def warnings(job: Job, node: NodePlan, accelerator: str) -> Iterator[PlanWarning]:
    """Warn about what a job says itself and Kubernetes decides, and what it does not ask for."""
    block = job.kubernetes
    if block is None:
        return
    devices = conflicts.device_variable(DEVICE_VARIABLES, node)
    if devices is not None and devices.origin.line:  # those of a launcher count from 0, as pods do
        message = f"{devices.name}={devices.value}, where a container sees its own GPUs alone"
        fix = "leave it out, or count from 0"
        yield PlanWarning("engine-gpus", message, str(devices.origin), fix)
    yield from conflicts.addresses(job, node, TITLE)
    fix = "kubernetes: {gpu_resource: nvidia.com/gpu} asks for them all the same"
    yield from conflicts.idle_keys(job, block, accelerator, fix)
    where = str(job.origin("launcher") if block.origin == BUILT_IN else block.origin)
    if accelerator != "cpu" and not block.gpus_per_node:
        message = "no GPUs are asked for, so that the ranks see none"
        fix = "gpus: N for each node, or profile `cpu`"
        yield PlanWarning("engine-no-gpus", message, str(job.origin("launcher")), fix)
    missing = [key for key in ("cpu", "memory") if getattr(block, key) is None]
    if missing:
        message = f"no {' and no '.join(missing)} asked for: the pods may come where none is left"
        fix = "kubernetes: {cpu: N, memory: SIZE}"
        yield PlanWarning("engine-no-cores", message, where, fix)


def notes(job: Job) -> Iterator[str]:
    """Yield what of a job needs safelaunch itself on the nodes."""
    own, unset = job.supervision, Supervision()
    keys = ("capture", "logs", "log_cap", "progress", "success", "recovery", "ending", "max_cost")
    names = [key for key in keys if getattr(own, key) != getattr(unset, key)]
    names += ["hang"] if own.hang not in (None, Hang()) else []
    names += [key for key in ("log", "inputs", "needs") if key in job.origins]
    if names:
        listed = ", ".join(f"`{name}`" for name in names)
        yield f"no effect on Kubernetes, where safelaunch does not run: {listed}"


# -- what is printed -------------------------------------------------------------------------------


def origins(plan: Plan) -> Iterator[tuple[str, Origin]]:
    """Yield the keys that are asked for, each with its origin."""
    block = _request(plan)
    for key in ("name", "nodes", "max_duration", "env_from"):
        if key in block.job_origins:
            yield f"{key} of the job", block.job_origins[key]
    for key, origin in block.origins.items():
        value = getattr(block, key)
        shown = size(value) if key in ("memory", "shm") and value else _shown(value)
        yield f"{key}: {shown}", origin


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(getattr(item, "path", None) or item.key) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return "removed" if value is None else str(value)


def file(plan: Plan, scripts: Sequence[str]) -> str:
    """Return the manifest, with comments on what to do with it."""
    comments = "".join(f"# {line}\n" for line in _comments(plan))
    return comments + _manifest(plan, scripts)


def _manifest(plan: Plan, scripts: Sequence[str]) -> str:
    return dump(documents(plan, _request(plan), scripts[0]))


def _comments(plan: Plan) -> Iterator[str]:
    block, name, nodes = _request(plan), object_name(plan), plan.topology.nodes
    count = f"{nodes} node{'s' * (nodes > 1)} x {plan.topology.processes}"
    yield f"{plan.name}: {plan.launcher}, {count} on Kubernetes, profile {plan.profile or 'none'}"
    where = f" -n {block.namespace}" if block.namespace else ""
    label = JOBSET_LABEL if block.kind == "trainjob" else JOB_LABEL
    if plan.nodes[0].secrets:
        line = create_secret(block.secret_name or "", plan.nodes[0].secrets, where)
        yield f"before   {line}"
    yield "submit   kubectl apply -f FILE"
    follow = f"kubectl{where} logs -f --prefix -l {label}={name}"
    yield f"follow   {follow} --max-log-requests {nodes}"
    yield "remove   kubectl delete -f FILE, also before this name is used again"
    yield "Kubernetes starts the launcher itself. In its pods there is no safelaunch that names the"
    yield "cause of a failure, restarts by its class, notices a hang or keeps a record for `ps`."
    for note in plan.notes:
        yield printable(" ".join(note.split()))


def to_json(plan: Plan, scripts: Sequence[str]) -> dict[str, Any]:
    """Return the objects, and the manifest as text."""
    block = _request(plan)
    return {
        "name": block.engine_name,
        "documents": documents(plan, block, scripts[0]),
        "manifest": _manifest(plan, scripts),
        "origins": [{"request": words, "origin": str(origin)} for words, origin in origins(plan)],
    }
