"""Checks the GPUs of a host: their number, whether the profile fits, and what the job needs.

gpu_state.py has their state, interconnect.py their connections, resources.py the memory and disks
that the job needs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.checks import job_options, visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, fail, ok, warn
from safelaunch.checks.registry import check
from safelaunch.config import profiles
from safelaunch.hostfacts import profile_detection
from safelaunch.model import BUILT_IN
from safelaunch.plan import gates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.checks.answers import Question
    from safelaunch.checks.context import HostContext
    from safelaunch.checks.visible_gpus import Gpu, VisibleGpus
    from safelaunch.model import Profile

_CUDA_GUIDE = "NVIDIA CUDA programming guide, environment variables"
_MIG = "NVIDIA MIG user guide, CUDA device enumeration"
# GPUs that /proc/driver/nvidia does not show: AMD, WSL, Jetson; and NVIDIA's own device
_DEVICES = ("/dev/kfd", "/dev/dxg", "/dev/nvmap", "/dev/nvidiactl")


def _devices(_: HostContext) -> list[Question]:
    return [("path", device) for device in _DEVICES]


@check("gpu-count", asks=_devices, needs=("gpus",), quick=True, source=_CUDA_GUIDE)
def count(host: HostContext) -> Answer | None:
    """Whether each rank that needs a GPU has one."""
    is_needed = visible_gpus.needs_device(host)
    is_cuda = host.profile is None or host.profile.accelerator == "cuda"
    if is_needed is False or (is_cuda and visible_gpus.is_other_vendor(host)):
        return None
    total = len(visible_gpus.all_gpus(host))
    if not total:
        return _no_gpus(host) if is_needed else None
    visible = visible_gpus.visible(host)
    one_per_rank = launchers.load(host.job.launcher).binds_gpus(host.job)
    needed = max(visible_gpus.ranks(host, visible), 1) if one_per_rank else 1
    if is_needed is None and not visible.gpus:
        return None
    if len(visible.gpus) < needed:
        evidence, hint = _too_few(host, visible, needed)
        return fail(evidence, hint) if is_needed else warn(evidence, hint)
    if visible.missing:
        hint = _selection(host, visible, max(len(visible.gpus), 1))
        return warn(_missing(host, visible), hint)
    who = f"{needed} rank{'s' * (needed > 1)}" if one_per_rank else "the job"
    return ok(f"{len(visible.gpus)} of {total} GPUs for {who}")


def _no_gpus(host: HostContext) -> Answer:
    if host.profile is not None and host.profile.accelerator != "cuda":
        kind = visible_gpus.kind(host)
        return fail(
            f"there is no {kind.title}; profile `{host.profile.name}` needs some",
            f"install the driver, until `{kind.tool}` lists them, or give the container its "
            "devices; `safelaunch profiles --detect` names the right profile",
        )
    for device in _DEVICES:
        if host.answer("path", device)["kind"] is not None:
            raise NotKnown(f"no GPU is visible, but {device} exists")
    tool = host.get("gpus", "nvidia_smi")
    if tool and not host.get("gpus", "troubles"):  # it would report that there are none
        raise NotKnown(f"{tool} reports no GPU, and no error either")
    key = "`gpus:`" if "gpus" in host.job.origins else "`needs.gpu_memory`"
    who = f"profile `{host.profile.name}`" if host.profile else key
    hint = "install NVIDIA's driver, until `nvidia-smi` lists the GPUs"
    if host.get("system", "container"):
        hint = "start the container with its GPUs: `docker run --gpus all ...`"
    count = "" if host.plan.processes is not None else " --set gpus=null --set processes=1"
    return fail(
        f"there is no NVIDIA GPU and no driver; {who} needs GPUs",
        f"{hint}; or run on the CPU: `--profile cpu{count}`",
        "PyTorch documentation, CUDA semantics",
    )


def _too_few(host: HostContext, visible: VisibleGpus, needed: int) -> tuple[str, str]:
    """Return evidence and hint where the job sees fewer GPUs than it needs."""
    total = len(visible_gpus.all_gpus(host))
    if visible.missing:
        evidence = _missing(host, visible)
    elif visible.words is not None and total >= needed:
        value = ",".join(visible.words)
        variable = visible_gpus.kind(host).devices
        evidence = f"{variable}={value} of {visible.origin} shows "
        evidence += _counted(len(visible.gpus))
    else:
        evidence = f"the machine has {_counted(total)}"
    evidence += f", and {needed} ranks need one each" if needed > 1 else ", and the job needs one"
    if total >= needed:
        return evidence, _selection(host, visible, needed)
    keys = [key for key in ("processes", "gpus") if key in host.job.origins] or ["gpus"]
    return evidence, "`" + " ".join(f"--set {key}={total}" for key in keys) + "`"


def _counted(number: int) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}"


def _missing(host: HostContext, visible: VisibleGpus) -> str:
    existing = visible_gpus.indices(visible_gpus.all_gpus(host))
    names = ", ".join(visible.missing)
    variable = visible_gpus.kind(host).devices
    return f"{variable} ({visible.origin}) names {names}; the GPUs are {existing}"


def _selection(host: HostContext, visible: VisibleGpus, needed: int) -> str:
    """Return how the job selects existing GPUs."""
    indices = visible_gpus.indices(visible_gpus.all_gpus(host)[:needed])
    variable = visible_gpus.kind(host).devices
    if "gpus" not in host.job.origins and host.job.origin("env") != BUILT_IN:
        return f"remove {variable} from `env:`, and select GPUs with `gpus: {indices}`"
    option = f"`--set 'gpus={indices}'`"
    if visible.origin in ("your environment", "the host's environment"):
        return f"`unset {variable}`, or select the job's GPUs: {option}"
    return option


@check("gpu-order", needs=("gpus",), quick=True, source=_CUDA_GUIDE)
def order(host: HostContext) -> Answer | None:
    """Whether CUDA and nvidia-smi number the GPUs alike, where GPUs differ."""
    gpus = visible_gpus.all_gpus(host)
    indices = [word for word in visible_gpus.visible(host).words or () if word.isdigit()]
    if len({gpu["name"] for gpu in gpus}) < 2 or not indices:  # noqa: PLR2004 - different
        return None
    if visible_gpus.needs_gpu(host) is False:
        return None
    name = "CUDA_DEVICE_ORDER"
    var = host.plan.env.get(name)
    value = host.context.environ.get(name) if var is None and host.is_local else var and var.value
    if value == "PCI_BUS_ID":
        return ok("GPUs are numbered as in nvidia-smi")
    return warn(
        f"the GPUs differ ({visible_gpus.names(gpus)}), and CUDA counts the fastest "
        f"first: {', '.join(indices)} may not be nvidia-smi's",
        "`env: {CUDA_DEVICE_ORDER: PCI_BUS_ID}`",
    )


@check("gpu-slices", needs=("gpus",), source=_MIG)
def slices(host: HostContext) -> Answer | None:
    """Whether not several ranks share GPUs in MIG slices: each process sees one slice."""
    if not visible_gpus.has_gpus(host):
        return None
    visible = visible_gpus.visible(host)
    sliced = [gpu for gpu in visible.gpus if gpu.get("mig")]
    if not sliced:
        return None
    ranks = visible_gpus.ranks(host, visible)
    if ranks < 2:  # noqa: PLR2004 - several
        return ok(f"one process on a slice of GPU {sliced[0]['index']}")
    whole = [gpu for gpu in visible_gpus.all_gpus(host) if not gpu.get("mig")]
    other = f"`--set 'gpus={visible_gpus.indices(whole)}'` uses the whole GPUs; " if whole else ""
    return warn(
        f"{_counted(len(sliced))} in MIG slices, and a process sees one slice: {ranks} ranks "
        "cannot use one each",
        f"{other}`--set processes=1` runs on one slice; `sudo nvidia-smi -mig 0` joins the slices",
    )


@check("profile-fits", job=False, needs=("gpus",), quick=True)
def profile_fits(host: HostContext) -> Answer | None:
    """Whether the profile is for the GPUs that the job uses; else names the right one."""
    profile = host.profile
    is_cuda = profile is None or profile.accelerator == "cuda"
    if (is_cuda and visible_gpus.is_other_vendor(host)) or not visible_gpus.has_devices(host):
        return None
    gpus = [gpu for gpu in visible_gpus.visible(host).gpus if gpu["name"]]
    if profile is None and gpus:
        return _no_profile(host, gpus)
    if profile is None or not gpus or not profile.gpu_names:
        return None
    fitting = [gpu for gpu in gpus if re.fullmatch(profile.gpu_names, gpu["name"])]
    if len(fitting) == len(gpus):
        return ok(f"profile {profile.name} is for {visible_gpus.names(gpus)}")
    right = _matching_profile(gpus)
    if right is not None:
        hint = f"`--profile {right}`"
    elif fitting and host.node is not None:
        hint = f"`gpus: {visible_gpus.indices(fitting)}` uses only the GPUs that it is for"
    else:
        resolved = host.context.resolved
        where = "its entry" if resolved is None else resolved.profile_origin
        hint = f"no built-in profile is for them: remove `profile` ({where})"
    return warn(
        f"profile `{profile.name}` is for {profile.description or profile.gpu_names}; "
        f"the GPUs are {visible_gpus.names(gpus)}",
        hint,
        ", ".join(profile.files),
    )


def _matching_profile(gpus: Sequence[Gpu]) -> str | None:
    built_in = profiles.of_gpus({str(gpu["name"]) for gpu in gpus})
    return profile_detection.match_profile({"gpus": {"cards": gpus}}, built_in).profile


def _no_profile(host: HostContext, gpus: Sequence[Gpu]) -> Answer | None:
    """Return which profile fits; a missing one only matters where it would set variables."""
    right = _matching_profile(gpus)
    if right is None:
        return None
    if host.node is None:
        return ok(f"{visible_gpus.names(gpus)}: profile {right} is for them")
    facts = {**profile_detection.gate_facts(host.facts), **host.entry.facts}
    profile = profiles.load(right, BUILT_IN, ".")
    selected = _select(host, profile, facts, len(gpus))
    names = [var.name for var in selected.env if var.name not in host.plan.env]
    if not names:
        return ok(f"profile {right} fits, and would set nothing here")
    return warn(
        f"no profile: {right} is for {visible_gpus.names(gpus)}, and sets {', '.join(names)}",
        f"`--profile {right}`; `safelaunch profiles {right}` explains it",
    )


def _select(
    host: HostContext, profile: Profile, facts: dict[str, str], count: int
) -> gates.SelectedVariables:
    """Return what a profile sets for the job if these facts are declared."""
    gpus = len(host.job.gpus) or host.job.topology.processes or count
    conditions = gates.DeclaredFacts(gpus, host.job.topology.nodes, facts)
    return gates.select(profile, conditions, ladder=None, workarounds=True)


@check("profile-facts")
def profile_facts(host: HostContext) -> Answer | None:
    """Whether no variable is set only because the hosts file declares no facts."""
    profile, real = host.profile, profile_detection.gate_facts(host.facts)
    if profile is None or profile.accelerator != "cuda" or not real:
        return None
    count = visible_gpus.ranks(host, visible_gpus.visible(host))
    before = _select(host, profile, dict(host.entry.facts), count)
    after = _select(host, profile, {**real, **host.entry.facts}, count)
    needed, env = {var.name for var in after.env}, host.plan.env
    unneeded = [
        var.name
        for var in before.env
        if var.name not in needed and var.name in env and env[var.name].origin == var.origin
    ]
    if not unneeded:
        is_known = real.keys() >= before.undeclared.keys()
        return ok("the profile's conditions agree with the host's facts") if is_known else None
    closed = {
        gate.key: real[gate.key]
        for name in unneeded
        for gate in before.open_gates.get(name, ())
        if gate.key in real and not gates.holds(real[gate.key], gate.condition, gate.origin)
    }
    facts = ", ".join(f"{fact} is {value}" for fact, value in closed.items())
    job = job_options.command_line(host)
    hint = f"`safelaunch check --host {host.name} --save {job}` writes it into the hosts file"
    if host.is_local:
        hint = f"`safelaunch check --save {job}` writes it into a hosts file, and prints how `run` "
        hint += "reads that"
    return warn(
        f"{', '.join(unneeded)} set only because the hosts file lacks facts: {facts}, which does "
        "not need them",
        hint,
        "docs/job-file.md, Profile",
    )


# least compute capability, what happens below it, source
_PRECISIONS = {
    "bf16": (
        (8, 0),
        "bf16 is refused there, or emulated and slow",
        "NVIDIA CUDA programming guide, compute capabilities; accelerate, is_bf16_available",
    ),
    "fp8": (
        (8, 9),
        "FP8 is refused there, or ignored",
        "Transformer Engine documentation; accelerate, check_cuda_fp8_capability",
    ),
}
_DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "fp8": "fp8", "float8": "fp8"}


@check("precision", needs=("gpus",))
def precision(host: HostContext) -> Answer | None:
    """Whether the GPUs support the precision of the job."""
    name, words, key = _requested_precision(host)
    if not name or not visible_gpus.has_gpus(host):
        return None
    capabilities = [
        ((int(match[1]), int(match[2])), gpu)
        for gpu in visible_gpus.visible(host).gpus
        if (match := re.fullmatch(r"(\d{1,3})\.(\d{1,3})", str(gpu["compute_capability"])))
    ]
    if not capabilities:
        raise NotKnown("the compute capability of the GPUs is not known")
    least, problem, source = _PRECISIONS[name]
    lowest = min(capability for capability, _ in capabilities)
    old = [gpu for capability, gpu in capabilities if capability < least]
    if not old:
        return ok(f"compute capability {lowest[0]}.{lowest[1]} has {name}")
    other = "bf16" if name == "fp8" and lowest >= _PRECISIONS["bf16"][0] else "fp16"
    return warn(
        f"`{words}`, and {visible_gpus.names(old)} has compute capability "
        f"{old[0]['compute_capability']}: {problem}",
        _other_precision(host, key, words, other),
        source,
    )


def _requested_precision(host: HostContext) -> tuple[str, str, str]:
    """Return the precision that the job sets, the words that set it, and their key.

    The key is `mixed_precision` of the job, or an option of its program.
    """
    job = host.job
    if job.mixed_precision in _PRECISIONS:
        return job.mixed_precision, f"mixed_precision: {job.mixed_precision}", "mixed_precision"
    options = job_options.options(job)
    for name in _PRECISIONS:
        if job_options.is_on(options, name):
            return name, f"--{name}", f"args.{name}"
    for key in ("torch_dtype", "dtype"):
        value = job_options.first_value(options, key)
        if value in _DTYPES:
            return _DTYPES[value], f"--{key} {value}", f"args.{key}"
    return "", "", ""


def _other_precision(host: HostContext, key: str, words: str, other: str) -> str:
    """Return how the job sets another precision."""
    if key == "mixed_precision":
        return f"`--set mixed_precision={other}`"
    if not host.job.args.is_mapping:
        return f"give the program {other} in place of `{words}`"
    if key.endswith("dtype"):
        return f"`--set {key}={'bfloat16' if other == 'bf16' else 'float16'}`"
    return f"`--set {key}=null --set args.{other}=true`"
