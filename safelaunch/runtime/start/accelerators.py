"""What differs between kinds of accelerators: the variables that select devices and interfaces."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Accelerator(NamedTuple):
    """The names that a kind of accelerator has for what every job needs."""

    devices: str  # the variable that selects the devices of a process
    interface: str  # the variable that names the network interface of its collectives
    title: str  # what one device is called, for messages
    tool: str  # the program of its driver that lists the devices


# HIP reads CUDA_VISIBLE_DEVICES too, and only where HIP_VISIBLE_DEVICES is not set
ACCELERATORS: Mapping[str, Accelerator] = {
    "cuda": Accelerator("CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "NVIDIA GPU", "nvidia-smi"),
    "cpu": Accelerator("CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "CPU", "lscpu"),
    "rocm": Accelerator("HIP_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "AMD GPU", "amd-smi"),
    "npu": Accelerator("ASCEND_RT_VISIBLE_DEVICES", "HCCL_SOCKET_IFNAME", "Ascend NPU", "npu-smi"),
}
# each variable once, that of CUDA first
DEVICE_VARIABLES = tuple(dict.fromkeys(kind.devices for kind in ACCELERATORS.values()))
