"""Parses the output of `nvidia-smi --query-gpu=... --format=csv` and `--query-compute-apps`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.hostfacts.tools.cells import cell_text, parse_mib, parse_number, parse_version
from safelaunch.hostfacts.tools.report import Card, GpuProcess, Report

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIELDS = {"index", "name", "uuid", "gpu_name", "gpu_uuid", "pid", "process_name", "timestamp",
          "count", "driver_version", "memory.total", "memory.used", "pci.bus_id", "compute_cap",
          "gpu_bus_id", "used_gpu_memory", "used_memory", "mig.mode.current", "gpu_uid",
          "power.draw", "temperature.gpu", "utilization.gpu", "pstate"}  # fmt: skip
_QUERY_OPTION = re.compile(r"--query-(gpu|compute-apps)=(\S+)")
_ALIASES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id", "gpu_uid": "uuid",
            "used_memory": "used_gpu_memory"}  # fmt: skip
_BRAND = re.compile(r"\b(NVIDIA|GeForce|Tesla|Quadro|RTX|GTX|TITAN|GRID)\b")


def read(text: str, command: str = "") -> Report | None:
    """Return the contents of the rows; None if a text has no such rows."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    header_index = next((n for n, line in enumerate(lines) if _is_header(line)), None)
    if header_index is not None:
        names = [_name(cell) for cell in lines[header_index].split(",")]
        rows = lines[header_index + 1 :]
    else:
        query_option = _QUERY_OPTION.search(command)
        names = [_name(cell) for cell in query_option[2].split(",")] if query_option else []
        rows = lines
    cells = [_cells(row, names) for row in rows]
    if names and "..." not in names and "<every" not in names:
        complete = [dict(zip(names, row, strict=True)) for row in cells if len(row) == len(names)]
    elif header_index is None and "--query-gpu" in command:
        complete = [fields for fields in map(_guess_fields, cells) if fields]
    else:
        return None
    if not complete and header_index is None:
        return None
    return _apps(complete) if "pid" in names else _gpus(complete)


def _is_header(line: str) -> bool:
    names = [_name(cell) for cell in line.split(",")]
    return len(names) > 1 and sum(name in _FIELDS for name in names) * 2 >= min(len(names), 4)


def _name(cell: str) -> str:
    name = re.sub(r"\s*\[[^\]]*\]\s*$", "", cell.strip()).lower()
    return _ALIASES.get(name, name)


def _cells(row: str, names: Sequence[str]) -> list[str]:
    cells = [cell.strip() for cell in row.split(",")]
    extra = len(cells) - len(names)
    if extra > 0 and "process_name" in names:  # a command may contain commas
        at = names.index("process_name")
        cells[at : at + extra + 1] = [", ".join(cells[at : at + extra + 1])]
    return cells


def _guess_fields(cells: list[str]) -> dict[str, str]:
    """Return the fields of a row without a header that are unambiguous."""
    fields: dict[str, str] = {}
    if len(cells) < 2:  # noqa: PLR2004
        return fields
    if parse_number(cells[0]) is not None:
        fields["index"] = cells[0]
    for cell in cells:
        if _BRAND.search(cell):
            fields.setdefault("name", cell)
        elif re.fullmatch(r"\d{3}\.\d{2,3}(\.\d{2})?", cell):
            fields["driver_version"] = cell
        elif re.fullmatch(r"GPU-[0-9a-f-]+", cell):
            fields["uuid"] = cell
    return fields if "name" in fields else {}


def _gpus(rows: list[dict[str, str]]) -> Report:
    cards = []
    for position, row in enumerate(rows):
        index = parse_number(row.get("index"))
        cards.append(
            Card(
                position if index is None else index,
                cell_text(row.get("name")),
                cell_text(row.get("uuid")),
                cell_text(row.get("pci.bus_id")),
                cell_text(row.get("pci.device_id")),
                parse_mib(row.get("memory.total")),
                parse_mib(row.get("memory.used")),
                parse_version(row.get("compute_cap")),
                row.get("mig.mode.current"),
                fabric_state=cell_text(row.get("fabric.state")),
                fabric_status=cell_text(row.get("fabric.status")),
            )
        )
    drivers = [parse_version(row.get("driver_version")) for row in rows]
    return Report(vendor="nvidia", driver=next(filter(None, drivers), None), cards=tuple(cards))


def _apps(rows: list[dict[str, str]]) -> Report:
    processes = []
    for row in rows:
        pid = parse_number(row.get("pid"))
        if pid is not None:
            processes.append(
                GpuProcess(
                    pid,
                    bus_id=cell_text(row.get("pci.bus_id")),
                    uuid=cell_text(row.get("uuid")),
                    card_name=cell_text(row.get("name")),
                    name=cell_text(row.get("process_name")),
                    used_mib=parse_mib(row.get("used_gpu_memory")),
                )
            )
    return Report(vendor="nvidia", processes=tuple(processes))
