"""Parses files of /proc, /etc and cgroups: memory, limits, distribution, routes, driver."""

from __future__ import annotations

import contextlib
import re
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NO_LIMIT = 1 << 60  # cgroup v1 means "no limit" by a number near 2**63
_MEMORY = {"MemTotal": "total", "MemAvailable": "available", "SwapTotal": "swap"}
_UP = 0x1  # RTF_UP
_DRIVER = re.compile(r"Kernel Module\s+(?:for \S+\s+)?(\d+\.\d+(?:\.\d+)?)")


class Limit(NamedTuple):
    """A limit of a cgroup, and the file that sets it."""

    value: float
    path: str


class Route(NamedTuple):
    """A line of the IPv4 routing table; `gateway` is None on a link."""

    interface: str
    destination: str  # 10.0.0.0/8, or `default`
    gateway: str | None


def memory(meminfo: str) -> dict[str, int]:
    """Return `total`, `available` and `swap` of /proc/meminfo, in bytes."""
    sizes = {}
    for line in meminfo.splitlines():
        match = re.match(r"(\w+):\s+(\d{1,18}) kB", line)
        if match is not None and match[1] in _MEMORY:
            sizes[_MEMORY[match[1]]] = int(match[2]) << 10
    return sizes


def memory_limit(files: Mapping[str, str]) -> Limit | None:
    """Return the lowest memory limit of a cgroup and its parents, in bytes."""
    return _lowest(
        Limit(int(text), path)
        for path, text in _files_named(files, "memory.max", "memory.limit_in_bytes")
        if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < _NO_LIMIT  # noqa: PLR2004
    )


def memory_use(files: Mapping[str, str]) -> int | None:
    """Return the memory use of the innermost cgroup, in bytes."""
    uses = _files_named(files, "memory.current", "memory.usage_in_bytes")
    return next((int(text) for _, text in uses if re.fullmatch(r"\d{1,19}", text)), None)


def core_limit(files: Mapping[str, str]) -> Limit | None:
    """Return the lowest CPU quota of a cgroup and its parents, in cores."""
    limits = []
    for path, text in _files_named(files, "cpu.max"):
        match = re.fullmatch(r"(\d{1,15})\s+(\d{1,15})", text)
        if match is not None and int(match[2]):
            limits.append(Limit(int(match[1]) / int(match[2]), path))
    for path, text in _files_named(files, "cpu.cfs_quota_us"):
        period = files.get(path.replace("quota", "period"), "").strip()
        if re.fullmatch(r"\d{1,15}", text) and re.fullmatch(r"[1-9]\d{0,14}", period):
            limits.append(Limit(int(text) / int(period), path))
    return _lowest(limits)


def _files_named(files: Mapping[str, str], *names: str) -> list[tuple[str, str]]:
    return [(p, text.strip()) for p, text in files.items() if p.rpartition("/")[2] in names]


def _lowest(limits: Iterable[Limit]) -> Limit | None:
    return min(limits, default=None, key=lambda limit: limit.value)


def distribution(os_release: str) -> str | None:
    """Return the distribution's name from /etc/os-release, such as `Ubuntu 24.04.1 LTS`."""
    values = {}
    for line in os_release.splitlines():
        match = re.fullmatch(r"\s*([A-Z_]+)=(?:\"([^\"]*)\"|'([^']*)'|(\S*))\s*", line)
        if match is not None:
            values[match[1]] = match[2] or match[3] or match[4] or ""
    if values.get("PRETTY_NAME"):
        return values["PRETTY_NAME"]
    return " ".join(filter(None, (values.get("NAME"), values.get("VERSION_ID")))) or None


def routes(table: str) -> tuple[Route, ...]:
    """Return the active routes of /proc/net/route."""
    active = []
    for line in table.splitlines()[1:]:
        with contextlib.suppress(ValueError, struct.error):  # a truncated line
            interface, destination, gateway, flags, _, _, _, mask, *_ = line.split()
            if int(flags, 16) & _UP:
                bits = int(mask, 16).bit_count()
                target = "default" if not bits else f"{_address(destination)}/{bits}"
                via = _address(gateway) if int(gateway, 16) else None
                active.append(Route(interface, target, via))
    return tuple(active)


def _address(text: str) -> str:
    return ".".join(map(str, struct.pack("<L", int(text, 16))))


def driver(version: str) -> str | None:
    """Return the version of the loaded driver from /proc/driver/nvidia/version."""
    match = _DRIVER.search(version)
    return match[1] if match else None


def card(information: str) -> dict[str, str]:
    """Return `name`, `uuid` and `bus_id` of /proc/driver/nvidia/gpus/*/information."""
    names = {"Model": "name", "GPU UUID": "uuid", "Bus Location": "bus_id"}
    values = {}
    for line in information.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in names and value.strip() and "?" not in value:
            values[names[key.strip()]] = value.strip()
    return values
