"""Parses the output of `nvidia-smi -q`, as text and as XML (`-x`)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, NamedTuple, cast

from safelaunch.hostfacts.tools.cells import cell_text, parse_mib, parse_number, parse_version
from safelaunch.hostfacts.tools.report import Card, GpuProcess, MigDevice, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEY = re.compile(r"^(\s*)([^:\n]+?)\s*:\s(.*)$")
_GPU = re.compile(r"^\W*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\s*$")


# -- text ------------------------------------------------------------------------------------------


class _Field(NamedTuple):
    path: tuple[str, ...]
    value: str


def is_text(text: str) -> bool:
    """Whether a text is the output of `nvidia-smi -q`."""
    return "NVSMI LOG" in text or (
        re.search(r"^\s*Attached GPUs\s*:", text, re.MULTILINE) is not None
        and re.search(r"^\s*Product Name\s*:", text, re.MULTILINE) is not None
    )


def read_text(text: str) -> Report:
    """Return the contents of `nvidia-smi -q`."""
    blocks: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        start = _GPU.match(line)
        if start is not None:
            blocks.append((start[1], []))
        else:
            blocks[-1][1].append(line)
    head = _fields(blocks[0][1])
    cards, slices, processes = [], [], []
    for index, (bus, lines) in enumerate(blocks[1:]):
        rows = _rows(lines)
        cards.append(_card(index, bus, rows))
        slices += _slices(index, rows)
        processes += _processes(index, bus, rows)
    return Report(
        vendor="nvidia",
        driver=parse_version(head.get("KMD Version")) or parse_version(head.get("Driver Version")),
        cuda=parse_version(head.get("CUDA UMD Version")) or parse_version(head.get("CUDA Version")),
        attached=parse_number(head.get("Attached GPUs")),
        cards=tuple(cards),
        slices=tuple(slices),
        processes=tuple(processes),
    )


def _fields(lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        match = _KEY.match(line)
        if match is not None:
            fields.setdefault(match[2].strip(), match[3].strip())
    return fields


def _rows(lines: list[str]) -> list[_Field]:
    """Return each value with the titles above it, by indentation."""
    above: list[tuple[int, str]] = []
    rows = []
    for line in lines:
        if not line.strip():
            continue
        match = _KEY.match(line)
        indent = len(line.expandtabs(8)) - len(line.expandtabs(8).lstrip())
        while above and above[-1][0] >= indent:
            above.pop()
        name = match[2].strip() if match else line.strip().rstrip(":").strip()
        above.append((indent, name))
        rows.append(_Field(tuple(title for _, title in above), match[3].strip() if match else ""))
    return rows


def _card(index: int, bus: str, rows: list[_Field]) -> Card:
    values: dict[tuple[str, ...], str] = {}
    for row in rows:
        values.setdefault(row.path, row.value)
    return Card(
        index,
        cell_text(values.get(("Product Name",))),
        cell_text(values.get(("GPU UUID",))),
        bus,
        memory_mib=parse_mib(values.get(("FB Memory Usage", "Total"))),
        used_mib=parse_mib(values.get(("FB Memory Usage", "Used"))),
        mig_mode=values.get(("MIG Mode", "Current")),
        fabric_state=cell_text(values.get(("Fabric", "State"))),
        fabric_status=cell_text(values.get(("Fabric", "Status"))),
    )


def _slices(card: int, rows: list[_Field]) -> list[MigDevice]:
    devices: list[dict[str, str]] = []
    for row in rows:
        if row.path[0] != "MIG Device":
            continue
        if row.path == ("MIG Device",):
            devices.append({})
        elif devices:
            devices[-1].setdefault("/".join(row.path[1:]), row.value)
    return [
        MigDevice(
            card,
            parse_number(device.get("Index")),
            gpu_instance=parse_number(device.get("GPU Instance ID")),
            compute_instance=parse_number(device.get("Compute Instance ID")),
            memory_mib=parse_mib(device.get("FB Memory Usage/Total")),
        )
        for device in devices
    ]


def _processes(card: int, bus: str, rows: list[_Field]) -> list[GpuProcess]:
    processes: list[dict[str, str]] = []
    for row in rows:
        if row.path[0] != "Processes":
            continue
        if row.path[-1] == "Process ID":
            processes.append({"pid": row.value})
        elif processes:
            processes[-1].setdefault(row.path[-1], row.value)
    return [
        GpuProcess(
            int(process["pid"]),
            card,
            bus,
            name=cell_text(process.get("Name")),
            kind=cell_text(process.get("Type")),
            used_mib=parse_mib(process.get("Used GPU Memory")),
        )
        for process in processes
        if parse_number(process["pid"]) is not None
    ]


# -- XML -------------------------------------------------------------------------------------------


def is_xml(text: str) -> bool:
    """Whether a text is the output of `nvidia-smi -q -x`."""
    return "<nvidia_smi_log" in text


def read_xml(text: str) -> Report:
    """Return the contents of `nvidia-smi -q -x`; of truncated output, the complete GPUs."""
    starts = [at for at in (text.find("<?xml"), text.find("<nvidia_smi_log")) if at >= 0]
    parser: ET.XMLPullParser[ET.Element] = ET.XMLPullParser(("start", "end"))
    head: dict[str, str] = {}
    gpus: list[ET.Element] = []
    depth = 0
    try:
        parser.feed(text[min(starts) :])
        events = cast("Iterator[tuple[str, ET.Element]]", parser.read_events())
        for event, element in events:
            depth += 1 if event == "start" else -1
            if event == "end" and depth == 1:
                head[str(element.tag)] = (element.text or "").strip()
                if element.tag == "gpu":
                    gpus.append(element)
    except ET.ParseError:
        pass
    cards = tuple(_xml_card(index, gpu) for index, gpu in enumerate(gpus))
    return Report(
        vendor="nvidia",
        driver=parse_version(head.get("kmd_version")) or parse_version(head.get("driver_version")),
        cuda=parse_version(head.get("cuda_umd_version")) or parse_version(head.get("cuda_version")),
        attached=parse_number(head.get("attached_gpus")),
        cards=cards,
        slices=tuple(item for index, gpu in enumerate(gpus) for item in _xml_slices(index, gpu)),
        processes=tuple(
            item for index, gpu in enumerate(gpus) for item in _xml_processes(index, gpu)
        ),
    )


def _text(element: ET.Element, path: str) -> str | None:
    child = element.find(path)
    return None if child is None else (child.text or "").strip()


def _xml_card(index: int, gpu: ET.Element) -> Card:
    return Card(
        index,
        cell_text(_text(gpu, "product_name")),
        cell_text(_text(gpu, "uuid")),
        gpu.get("id"),
        memory_mib=parse_mib(_text(gpu, "fb_memory_usage/total")),
        used_mib=parse_mib(_text(gpu, "fb_memory_usage/used")),
        mig_mode=_text(gpu, "mig_mode/current_mig"),
        fabric_state=cell_text(_text(gpu, "fabric/state")),
        fabric_status=cell_text(_text(gpu, "fabric/status")),
    )


def _xml_slices(card: int, gpu: ET.Element) -> list[MigDevice]:
    return [
        MigDevice(
            card,
            parse_number(_text(device, "index")),
            gpu_instance=parse_number(_text(device, "gpu_instance_id")),
            compute_instance=parse_number(_text(device, "compute_instance_id")),
            memory_mib=parse_mib(_text(device, "fb_memory_usage/total")),
        )
        for device in gpu.findall("mig_devices/mig_device")
    ]


def _xml_processes(card: int, gpu: ET.Element) -> list[GpuProcess]:
    processes = []
    for process in gpu.findall("processes/process_info"):
        pid = parse_number(_text(process, "pid"))
        if pid is not None:
            processes.append(
                GpuProcess(
                    pid,
                    card,
                    gpu.get("id"),
                    cell_text(_text(gpu, "uuid")),
                    name=cell_text(_text(process, "process_name")),
                    kind=cell_text(_text(process, "type")),
                    used_mib=parse_mib(_text(process, "used_memory")),
                    gpu_instance=parse_number(_text(process, "gpu_instance_id")),
                )
            )
    return processes
