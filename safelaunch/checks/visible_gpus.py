"""Which GPUs of a host a job uses: what its plan leaves of CUDA_VISIBLE_DEVICES and its like."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch import environ
from safelaunch.checks.answers import NotKnown
from safelaunch.checks.job_options import first_value, inherited_environ, options
from safelaunch.model import Slot, Template
from safelaunch.runtime.start.accelerators import ACCELERATORS, select, split_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from safelaunch.checks.context import HostContext
    from safelaunch.model import EnvVar
    from safelaunch.runtime.start.accelerators import Accelerator, Selected

Gpu = dict[str, Any]  # an entry of `gpus.cards` of the facts


class VisibleGpus(NamedTuple):
    """The GPUs that a job sees. `words` are those of the variables; None: all GPUs."""

    words: tuple[str, ...] | None
    gpus: tuple[Gpu, ...]
    missing: tuple[str, ...]  # words that name no GPU
    origin: str = ""  # what sets the variable
    variable: str = ""
    below: str = ""  # the setting of the runtime below, which the variable's indices count in


def kind(host: HostContext) -> Accelerator:
    """Return the names of the accelerators that the job's profile is for; else of the host's."""
    return ACCELERATORS[kind_name(host)]


def kind_name(host: HostContext) -> str:
    """Return the kind of accelerator of the job's profile; else the one that the host has."""
    if host.profile is not None:
        return host.profile.accelerator
    if not host.get("gpus", "cards"):
        others = {gpu["accelerator"] for gpu in host.get("gpus", "others") or ()}
        if len(others) == 1:
            return str(others.pop())
    return "cuda"


def all_gpus(host: HostContext) -> list[Gpu]:
    """Return all GPUs of the host, or what the job's profile is for. Raises NotKnown."""
    if kind_name(host) not in ("cuda", "cpu"):
        others: list[Gpu] | None = host.get("gpus", "others")
        if others is None:
            raise NotKnown(f"the {kind(host).title}s are not known")
        return [gpu for gpu in others if gpu["accelerator"] == kind_name(host)]
    gpus: list[Gpu] | None = host.get("gpus", "cards")
    if not gpus and host.get("gpus", "count") is None:
        late = host.get("gpus", "late", "query")
        raise NotKnown(f"the GPUs are not known: {late or 'nvidia-smi reports nothing'}")
    return gpus or []


def has_gpus(host: HostContext) -> bool:
    """Whether the host has NVIDIA GPUs and the job may compute on them. Raises NotKnown."""
    return needs_gpu(host) is not False and bool(all_gpus(host))


def has_devices(host: HostContext) -> bool:
    """Whether the host has devices of the kind that the job needs. Raises NotKnown."""
    return needs_device(host) is not False and bool(all_gpus(host))


def visible(host: HostContext) -> VisibleGpus:
    """Return the GPUs that the job's processes see, in their order. Raises NotKnown.

    What follows a name of no GPU is not visible either (CUDA programming guide).
    """
    gpus = all_gpus(host)
    selected = selection(host)
    if selected is None:
        return VisibleGpus(None, tuple(gpus), ())
    words = list(dict.fromkeys(selected.words))  # `variables` says what a repeated one does
    named = [_named(word, gpus, host.get("gpus", "slices")) for word in words]
    missing = [word for word, gpu in zip(words, named, strict=True) if gpu is None]
    return VisibleGpus(
        split_words(selected.value),
        tuple(filter(None, itertools.takewhile(bool, named))),
        (*missing, *selected.missing),
        setting(host, selected.variable)[1],
        selected.variable,
        selected.below,
    )


def selection(host: HostContext) -> Selected | None:
    """Return which devices the job's variables leave, on all levels; None: all of them."""
    levels = kind(host).levels
    return select(kind(host), {n: setting(host, n)[0] for level in levels for n in level})


def _named(word: str, gpus: Sequence[Gpu], slices: Sequence[Gpu] | None) -> Gpu | None:
    """Return the GPU that a word names: an index, a UUID or its beginning, a slice of it."""
    if word.startswith("MIG-"):
        if slices is None:
            raise NotKnown("the slices of the GPUs are not known")
        index = next((s["card"] for s in slices if str(s["uuid"]).startswith(word)), None)
        return next((gpu for gpu in gpus if gpu["index"] == index), None)
    for gpu in gpus:
        is_uuid = word.startswith("GPU-") and str(gpu["uuid"]).startswith(word)
        if is_uuid or word == str(gpu["index"]):
            return gpu
    if word.startswith("GPU-") and any(gpu["uuid"] is None for gpu in gpus):
        raise NotKnown("the UUIDs of the GPUs are not known")
    return None


def as_indices(host: HostContext, words: Iterable[str]) -> set[str]:
    """Return names of GPUs as indices where the host's GPUs are known, so that they compare."""
    indices = set()
    for word in words:
        try:
            gpu = _named(word, all_gpus(host), host.get("gpus", "slices"))
        except NotKnown:
            gpu = None
        # two slices of a GPU are not the same
        indices.add(word if gpu is None or word.startswith("MIG-") else str(gpu["index"]))
    return indices


def visible_devices(host: HostContext) -> tuple[str | None, str]:
    """Return what selects the job's devices as it will be, and what sets it; None: not set."""
    selected = selection(host)
    if selected is None:
        return None, ""
    return ",".join((*selected.words, *selected.missing)), setting(host, selected.variable)[1]


def setting(host: HostContext, name: str) -> tuple[str | None, str]:
    """Return the value that a variable will have in the job, and what sets it; None: not set."""
    if host.node is None:
        return None, ""
    if name in host.node.env and not is_late(host.node.env[name]):
        var = host.node.env[name]
        return (None if var.value is None else str(var.value)), str(var.origin)
    if host.node.keep is not None and not environ.matches(name, host.node.keep):
        return None, ""
    origin = "your environment" if host.is_local else "the host's environment"
    return inherited_environ(host).get(name), origin


def is_late(var: EnvVar) -> bool:
    """Whether the queue of the machine gives a variable its value, once it is the run's turn."""
    return isinstance(var.value, Template) and Slot.CARDS in var.value.parts


def needs_gpu(host: HostContext) -> bool | None:
    """Whether the job is to compute on NVIDIA GPUs of the host; None where nothing says so."""
    return needs_device(host) if kind_name(host) == "cuda" else False


def needs_device(host: HostContext) -> bool | None:
    """Whether the job is to compute on GPUs or NPUs; None where nothing says so."""
    if host.profile is not None:
        return host.profile.accelerator != "cpu"
    if host.node is None:
        return None
    value, _ = visible_devices(host)
    if value is not None and value.strip() in ("", "-1", "NoDevFiles"):
        return False
    var = host.node.env.get("ACCELERATE_USE_CPU")
    if host.job.launcher_args.has("cpu") or (var is not None and var.value == "true"):
        return False
    if "gpus" in host.job.origins or host.job.needs.gpu_memory is not None:
        return True
    # nanoGPT's `--device=cpu` and its like
    return False if first_value(options(host.job), "device") == "cpu" else None


def is_other_vendor(host: HostContext) -> bool:
    """Whether the host computes on GPUs of another vendor than NVIDIA."""
    others = host.get("gpus", "other_tools") and not host.get("gpus", "cards")
    return bool(host.get("torch", "hip") or others)


def ranks(host: HostContext, visible: VisibleGpus) -> int:
    """Return how many ranks the job starts there."""
    processes = host.plan.processes
    return len(visible.gpus) if processes is None else processes


def names(gpus: Sequence[Gpu]) -> str:
    """Return the names of GPUs as a line: `4 x NVIDIA A100-SXM4-80GB`."""
    counts = Counter(str(gpu["name"] or "without a name") for gpu in gpus)
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def indices(gpus: Iterable[Gpu]) -> str:
    """Return the indices of GPUs as a job file lists them: `[0, 1]`."""
    return str([gpu["index"] for gpu in gpus])
