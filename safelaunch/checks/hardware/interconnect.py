"""Checks of what joins cards: NVLink, NVSwitch and its fabric manager, peer access over PCIe."""

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


@check("fabric-manager", "hardware", needs=("gpus",), source="pytorch issue 35710")
def fabric_manager(host: HostContext) -> Answer | None:
    """Whether the process runs without which cards behind NVSwitches do not start."""
    if visible_gpus.needs_gpu(host) is False or not visible_gpus.all_gpus(host):
        return None
    told = host.get("gpus", "fabric_manager") or {}
    used = visible_gpus.visible(host).gpus
    states = {str(card.get("fabric_state") or "").lower() for card in used}
    if not told.get("switches") and "in progress" not in states:
        return None
    if told.get("running") or states == {"completed"}:
        return ok(f"{told.get('switches') or 'the'} NVSwitches are managed")
    version = host.get("gpus", "driver")
    package = f", of version {version} as the driver" if version else ""
    hint = f"`sudo systemctl enable --now nvidia-fabricmanager`{package}"
    if host.get("system", "container"):
        if "in progress" not in states:
            raise NotKnown("the fabric manager runs outside this container")
        hint += ", on the machine itself and not in the container"
    evidence = "the fabric manager does not run: CUDA says 802, system not yet initialized"
    is_cut = bool(used) and all(card.get("mig") for card in used)
    return (fail if visible_gpus.needs_gpu(host) and not is_cut else warn)(evidence, hint)


@check("nvlink", "hardware", needs=("gpus",), source="NVIDIA, nvidia-smi nvlink")
def nvlink(host: HostContext) -> Answer | None:
    """Whether cards that are joined by NVLink are so here."""
    used = _several(host)
    if used is None:
        return None
    topology = host.get("gpus", "topology")
    fabric = topology and topology["fabric"]
    if fabric == "pcie" and _is_linked(host) and _is_of_profile(host):
        ways = ", ".join(sorted({link for *_, link in _pairs(topology["pairs"], used)}))
        return warn(
            f"profile {host.profile.name if host.profile else ''} has cards with NVLink, and "
            f"`topo -m` shows none between these ({ways})",
            "`nvidia-smi nvlink -s` must list active links: without any, it is another board "
            "(`safelaunch profiles --detect`), or whoever runs the machine must restart "
            "nvidia-fabricmanager and reset the cards",
        )
    told = {one["card"]: one for one in host.get("gpus", "links") or ()}
    active = {card: told[card]["active"] or 0 for card in used if card in told}
    most = max(active.values(), default=0)
    fewer = [card for card, links in active.items() if links < most]
    if most and fewer:
        return warn(
            f"card {', '.join(map(str, fewer))} has {active[fewer[0]]} of {most} NVLinks up",
            "`nvidia-smi nvlink -e` counts their errors; a reset of the cards or a reboot brings "
            "back links that are not broken",
        )
    if topology is None:
        return None
    return ok(f"joined: {fabric}")


@check("peer-access", "hardware", needs=("gpus",))
def peer_access(host: HostContext) -> Answer | None:
    """Whether peer access is switched off where the cards have it."""
    used = _several(host)
    told = host.get("gpus", "peers")
    if used is None or told is None:
        return None
    pairs = _pairs(told["pairs"], used)
    good = [pair for pair in pairs if pair[2] == "OK"]
    off = _off(host)
    if not pairs:
        return None
    if off is None:
        if len(good) == len(pairs):
            return ok(f"all {len(pairs)} pairs of cards have peer access")
        marks = ", ".join(sorted({pair[2] for pair in pairs if pair[2] != "OK"}))
        return ok(f"{len(good)} of {len(pairs)} pairs have peer access ({marks}): NCCL sees that")
    if len(good) < len(pairs):
        return ok(f"{off} takes little away: {len(good)} of {len(pairs)} pairs have peer access")
    var = host.plan.env[off]
    lift = f"`env: {{{off}: null}}`"
    if var.workaround:
        lift = f"`--no-workarounds`, or {lift}"
    joined = host.get("gpus", "topology", "fabric")
    over = " over NVLink" if str(joined).startswith("nvlink") else ""
    return warn(
        f"{off}={var.value} ({var.origin}), and all {len(pairs)} pairs have peer access{over}",
        f"measure without it: {lift}. Keep it if a job then hangs or fails",
        "NVIDIA/nccl-tests issues 228, 287; NCCL user guide, GPU-to-GPU communication",
    )


def _off(host: HostContext) -> str | None:
    """Return the variable with which the plan switches peer access off."""
    env = host.plan.env
    if _P2P in env and env[_P2P].value == "1":
        return _P2P
    return _LEVEL if _LEVEL in env and env[_LEVEL].value in ("LOC", "0") else None


def _several(host: HostContext) -> set[int] | None:
    """Return the cards that ranks of the job share work on; None where it is one, or none."""
    if visible_gpus.needs_gpu(host) is False or not visible_gpus.all_gpus(host):
        return None
    found = visible_gpus.visible(host)
    if len(found.gpus) < 2 or visible_gpus.ranks(host, found) < 2:  # noqa: PLR2004 - several
        return None
    return {card["index"] for card in found.gpus}


def _pairs(told: Iterable[Any], used: set[int]) -> list[tuple[int, int, str]]:
    return [(i, j, what) for i, j, what in told if i in used and j in used]


def _is_of_profile(host: HostContext) -> bool:
    """Whether the cards are those of the profile; `profile-fits` says of others that they are."""
    wanted = host.profile.gpu_names if host.profile else ""
    return all(re.fullmatch(wanted, card["name"] or "") for card in visible_gpus.visible(host).gpus)


def _is_linked(host: HostContext) -> bool:
    """Whether all cards of the profile's kind have NVLink, not only some by a bridge."""
    said = host.profile.facts.get("nvlink", "none") if host.profile else "none"
    return "none" not in said and "bridge" not in said
