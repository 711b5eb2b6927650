"""Which profile is for the cards of a host, and which of its facts profiles' gates ask for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from safelaunch.model import Profile

_VERSION = re.compile(r"[0-9]+(\.[0-9A-Za-z]+)+(\+[0-9A-Za-z.]+)?")
# NCCL tells 2.26.2 of both builds of that name; the one for CUDA 12.8 is the wheel 2.26.2.post1
# (NVIDIA/nccl issue 1637, cuobjdump of the wheels)
_REBUILT = {("2.25.1", "12.8"): "2.25.1.post1", ("2.26.2", "12.8"): "2.26.2.post1"}


class Fit(NamedTuple):
    """What is known of a host's cards. `profile` is for all of them; None: none is."""

    profile: str | None
    names: tuple[str, ...]  # of the cards, each once
    by_name: Mapping[str, str | None]  # name -> the profile for such cards
    why: str = ""  # there is no profile, or nothing is known


def fitting(facts: Mapping[str, Any], profiles: Iterable[Profile]) -> Fit:
    """Return which profile is for the cards of a host; `cpu` for a machine known to have none."""
    gpus = facts.get("gpus") or {}
    names = tuple(dict.fromkeys(str(c["name"]) for c in gpus.get("cards") or () if c.get("name")))
    if not names:
        others = ", ".join(sorted(gpus.get("other_tools") or ()))
        if others:
            return Fit(None, (), {}, f"cards of another vendor ({others}): no profile is for them")
        if gpus.get("count") == 0 and not gpus.get("troubles"):
            return Fit("cpu", (), {}, "there is no NVIDIA card")
        return Fit(None, (), {}, _unknown(gpus))
    known = tuple(profiles)
    by_name = {name: of_name(name, known) for name in names}
    found = set(by_name.values())
    if len(found) == 1 and None not in found:
        return Fit(next(iter(found)), names, by_name)
    if found == {None}:
        return Fit(None, names, by_name, "no shipped profile is for such cards")
    return Fit(None, names, by_name, "the cards are of different kinds")


def _unknown(gpus: Mapping[str, Any]) -> str:
    late = (gpus.get("late") or {}).get("query")
    late = late or next((str(one["text"]) for one in gpus.get("troubles") or ()), None)
    return f"the cards are not known: {late or 'nvidia-smi tells nothing'}"


def of_name(name: str, profiles: Sequence[Profile]) -> str | None:
    """Return the profile for cards of a name; of two, one of which extends the other, that one."""
    found = [p for p in profiles if p.gpu_names and re.fullmatch(p.gpu_names, name)]
    below = {file for p in found for file in p.files[1:]}
    best = [p.name for p in found if p.files[:1] and p.files[0] not in below]
    return best[0] if best else None


def gate_facts(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of nccl, driver, torch and cuda, as a hosts file writes them.

    `cuda` is the one that torch was built with.
    """
    torch = facts.get("torch") or {}
    said = {
        "nccl": _nccl(torch.get("nccl") or {}),
        "driver": (facts.get("gpus") or {}).get("driver"),
        "torch": torch.get("version"),
        "cuda": torch.get("cuda"),
    }
    return {k: v for k, v in said.items() if isinstance(v, str) and _VERSION.fullmatch(v)}


def _nccl(told: Mapping[str, Any]) -> str | None:
    """Return NCCL's version: the library's own, and of a rebuilt wheel the wheel's."""
    version, package = told.get("version"), str(told.get("package") or "").rpartition(" ")[2]
    if version is None:
        return None
    if package.startswith(f"{version}.post"):
        return package
    built = ".".join(str(told.get("cuda") or "").split(".")[:2])
    return _REBUILT.get((str(version), built), str(version))
