"""What /proc and /etc say about a machine: memory, cgroup limits, distribution, routes."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NO_LIMIT = 1 << 60  # cgroup v1 says "none" with a number near 2**63
_MEMORY = {"MemTotal": "total", "MemAvailable": "available", "SwapTotal": "swap"}
_UP = 0x1  # RTF_UP
_DRIVER = re.compile(r"Kernel Module\s+(?:for \S+\s+)?(\d+\.\d+(?:\.\d+)?)")


class Limit(NamedTuple):
    """A limit of a cgroup, and the file that says it."""

    value: float
    path: str


class Route(NamedTuple):
    """A line of the IPv4 routing table; `gateway` is None on a link."""

    interface: str
    destination: str  # 10.0.0.0/8, or `default`
    gateway: str | None


def memory(meminfo: str) -> dict[str, int]:
    """Return `total`, `available` and `swap` of /proc/meminfo, in bytes."""
    found = {}
    for line in meminfo.splitlines():
        match = re.match(r"(\w+):\s+(\d{1,18}) kB", line)
        if match is not None and match[1] in _MEMORY:
            found[_MEMORY[match[1]]] = int(match[2]) << 10
    return found


def memory_limit(files: Mapping[str, str]) -> Limit | None:
    """Return the lowest memory limit of a cgroup and those above it, in bytes."""
    return _lowest(
        Limit(int(text), path)
        for path, text in _named(files, "memory.max", "memory.limit_in_bytes")
        if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < _NO_LIMIT  # noqa: PLR2004
    )


def memory_use(files: Mapping[str, str]) -> int | None:
    """Return what the innermost cgroup uses, in bytes."""
    for _, text in _named(files, "memory.current", "memory.usage_in_bytes"):
        if re.fullmatch(r"\d{1,19}", text):
            return int(text)
    return None


def core_limit(files: Mapping[str, str]) -> Limit | None:
    """Return the lowest CPU quota of a cgroup and those above it, in cores."""
    found = []
    for path, text in _named(files, "cpu.max"):
        match = re.fullmatch(r"(\d{1,15})\s+(\d{1,15})", text)
        if match is not None and int(match[2]):
            found.append(Limit(int(match[1]) / int(match[2]), path))
    for path, text in _named(files, "cpu.cfs_quota_us"):
        period = files.get(path.replace("quota", "period"), "").strip()
        if re.fullmatch(r"\d{1,15}", text) and re.fullmatch(r"[1-9]\d{0,14}", period):
            found.append(Limit(int(text) / int(period), path))
    return _lowest(found)


def process_limit(files: Mapping[str, str]) -> Limit | None:
    """Return the lowest limit of processes of a cgroup and those above it."""
    return _lowest(
        Limit(int(text), path)
        for path, text in _named(files, "pids.max")
        if re.fullmatch(r"\d{1,15}", text)
    )


def _named(files: Mapping[str, str], *names: str) -> list[tuple[str, str]]:
    return [(p, text.strip()) for p, text in files.items() if p.rpartition("/")[2] in names]


def _lowest(limits: Iterable[Limit]) -> Limit | None:
    return min(limits, default=None, key=lambda limit: limit.value)


def distribution(os_release: str) -> str | None:
    """Return the name of /etc/os-release: `Ubuntu 24.04.1 LTS`."""
    found = {}
    for line in os_release.splitlines():
        match = re.fullmatch(r"\s*([A-Z_]+)=(?:\"([^\"]*)\"|'([^']*)'|(\S*))\s*", line)
        if match is not None:
            found[match[1]] = match[2] or match[3] or match[4] or ""
    if found.get("PRETTY_NAME"):
        return found["PRETTY_NAME"]
    return " ".join(filter(None, (found.get("NAME"), found.get("VERSION_ID")))) or None


def routes(table: str) -> tuple[Route, ...]:
    """Return the routes of /proc/net/route that are up."""
    found = []
    for line in table.splitlines()[1:]:
        cells = line.split()
        try:
            interface, to, via, flags, mask = cells[0], cells[1], cells[2], cells[3], cells[7]
            if not int(flags, 16) & _UP:
                continue
            bits = int(mask, 16).bit_count()
            place = "default" if not bits else f"{_address(to)}/{bits}"
            found.append(Route(interface, place, _address(via) if int(via, 16) else None))
        except (IndexError, ValueError, struct.error):
            continue  # a line that was cut
    return tuple(found)


def _address(text: str) -> str:
    return ".".join(map(str, struct.pack("<L", int(text, 16))))


def driver(version: str) -> str | None:
    """Return the version of /proc/driver/nvidia/version: what is loaded, nvidia-smi or not."""
    match = _DRIVER.search(version)
    return match[1] if match else None


def card(information: str) -> dict[str, str]:
    """Return `name`, `uuid` and `bus_id` of /proc/driver/nvidia/gpus/*/information."""
    names = {"Model": "name", "GPU UUID": "uuid", "Bus Location": "bus_id"}
    found = {}
    for line in information.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in names and value.strip() and "?" not in value:
            found[names[key.strip()]] = value.strip()
    return found
