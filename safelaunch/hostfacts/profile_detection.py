"""Selects the profile for the GPUs of a host, and the facts that profile gates use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from safelaunch.model import Profile

_VERSION = re.compile(r"[0-9]+(\.[0-9A-Za-z]+)+(\+[0-9A-Za-z.]+)?")
# NCCL reports 2.26.2 for two builds; the one for CUDA 12.8 is the wheel 2.26.2.post1
# (NVIDIA/nccl issue 1637, cuobjdump of the wheels)
_REBUILT = {("2.25.1", "12.8"): "2.25.1.post1", ("2.26.2", "12.8"): "2.26.2.post1"}
_UNKNOWN_STATUS = {"U", "N/A"}  # of a pair in `nvidia-smi topo -p2p r`


class ProfileMatch(NamedTuple):
    """The profile for all GPUs of a host, or None with the reason in `why`."""

    profile: str | None
    names: tuple[str, ...]  # of the GPUs, each once
    by_name: Mapping[str, str | None]  # {GPU name: profile}
    why: str = ""  # the reason why there is no profile


def match_profile(facts: Mapping[str, Any], profiles: Iterable[Profile]) -> ProfileMatch:
    """Return the profile for the GPUs of a host; `cpu` for a machine that has none."""
    gpus = facts.get("gpus") or {}
    cards = gpus.get("cards") or gpus.get("others") or ()
    names = tuple(dict.fromkeys(str(card["name"]) for card in cards if card.get("name")))
    if not names:
        other_tools = ", ".join(sorted(gpus.get("other_tools") or ()))
        if other_tools:
            why = f"GPUs of another vendor ({other_tools}): no profile matches"
            return ProfileMatch(None, (), {}, why)
        if gpus.get("count") == 0 and not gpus.get("troubles"):
            return ProfileMatch("cpu", (), {}, "there is no NVIDIA GPU")
        errors = [str(error["text"]) for error in gpus.get("troubles") or ()]
        reasons = ((gpus.get("late") or {}).get("query"), *errors, "nvidia-smi gave no information")
        why = f"the GPUs are not known: {next(filter(None, reasons))}"
        return ProfileMatch(None, (), {}, why)
    all_profiles = tuple(profiles)
    by_name = {name: profile_for_gpu(name, all_profiles) for name in names}
    profile_names = set(by_name.values())
    if len(profile_names) == 1 and None not in profile_names:
        return ProfileMatch(next(iter(profile_names)), names, by_name)
    if profile_names == {None}:
        return ProfileMatch(None, names, by_name, "no built-in profile matches these GPUs")
    return ProfileMatch(None, names, by_name, "the GPUs are of different models")


def profile_for_gpu(name: str, profiles: Sequence[Profile]) -> str | None:
    """Return the profile for a GPU name; if one match extends another, the extending one."""
    matches = [p for p in profiles if p.gpu_names and re.fullmatch(p.gpu_names, name)]
    parents = {file for p in matches for file in p.files[1:]}
    best = [p.name for p in matches if p.files[:1] and p.files[0] not in parents]
    return best[0] if best else None


def gate_facts(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of nccl, driver, torch, cuda and p2p, as in a hosts file.

    `cuda` is the version that torch was built with, `p2p` whether any two GPUs have peer access.
    """
    torch = facts.get("torch") or {}
    versions = {
        "nccl": _nccl(torch.get("nccl") or {}),
        "driver": (facts.get("gpus") or {}).get("driver"),
        "torch": torch.get("version"),
        "cuda": torch.get("cuda"),
    }
    values = {k: v for k, v in versions.items() if isinstance(v, str) and _VERSION.fullmatch(v)}
    p2p = _peer_access((facts.get("gpus") or {}).get("peers") or {})
    return values if p2p is None else {**values, "p2p": p2p}


def _peer_access(peers: Mapping[str, Any]) -> str | None:
    """Return `yes` where a pair has peer access, `no` where none has; None if it is not known."""
    if peers.get("ok"):
        return "yes"
    statuses = {status for _, _, status in peers.get("pairs") or ()}
    return "no" if statuses and not statuses & _UNKNOWN_STATUS else None


def _nccl(nccl: Mapping[str, Any]) -> str | None:
    """Return NCCL's version: that of the library, or of the wheel if it was rebuilt."""
    version, package = nccl.get("version"), str(nccl.get("package") or "").rpartition(" ")[2]
    if version is None:
        return None
    if package.startswith(f"{version}.post"):
        return package
    cuda = ".".join(str(nccl.get("cuda") or "").split(".")[:2])
    return _REBUILT.get((str(version), cuda), str(version))
