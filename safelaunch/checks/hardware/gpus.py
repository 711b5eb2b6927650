"""Checks which GPUs of a host the job gets: their number, their order, and slices of them.

profile_fit.py compares them with the profile, gpu_state.py has their state, interconnect.py their
connections, resources.py the memory and disks that the job needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.checks import visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, fail, ok, warn
from safelaunch.checks.registry import check
from safelaunch.model import BUILT_IN

if TYPE_CHECKING:
    from safelaunch.checks.answers import Question
    from safelaunch.checks.context import HostContext
    from safelaunch.checks.visible_gpus import VisibleGpus

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
    is_cuda = visible_gpus.kind_name(host) == "cuda"
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
        evidence = f"{visible.variable}={value} of {visible.origin} shows "
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
    names = ", ".join(visible.missing)
    evidence = f"{visible.variable} ({visible.origin}) names {names}"
    if visible.below:
        return f"{evidence}, and counts from 0 what {visible.below} has left"
    return f"{evidence}; the GPUs are {visible_gpus.indices(visible_gpus.all_gpus(host))}"


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
