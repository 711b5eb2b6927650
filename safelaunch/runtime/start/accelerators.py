"""What differs between kinds of accelerators: the variables that select devices and interfaces."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Accelerator(NamedTuple):
    """The names that a kind of accelerator has for what every job needs."""

    devices: str  # the variable that selects the devices of a process
    interface: str  # the variable that names the network interface of its collectives
    title: str  # what one device is called, for messages
    tool: str  # the program of its driver that lists the devices
    # what its runtimes read, the lowest first: each level counts what the one below has left, and
    # of the names of a level the first that is set counts
    levels: tuple[tuple[str, ...], ...]


class Selected(NamedTuple):
    """What the variables of all levels leave."""

    words: tuple[str, ...]  # as the driver's tool counts or names the devices
    missing: tuple[str, ...]  # words of the last variable that name no device of the level below
    variable: str  # the last variable
    value: str
    below: str = ""  # variable and value of the level below it


_CUDA = (("CUDA_VISIBLE_DEVICES",),)
# ROCm documentation, "GPU isolation techniques": ROCR_VISIBLE_DEVICES is of the runtime below HIP;
# clr, rocdevice.cpp: HIP reads CUDA_VISIBLE_DEVICES where HIP_VISIBLE_DEVICES is not set or empty
_ROCM = (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))

ACCELERATORS: Mapping[str, Accelerator] = {
    "cuda": Accelerator(
        "CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "NVIDIA GPU", "nvidia-smi", _CUDA
    ),
    "cpu": Accelerator("CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "CPU", "lscpu", _CUDA),
    "rocm": Accelerator("HIP_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "AMD GPU", "amd-smi", _ROCM),
    "npu": Accelerator(
        "ASCEND_RT_VISIBLE_DEVICES",
        "HCCL_SOCKET_IFNAME",
        "Ascend NPU",
        "npu-smi",
        (("ASCEND_RT_VISIBLE_DEVICES",),),
    ),
}
# each variable once, that of CUDA first
DEVICE_VARIABLES = tuple(
    dict.fromkeys(
        name for kind in ACCELERATORS.values() for level in reversed(kind.levels) for name in level
    )
)


def split_words(value: str) -> tuple[str, ...]:
    """Return the words of a CUDA_VISIBLE_DEVICES, or of its like."""
    return tuple(word.strip() for word in value.split(",") if word.strip())


def select(accelerator: Accelerator, environ: Mapping[str, str | None]) -> Selected | None:
    """Return the devices that these variables leave; None where none of them is set."""
    selected: Selected | None = None
    for level in accelerator.levels:
        name = next((n for n in level if environ.get(n)), None)
        if name is None:  # an empty value hides all, where no other of the level is set
            name = next((n for n in level if environ.get(n) is not None), None)
        if name is None:
            continue
        value = environ.get(name) or ""
        below = "" if selected is None else f"{selected.variable}={selected.value}"
        outer = None if selected is None else selected.words
        words, missing = _inner(split_words(value), outer)
        selected = Selected(words, missing, name, value, below)
    return selected


def _inner(
    words: Sequence[str], outer: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what words select of the devices of the level below, and the words that name none."""
    if outer is None:
        return tuple(words), ()
    places = [int(word) if word.isdigit() else -1 for word in words]
    devices = [
        word if not word.isdigit() else outer[place] if place < len(outer) else None
        for word, place in zip(words, places)  # noqa: B905 - 3.8
    ]
    missing = tuple(word for word, device in zip(words, devices) if device is None)  # noqa: B905
    # what follows a word that names none is not visible either
    end = devices.index(None) if None in devices else len(devices)
    return tuple(device for device in devices[:end] if device is not None), missing


def kind_of(names: Mapping[str, str | None]) -> str:
    """Return the kind of accelerator that variables are for, where nothing else says it.

    ROCR_VISIBLE_DEVICES alone beside CUDA's says nothing: Slurm sets both on any machine (Slurm,
    gres.conf, Flags: all variables are set unless AutoDetect names a maker).
    """
    is_set = {name for name, value in names.items() if value is not None}
    if "CUDA_VISIBLE_DEVICES" in is_set and "HIP_VISIBLE_DEVICES" not in is_set:
        return "cuda"
    order = (("rocm", ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")),
             ("npu", ("ASCEND_RT_VISIBLE_DEVICES",)))  # fmt: skip
    return next((kind for kind, own in order if is_set.intersection(own)), "cuda")
