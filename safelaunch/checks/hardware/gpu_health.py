"""Checks the health of NVIDIA GPUs: memory errors, slowdowns, the PCIe link, the compute mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.checks import visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, fail, ok, warn
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.checks.context import HostContext

_ERRORS = "NVIDIA GPU memory error management, row remapping; nvidia-smi -q"
_CLOCKS = "nvidia-smi manual, clocks event reasons, power limit"
_SLOWDOWNS = {
    "hw_thermal_slowdown": "it is too hot",
    "sw_thermal_slowdown": "it is too hot",
    "hw_power_brake_slowdown": "the power supply brakes it",
}


def _health(host: HostContext) -> list[dict[str, Any]]:
    """Return the health of the GPUs that the job uses. Raises NotKnown."""
    if not visible_gpus.has_gpus(host):
        return []
    used = {gpu["index"] for gpu in visible_gpus.visible(host).gpus}
    health = [entry for entry in host.get("gpus", "health") or () if entry["card"] in used]
    if used and not health:
        raise NotKnown("`nvidia-smi -q -x` does not tell the health of the GPUs")
    return health


def _cards(entries: Iterable[dict[str, Any]]) -> str:
    indices = [str(entry["card"]) for entry in entries]
    return f"GPU{'s' * (len(indices) > 1)} {', '.join(indices)}"


@check("gpu-errors", job=False, needs=("gpus",), source=_ERRORS)
def errors(host: HostContext) -> Iterator[Answer]:
    """Whether the GPUs have no uncorrected memory errors, and wait for no reset."""
    health = _health(host)
    states = {
        "remap_failed": (
            "could not replace a broken row of memory",
            "it must be exchanged: leave it out with `gpus:`, and report it",
        ),
        "remap_pending": (
            "replaces a broken row of memory at the next reset",
            "`sudo nvidia-smi -r` with no job on it, or reboot",
        ),
        "reset_required": ("needs a reset", "`sudo nvidia-smi -r` with no job on it, or reboot"),
    }
    has_warned = False
    for key, (what, hint) in states.items():
        bad = [entry for entry in health if entry[key]]
        if bad:
            has_warned = True
            yield warn(f"{_cards(bad)} {what}", hint)
    bad = [entry for entry in health if entry["uncorrected"]]
    if bad:
        counts = ", ".join(str(entry["uncorrected"]) for entry in bad)
        yield warn(
            f"{_cards(bad)} had {counts} uncorrected memory errors since the driver was loaded: "
            "each ends the process that meets it (Xid 48, 94, 95)",
            "`sudo nvidia-smi -r` with no job on it; report it if they come back",
        )
    waiting = [e for e in health if e["ecc"] and e["ecc_pending"] not in (None, e["ecc"])]
    if waiting:
        yield warn(
            f"{_cards(waiting)} has ECC {waiting[0]['ecc']}, and {waiting[0]['ecc_pending']} after "
            "the next reboot: its free memory will change",
            "reboot before a long run",
        )
    if health and not (has_warned or bad or waiting):
        yield ok("no uncorrected memory errors")


@check("gpu-clocks", job=False, needs=("gpus",), source=_CLOCKS)
def clocks(host: HostContext) -> Iterator[Answer]:
    """Whether no GPU is slowed down by heat, its power supply, or a power limit below the usual."""
    health = _health(host)
    for name, why in _SLOWDOWNS.items():
        slow = [entry for entry in health if name in entry["slowdowns"]]
        if slow:
            yield warn(
                f"{_cards(slow)} runs at lower clocks: {why} ({name})",
                "all ranks wait for the slowest: `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER`; "
                "check fans, air flow and power cables",
            )
    capped = [
        entry
        for entry in health
        if entry["power_limit_w"] and entry["power_default_w"]
        and entry["power_limit_w"] < entry["power_default_w"]
    ]  # fmt: skip
    if capped:
        limit, usual = capped[0]["power_limit_w"], capped[0]["power_default_w"]
        yield warn(
            f"{_cards(capped)} may draw {limit:g} W, and {usual:g} W is its default",
            f"`sudo nvidia-smi -pl {usual:g}` lifts it, where power and cooling allow",
        )


@check("pcie-width", job=False, needs=("gpus",), source="nvidia-smi manual, PCIe link width")
def pcie_width(host: HostContext) -> Answer | None:
    """Whether each GPU has the PCIe lanes that GPUs like it have on the same machine."""
    names = {gpu["index"]: gpu["name"] for gpu in host.get("gpus", "cards") or ()}
    by_name: dict[Any, list[dict[str, Any]]] = {}
    for entry in _health(host):
        if entry["width"] and entry["width_max"]:
            by_name.setdefault(names.get(entry["card"]), []).append(entry)
    for alike in by_name.values():
        widest = max(entry["width"] for entry in alike)
        narrow = [entry for entry in alike if entry["width"] < widest]
        if narrow:
            return warn(
                f"{_cards(narrow)} has {narrow[0]['width']} PCIe lanes, and others like it "
                f"{widest}: all ranks wait for the slowest transfer",
                "`sudo lspci -vv | grep -E 'LnkCap|LnkSta'`; put the card in again, or use a slot "
                "with all lanes",
            )
    return None


@check("compute-mode", needs=("gpus",), source="nvidia-smi manual, compute mode")
def compute_mode(host: HostContext) -> Answer | None:
    """Whether the compute mode of the GPUs lets the ranks use them."""
    health = _health(host)
    closed = [entry for entry in health if entry["compute_mode"] == "Prohibited"]
    if closed:
        evidence = f"{_cards(closed)} is in compute mode Prohibited: CUDA finds no device there"
        answer = fail if visible_gpus.needs_gpu(host) and len(closed) == len(health) else warn
        return answer(evidence, "`sudo nvidia-smi -c DEFAULT`, or other GPUs with `gpus:`")
    exclusive = [entry for entry in health if entry["compute_mode"] == "Exclusive_Process"]
    ranks = visible_gpus.ranks(host, visible_gpus.visible(host))
    if exclusive and ranks > len(health):
        return warn(
            f"{_cards(exclusive)} takes one process each (Exclusive_Process), and {ranks} ranks "
            f"share {len(health)}",
            f"`sudo nvidia-smi -c DEFAULT`, or `--set processes={len(health)}`",
        )
    return None


_MPS = "nvidia-cuda-mps-server"


@check("mps", needs=("gpus",), source="NVIDIA MPS documentation, limitations")
def mps(host: HostContext) -> Answer | None:
    """Whether no MPS server of another user has the GPUs: the job would wait for its end."""
    if not visible_gpus.has_gpus(host):
        return None
    used = {gpu["index"] for gpu in visible_gpus.visible(host).gpus}
    me = host.get("system", "user")
    for process in host.get("gpus", "processes") or ():
        is_mps = str(process["name"] or "").endswith(_MPS)
        if is_mps and process["card"] in used and process["user"] not in (None, me):
            return warn(
                f"an MPS server of {process['user']} (pid {process['pid']}) has GPU "
                f"{process['card']}: MPS serves one user at a time, and the processes of others "
                "wait without a word",
                "ask its owner to `echo quit | nvidia-cuda-mps-control`, or use other GPUs with "
                "`gpus:`",
            )
    return None
