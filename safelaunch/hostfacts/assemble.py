"""Converts the result of a probe (runtime/facts) into the facts of a host, as one JSON object.

A fact that is not known is None or absent; `skipped` has the reason why a part of the probe failed.
"""

# ruff: noqa: PLC0415 - the parsers of GPU tools (20 ms) are imported only for facts with GPUs

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from safelaunch.hostfacts import machine
from safelaunch.runtime.packages import TRAINING

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
_NUMBER = re.compile(r"\d{1,10}(\.\d{1,10})?")


def from_probe(host: str, probe: Mapping[str, Any], offset: float | None = None) -> dict[str, Any]:
    """Return the facts of a host; `offset` is the lead of its clock over this one, in seconds.

    Missing or malformed parts of the probe are facts that are not known.
    """
    from safelaunch.hostfacts.gpus import as_dict, gpus

    parts = {name: part for name, part in as_dict(probe.get("parts")).items() if as_dict(part)}
    skipped = {name: str(part["skip"]) for name, part in parts.items() if "skip" in part}

    def part(name: str) -> dict[str, Any]:
        return as_dict(parts.get(name, {}).get("value"))

    system, network = part("system"), part("network")
    limits = {path: text for path, text in part("cgroup").items() if isinstance(text, str)}
    packages = as_dict(part("python").get("packages"))
    training = {name: packages[name] for name in TRAINING if name in packages}
    names = ("home", "cwd", "tmp", "shm")
    return {
        "version": VERSION,
        "host": host,
        "taken_at": probe.get("now"),
        "seconds": probe.get("seconds"),
        "clock_offset": offset,
        "system": _system(system),
        "cores": _cores(system, limits),
        "memory": _memory(system, limits),
        "disks": {name: part(f"disk.{name}") for name in names if part(f"disk.{name}")},
        "tools": part("tools"),
        "network": {
            "addresses": _list(network.get("addresses")),
            "links": as_dict(network.get("links")),
            "routes": [r._asdict() for r in machine.routes(str(network.get("routes") or ""))],
            "infiniband": _list(network.get("infiniband")),
            "proxies": as_dict(network.get("proxies")),
        },
        "nccl_conf": part("config"),
        "environ": part("environ"),
        "gpus": gpus(part("cards"), parts.get("other_cards", {}).get("value")),
        "python": {**part("python"), "training": training} if part("python") else None,
        "torch": part("torch") or None,
        "names": part("names") or None,
        "deep": part("deep") or None,
        "environments": _list(parts.get("environments", {}).get("value")),
        "skipped": skipped,
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _system(system: dict[str, Any]) -> dict[str, Any]:
    names = ("hostname", "kernel", "os", "machine", "libc", "user", "home", "shell", "limits",
            "container", "boot_id")  # fmt: skip
    uptime = str(system.get("uptime") or "")
    return {
        **{name: system.get(name) for name in names},
        "distribution": machine.distribution(str(system.get("os_release") or "")),
        "uptime": float(uptime) if _NUMBER.fullmatch(uptime) else None,
    }


def _cores(system: dict[str, Any], limits: dict[str, str]) -> dict[str, Any]:
    quota = machine.core_limit(limits)
    return {
        "present": system.get("cores"),
        "allowed": system.get("allowed_cores"),
        "usable": system.get("usable_cores"),
        "quota": round(quota.value, 3) if quota else None,
        "quota_from": quota.path if quota else None,
    }


def _memory(system: dict[str, Any], limits: dict[str, str]) -> dict[str, Any]:
    meminfo = machine.memory(str(system.get("meminfo") or ""))
    limit, total = machine.memory_limit(limits), meminfo.get("total")
    if limit is not None and total is not None and limit.value >= total:
        limit = None
    return {
        "total": total,
        "available": meminfo.get("available"),
        "swap": meminfo.get("swap"),
        "limit": int(limit.value) if limit else None,
        "limit_from": limit.path if limit else None,
        "used_of_limit": machine.memory_use(limits) if limit else None,
    }
