"""`nvidia-smi --query-gpu=... --format=csv`, and the same of compute-apps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.hostfacts.tools.cells import mib, number, told, version
from safelaunch.hostfacts.tools.report import Card, Process, Report

if TYPE_CHECKING:
    from collections.abc import Sequence

_KNOWN = {"index", "name", "uuid", "gpu_name", "gpu_uuid", "pid", "process_name", "timestamp",
          "count", "driver_version", "memory.total", "memory.used", "pci.bus_id", "compute_cap",
          "gpu_bus_id", "used_gpu_memory", "used_memory", "mig.mode.current", "gpu_uid",
          "power.draw", "temperature.gpu", "utilization.gpu", "pstate"}  # fmt: skip
_ASKED = re.compile(r"--query-(gpu|compute-apps)=(\S+)")
_ALIASES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id", "gpu_uid": "uuid",
            "used_memory": "used_gpu_memory"}  # fmt: skip
_BRAND = re.compile(r"\b(NVIDIA|GeForce|Tesla|Quadro|RTX|GTX|TITAN|GRID)\b")


def read(text: str, command: str = "") -> Report | None:
    """Return what the rows say; None where a text has no such rows."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    at = next((n for n, line in enumerate(lines) if _is_head(line)), None)
    if at is not None:
        names = [_name(cell) for cell in lines[at].split(",")]
        rows = lines[at + 1 :]
    else:
        asked = _ASKED.search(command)
        names = [_name(cell) for cell in asked[2].split(",")] if asked else []
        rows = lines
    cells = [_cells(row, names) for row in rows]
    if names and "..." not in names and "<every" not in names:
        whole = [dict(zip(names, row, strict=True)) for row in cells if len(row) == len(names)]
    elif at is None and "--query-gpu" in command:
        whole = [told for told in map(_guessed, cells) if told]
    else:
        return None
    if not whole and at is None:
        return None
    return _apps(whole) if "pid" in names else _gpus(whole)


def _is_head(line: str) -> bool:
    names = [_name(cell) for cell in line.split(",")]
    return len(names) > 1 and sum(name in _KNOWN for name in names) * 2 >= min(len(names), 4)


def _name(cell: str) -> str:
    name = re.sub(r"\s*\[[^\]]*\]\s*$", "", cell.strip()).lower()
    return _ALIASES.get(name, name)


def _cells(row: str, names: Sequence[str]) -> list[str]:
    cells = [cell.strip() for cell in row.split(",")]
    extra = len(cells) - len(names)
    if extra > 0 and "process_name" in names:  # a command may hold commas
        at = names.index("process_name")
        cells[at : at + extra + 1] = [", ".join(cells[at : at + extra + 1])]
    return cells


def _guessed(cells: list[str]) -> dict[str, str]:
    """Return what rows without names cannot be mistaken for."""
    found: dict[str, str] = {}
    if len(cells) < 2:  # noqa: PLR2004
        return found
    if number(cells[0]) is not None:
        found["index"] = cells[0]
    for cell in cells:
        if _BRAND.search(cell):
            found.setdefault("name", cell)
        elif re.fullmatch(r"\d{3}\.\d{2,3}(\.\d{2})?", cell):
            found["driver_version"] = cell
        elif re.fullmatch(r"GPU-[0-9a-f-]+", cell):
            found["uuid"] = cell
    return found if "name" in found else {}


def _gpus(rows: list[dict[str, str]]) -> Report:
    cards = []
    for at, row in enumerate(rows):
        index = number(row.get("index"))
        cards.append(
            Card(
                at if index is None else index,
                told(row.get("name")),
                told(row.get("uuid")),
                told(row.get("pci.bus_id")),
                told(row.get("pci.device_id")),
                mib(row.get("memory.total")),
                mib(row.get("memory.used")),
                version(row.get("compute_cap")),
                row.get("mig.mode.current"),
                fabric_state=told(row.get("fabric.state")),
                fabric_status=told(row.get("fabric.status")),
            )
        )
    drivers = [version(row.get("driver_version")) for row in rows]
    return Report(vendor="nvidia", driver=next(filter(None, drivers), None), cards=tuple(cards))


def _apps(rows: list[dict[str, str]]) -> Report:
    found = []
    for row in rows:
        pid = number(row.get("pid"))
        if pid is not None:
            found.append(
                Process(
                    pid,
                    bus_id=told(row.get("pci.bus_id")),
                    uuid=told(row.get("uuid")),
                    card_name=told(row.get("name")),
                    name=told(row.get("process_name")),
                    used_mib=mib(row.get("used_gpu_memory")),
                )
            )
    return Report(vendor="nvidia", processes=tuple(found))
