"""Checks how GPUs are connected: NVLink, NVSwitch and its fabric manager, peer access by PCIe."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from safelaunch.checks import visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, fail, ok, warn
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.checks.context import HostContext

_P2P, _LEVEL = "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"


@check("fabric-manager", needs=("gpus",), source="pytorch issue 35710")
def fabric_manager(host: HostContext) -> Answer | None:
    """Whether the process runs that GPUs behind NVSwitches need to start."""
    if not visible_gpus.has_gpus(host):
        return None
    manager = host.get("gpus", "fabric_manager") or {}
    gpus = visible_gpus.visible(host).gpus
    states = {str(gpu.get("fabric_state") or "").lower() for gpu in gpus}
    if not manager.get("switches") and "in progress" not in states:
        return None
    if manager.get("running") or states == {"completed"}:
        return ok(f"the fabric manager runs for {manager.get('switches') or 'the'} NVSwitches")
    version = host.get("gpus", "driver")
    package = f", of version {version} as the driver" if version else ""
    hint = f"`sudo systemctl enable --now nvidia-fabricmanager`{package}"
    if host.get("system", "container"):
        if "in progress" not in states:
            raise NotKnown("the fabric manager runs outside this container")
        hint += ", on the machine itself and not in the container"
    evidence = "the fabric manager does not run: CUDA fails with 802, system not yet initialized"
    is_sliced = bool(gpus) and all(gpu.get("mig") for gpu in gpus)
    return (fail if visible_gpus.needs_gpu(host) and not is_sliced else warn)(evidence, hint)


@check("nvlink", needs=("gpus",), source="NVIDIA, nvidia-smi nvlink")
def nvlink(host: HostContext) -> Answer | None:
    """Whether GPUs that should be connected by NVLink are, by links without errors."""
    gpus = _shared_gpus(host)
    if gpus is None:
        return None
    topology = host.get("gpus", "topology")
    fabric = topology and topology["fabric"]
    if fabric == "pcie" and _profile_has_nvlink(host):
        links = ", ".join(sorted({link for *_, link in _pairs(topology["pairs"], gpus)}))
        return warn(
            f"profile {host.profile.name if host.profile else ''} has GPUs with NVLink, and "
            f"`topo -m` shows none between these ({links})",
            "`nvidia-smi nvlink -s` must list active links: without any, it is another board "
            "(`safelaunch profiles --detect`), or the machine's administrator must restart "
            "nvidia-fabricmanager and reset the GPUs",
        )
    active = {
        entry["card"]: entry["active"] or 0
        for entry in host.get("gpus", "links") or ()
        if entry["card"] in gpus
    }
    most = max(active.values(), default=0)
    fewer = sorted(index for index, links in active.items() if links < most)
    if fewer:
        return warn(
            f"GPU {', '.join(map(str, fewer))} has {active[fewer[0]]} of {most} NVLinks up",
            "`nvidia-smi nvlink -e` counts their errors; a reset of the GPUs or a reboot restores "
            "links that are not broken",
        )
    errors = {
        entry["card"]: entry["recoveries"]
        for entry in host.get("gpus", "links") or ()
        if entry["card"] in gpus and entry.get("recoveries")
    }
    if errors:
        shown = ", ".join(f"GPU {card}: {count}" for card, count in sorted(errors.items()))
        return warn(
            f"NVLinks recovered from errors since the driver was loaded ({shown})",
            "run `nvidia-smi nvlink -e` before and after a job: where the numbers grow, NCCL waits "
            "for that link at each recovery, and the GPU or its board needs service",
            "facebookresearch/gcm, check-dcgmi nvlink: no recovery error is tolerated",
        )
    return None if topology is None else ok(f"connected: {fabric}")


@check("peer-access", needs=("gpus",))
def peer_access(host: HostContext) -> Answer | None:
    """Whether peer access is not switched off where the GPUs have it."""
    gpus = _shared_gpus(host)
    peers = host.get("gpus", "peers")
    pairs = _pairs(peers["pairs"], gpus) if gpus is not None and peers is not None else []
    if not pairs:
        return None
    good = sum(state == "OK" for *_, state in pairs)
    count = f"{good} of {len(pairs)} pairs have peer access"
    env = host.plan.env
    switch = next((name for name, values in ((_P2P, ("1",)), (_LEVEL, ("LOC", "0")))
                   if name in env and env[name].value in values), None)  # fmt: skip
    if switch is None:
        if good == len(pairs):
            return ok(f"all {len(pairs)} pairs of GPUs have peer access")
        states = ", ".join(sorted({state for *_, state in pairs if state != "OK"}))
        return ok(f"{count} ({states}): NCCL detects that")
    if good < len(pairs):
        return ok(f"{switch} costs little: {count}")
    var = env[switch]
    remove = f"`env: {{{switch}: null}}`"
    if var.workaround:
        remove = f"`--no-workarounds`, or {remove}"
    fabric = str(host.get("gpus", "topology", "fabric"))
    over = " over NVLink" if fabric.startswith("nvlink") else ""
    return warn(
        f"{switch}={var.value} ({var.origin}), and all {len(pairs)} pairs have peer access{over}",
        f"measure without it: {remove}. Keep it if a job then hangs or fails",
        "NVIDIA/nccl-tests issues 228, 287; NCCL user guide, GPU-to-GPU communication",
    )


def _shared_gpus(host: HostContext) -> set[int] | None:
    """Return the indices of the GPUs of several ranks; None where there are not several."""
    if not visible_gpus.has_gpus(host):
        return None
    visible = visible_gpus.visible(host)
    if min(len(visible.gpus), visible_gpus.ranks(host, visible)) < 2:  # noqa: PLR2004 - several
        return None
    return {gpu["index"] for gpu in visible.gpus}


def _pairs(matrix: Iterable[Any], gpus: set[int]) -> list[tuple[int, int, str]]:
    return [(i, j, what) for i, j, what in matrix if i in gpus and j in gpus]


def _profile_has_nvlink(host: HostContext) -> bool:
    """Whether the GPUs are those of the profile, and all such have NVLink, not only by a bridge.

    `profile-fits` reports other GPUs.
    """
    if host.profile is None:
        return False
    nvlink, pattern = host.profile.fact("nvlink") or "none", host.profile.gpu_names
    gpus = visible_gpus.visible(host).gpus
    return not re.search("none|bridge", nvlink) and all(
        re.fullmatch(pattern, gpu["name"] or "") for gpu in gpus
    )
