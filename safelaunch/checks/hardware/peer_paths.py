"""Checks the ways between GPUs, and to the network: IOMMU, RDMA, GPUDirect, IMEX.

interconnect.py has the links themselves.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.checks import visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, ok, warn
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.answers import Question
    from safelaunch.checks.context import HostContext

_SEVERAL = 2


def _kernel(_: HostContext) -> list[Question]:
    return [("kernel",)]


def _is_off(host: HostContext, name: str) -> bool:
    return visible_gpus.setting(host, name)[0] == "1"


@check(
    "iommu",
    asks=_kernel,
    needs=("gpus",),
    source="NCCL user guide, troubleshooting, PCI access control services; NVIDIA/nccl issues 1999,"
    " 2079; vllm-project/vllm issue 33041; RCCL documentation",
)
def iommu(host: HostContext) -> Answer | None:
    """Whether no IOMMU translates what GPUs send each other by PCIe: it hangs, or is slow."""
    if not visible_gpus.has_devices(host) or visible_gpus.kind_name(host) not in ("cuda", "rocm"):
        return None
    visible = visible_gpus.visible(host)
    if min(len(visible.gpus), visible_gpus.ranks(host, visible)) < _SEVERAL:
        return None
    if _is_off(host, "NCCL_P2P_DISABLE") or not _uses_pcie_peers(host):
        return None
    answer = host.answer("kernel")
    if not answer["iommu"]:
        raise NotKnown("no IOMMU group of a GPU is seen: there is no IOMMU, or this is a guest")
    translated = sorted(bus for bus, kind in answer["iommu"].items() if kind.startswith("DMA"))
    if not translated:
        return ok("the IOMMU passes through what the GPUs send")
    words = " ".join(answer["options"]) or "no word about it on the kernel's command line"
    return warn(
        f"the IOMMU translates what {len(translated)} GPUs send ({words}): peer access by PCIe "
        "then hangs, corrupts data or goes over the CPU",
        "add `iommu=pt` to the kernel's command line and reboot, and switch ACS off (`sudo lspci "
        "-vvv | grep ACSCtl` shows SrcValid+ where it is on); until then "
        "`env: {NCCL_P2P_DISABLE: '1'}`",
    )


def _uses_pcie_peers(host: HostContext) -> bool:
    """Whether the GPUs reach each other by PCIe. AMD's without a fabric that the facts know do."""
    if visible_gpus.kind_name(host) == "rocm":
        return True
    if str(host.get("gpus", "topology", "fabric")).startswith("nvlink-full"):
        return False
    used = {gpu["index"] for gpu in visible_gpus.visible(host).gpus}
    peers = host.get("gpus", "peers")
    if peers is None:
        raise NotKnown("whether the GPUs have peer access is not known")
    return any(state == "OK" for i, j, state in peers["pairs"] if {i, j} <= used)


@check("nccl-net", source="NCCL user guide, NCCL_NET")
def nccl_net(host: HostContext) -> Answer | None:
    """Whether the network that NCCL_NET names is there: NCCL refuses to start without it."""
    value, origin = visible_gpus.setting(host, "NCCL_NET")
    if (value or "").upper() != "IB" or visible_gpus.needs_device(host) is False:
        return None
    if _is_off(host, "NCCL_IB_DISABLE"):
        return warn(
            f"NCCL_NET={value} ({origin}) with NCCL_IB_DISABLE=1: NCCL finds no such network",
            "remove one of them",
        )
    if host.get("skipped", "network"):
        raise NotKnown("the network cards are not known")
    if host.get("network", "infiniband"):
        return ok("NCCL_NET=IB, and there are RDMA devices")
    hint = "`env: {NCCL_NET: null}`: NCCL chooses what is there"
    if host.get("system", "container"):
        hint += "; or give the container the devices: `docker run --device /dev/infiniband ...`"
    return warn(f"NCCL_NET={value} ({origin}), and no RDMA device is seen", hint)


_DMABUF = (5, 12)  # the first kernel whose DMA-BUF NCCL uses, with NVIDIA's open driver


@check(
    "gpudirect",
    asks=lambda host: [("kernel",)] if len(host.context.hosts) >= _SEVERAL else [],
    needs=("gpus",),
    source="NCCL user guide, NCCL_DMABUF_ENABLE, GPU Direct RDMA",
)
def gpudirect(host: HostContext) -> Answer | None:
    """Whether network cards read the memory of the GPUs: nvidia-peermem, or DMA-BUF."""
    if len(host.context.hosts) < _SEVERAL or not visible_gpus.has_gpus(host):
        return None
    if not host.get("network", "infiniband") or _is_off(host, "NCCL_IB_DISABLE"):
        return None
    answer = host.answer("kernel")
    if answer["peer_modules"]:
        return ok(f"{answer['peer_modules'][0]} is loaded")
    numbers = re.match(r"(\d{1,4})\.(\d{1,4})", str(host.get("system", "kernel") or ""))
    if not answer["modules_seen"] or numbers is None:
        raise NotKnown("the modules of the kernel are not known")
    if answer["is_open"] and (int(numbers[1]), int(numbers[2])) >= _DMABUF:
        return ok("the open driver of NVIDIA and the kernel have DMA-BUF")
    return warn(
        "there are RDMA devices, and neither nvidia-peermem is loaded nor has the driver DMA-BUF: "
        "data between nodes takes a copy through host memory",
        "`sudo modprobe nvidia-peermem` on the machine itself; `nvidia-peermem` in "
        "/etc/modules-load.d/ keeps it",
    )


@check(
    "imex",
    asks=lambda host: [("kernel",)] if len(host.context.hosts) >= _SEVERAL else [],
    needs=("gpus",),
    source="NVIDIA IMEX service for NVLink networks; NCCL user guide, NCCL_MNNVL_ENABLE",
)
def imex(host: HostContext) -> Iterator[Answer]:
    """Whether the IMEX daemon runs, and a channel is there, where NVLink joins several nodes."""
    if len(host.context.hosts) < _SEVERAL or not visible_gpus.has_gpus(host):
        return
    used = {gpu["index"] for gpu in visible_gpus.visible(host).gpus}
    domains = {
        entry["cluster"]
        for entry in host.get("gpus", "health") or ()
        if entry["card"] in used and re.search(r"[1-9a-fA-F]", entry["cluster"] or "")
    }
    if not domains or visible_gpus.setting(host, "NCCL_MNNVL_ENABLE")[0] == "0":
        return
    answer = host.answer("kernel")
    if host.get("system", "container") is None and not answer["imex"]:
        yield warn(
            "the GPUs are in an NVLink domain of several nodes, and nvidia-imex does not run",
            "`sudo systemctl enable --now nvidia-imex` on all nodes of the domain; "
            "`env: {NCCL_MNNVL_ENABLE: '0'}` goes over the network instead",
        )
    if not answer["imex_channels"]:
        yield warn(
            "there is no IMEX channel in /dev/nvidia-caps-imex-channels: NCCL cannot share memory "
            "between nodes",
            "`sudo modprobe nvidia NVreg_CreateImexChannel0=1`, or give the container channel0",
        )
    elif answer["imex"]:
        yield ok("nvidia-imex runs, and there is a channel")
