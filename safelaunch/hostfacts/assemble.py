"""The facts of a host: what a probe (runtime/facts.py) fetched, read, as one dictionary of JSON.

A fact that is not known is None or absent; `skipped` says why a part of the probe told nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from safelaunch.hostfacts import machine
from safelaunch.runtime.packages import TRAINING

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
_NUMBER = re.compile(r"\d{1,10}(\.\d{1,10})?")


def from_probe(host: str, told: Mapping[str, Any], offset: float | None = None) -> dict[str, Any]:
    """Return the facts of a host; `offset` is how far its clock is ahead of this one, in seconds.

    What is missing or of another shape than a probe gives is a fact that is not known.
    """
    parts = {name: part for name, part in _dict(told.get("parts")).items() if _dict(part)}
    skipped = {name: str(part["skip"]) for name, part in parts.items() if "skip" in part}

    def part(name: str) -> dict[str, Any]:
        return _dict(parts.get(name, {}).get("value"))

    system, limits = part("system"), part("cgroup")
    names = ("home", "cwd", "tmp", "shm")
    return {
        "version": VERSION,
        "host": host,
        "taken_at": told.get("now"),
        "seconds": told.get("seconds"),
        "clock_offset": offset,
        "system": _system(system),
        "cores": _cores(system, limits),
        "memory": _memory(system, limits),
        "disks": {name: part(f"disk.{name}") for name in names if part(f"disk.{name}")},
        "tools": part("tools"),
        "network": _network(part("network")),
        "nccl_conf": part("config"),
        "environ": part("environ"),
        "gpus": gpus(part("cards"), part("other_cards")),
        "python": _python(part("python")),
        "torch": part("torch") or None,
        "names": part("names") or None,
        "deep": part("deep") or None,
        "environments": _list(parts.get("environments", {}).get("value")),
        "skipped": skipped,
    }


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# -- the machine -----------------------------------------------------------------------------------


def _system(told: dict[str, Any]) -> dict[str, Any]:
    kept = ("hostname", "kernel", "os", "machine", "libc", "user", "home", "shell", "limits",
            "container", "boot_id")  # fmt: skip
    uptime = str(told.get("uptime") or "")
    return {
        **{name: told.get(name) for name in kept},
        "distribution": machine.distribution(str(told.get("os_release") or "")),
        "uptime": float(uptime) if _NUMBER.fullmatch(uptime) else None,
    }


def _cores(system: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    quota = machine.core_limit(_texts(limits))
    return {
        "present": system.get("cores"),
        "allowed": system.get("allowed_cores"),
        "usable": system.get("usable_cores"),
        "quota": round(quota.value, 3) if quota else None,
        "quota_from": quota.path if quota else None,
    }


def _memory(system: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    found = machine.memory(str(system.get("meminfo") or ""))
    limit, total = machine.memory_limit(_texts(limits)), found.get("total")
    binds = limit is not None and (total is None or limit.value < total)
    return {
        "total": total,
        "available": found.get("available"),
        "swap": found.get("swap"),
        "limit": int(limit.value) if limit is not None and binds else None,
        "limit_from": limit.path if limit is not None and binds else None,
        "used_of_limit": machine.memory_use(_texts(limits)) if binds else None,
    }


def _texts(files: Mapping[str, Any]) -> dict[str, str]:
    return {path: text for path, text in files.items() if isinstance(text, str)}


def _network(told: dict[str, Any]) -> dict[str, Any]:
    found = machine.routes(str(told.get("routes") or ""))
    return {
        "addresses": _list(told.get("addresses")),
        "links": _dict(told.get("links")),
        "routes": [one._asdict() for one in found],
        "infiniband": _list(told.get("infiniband")),
        "proxies": _dict(told.get("proxies")),
    }


def _python(told: dict[str, Any]) -> dict[str, Any] | None:
    if not told:
        return None
    packages = _dict(told.get("packages"))
    return {**told, "training": {name: packages[name] for name in TRAINING if name in packages}}


# -- cards -----------------------------------------------------------------------------------------


def gpus(told: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cards of a host, from what nvidia-smi said and what the driver has in /proc."""
    from safelaunch.hostfacts import gpus as hostfacts_gpus  # noqa: PLC0415 - its parsers: 20 ms

    return hostfacts_gpus.gpus(told, others)
