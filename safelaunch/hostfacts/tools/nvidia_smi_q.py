"""`nvidia-smi -q`, as text and as XML (`-x`)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, NamedTuple, cast

from safelaunch.hostfacts.tools.cells import mib, number, told, version
from safelaunch.hostfacts.tools.report import Card, Mig, Process, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEY = re.compile(r"^(\s*)([^:\n]+?)\s*:\s(.*)$")
_GPU = re.compile(r"^\W*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\s*$")


# -- text ------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    path: tuple[str, ...]
    value: str


def is_text(text: str) -> bool:
    """Whether a text is that of `nvidia-smi -q`."""
    return "NVSMI LOG" in text or (
        re.search(r"^\s*Attached GPUs\s*:", text, re.MULTILINE) is not None
        and re.search(r"^\s*Product Name\s*:", text, re.MULTILINE) is not None
    )


def read_text(text: str) -> Report:
    """Return what `nvidia-smi -q` says."""
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
        driver=version(head.get("KMD Version")) or version(head.get("Driver Version")),
        cuda=version(head.get("CUDA UMD Version")) or version(head.get("CUDA Version")),
        attached=number(head.get("Attached GPUs")),
        cards=tuple(cards),
        slices=tuple(slices),
        processes=tuple(processes),
    )


def _fields(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        match = _KEY.match(line)
        if match is not None:
            found.setdefault(match[2].strip(), match[3].strip())
    return found


def _rows(lines: list[str]) -> list[_Line]:
    """Return each value with the titles above it, as the indentation says."""
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
        rows.append(_Line(tuple(title for _, title in above), match[3].strip() if match else ""))
    return rows


def _card(index: int, bus: str, rows: list[_Line]) -> Card:
    values: dict[tuple[str, ...], str] = {}
    for row in rows:
        values.setdefault(row.path, row.value)
    return Card(
        index,
        told(values.get(("Product Name",))),
        told(values.get(("GPU UUID",))),
        bus,
        memory_mib=mib(values.get(("FB Memory Usage", "Total"))),
        used_mib=mib(values.get(("FB Memory Usage", "Used"))),
        mig_mode=values.get(("MIG Mode", "Current")),
        fabric_state=told(values.get(("Fabric", "State"))),
        fabric_status=told(values.get(("Fabric", "Status"))),
    )


def _slices(card: int, rows: list[_Line]) -> list[Mig]:
    found: list[dict[str, str]] = []
    for row in rows:
        if row.path[0] != "MIG Device":
            continue
        if row.path == ("MIG Device",):
            found.append({})
        elif found:
            found[-1].setdefault("/".join(row.path[1:]), row.value)
    return [
        Mig(
            card,
            number(one.get("Index")),
            gpu_instance=number(one.get("GPU Instance ID")),
            compute_instance=number(one.get("Compute Instance ID")),
            memory_mib=mib(one.get("FB Memory Usage/Total")),
        )
        for one in found
    ]


def _processes(card: int, bus: str, rows: list[_Line]) -> list[Process]:
    found: list[dict[str, str]] = []
    for row in rows:
        if row.path[0] != "Processes":
            continue
        if row.path[-1] == "Process ID":
            found.append({"pid": row.value})
        elif found:
            found[-1].setdefault(row.path[-1], row.value)
    return [
        Process(
            int(one["pid"]),
            card,
            bus,
            name=told(one.get("Name")),
            kind=told(one.get("Type")),
            used_mib=mib(one.get("Used GPU Memory")),
        )
        for one in found
        if number(one["pid"]) is not None
    ]


# -- XML -------------------------------------------------------------------------------------------


def is_xml(text: str) -> bool:
    """Whether a text is that of `nvidia-smi -q -x`."""
    return "<nvidia_smi_log" in text


def read_xml(text: str) -> Report:
    """Return what `nvidia-smi -q -x` says; of a text that was cut, the cards before the cut."""
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
        driver=version(head.get("kmd_version")) or version(head.get("driver_version")),
        cuda=version(head.get("cuda_umd_version")) or version(head.get("cuda_version")),
        attached=number(head.get("attached_gpus")),
        cards=cards,
        slices=tuple(one for index, gpu in enumerate(gpus) for one in _xml_slices(index, gpu)),
        processes=tuple(one for index, gpu in enumerate(gpus) for one in _xml_apps(index, gpu)),
    )


def _text(element: ET.Element, path: str) -> str | None:
    found = element.find(path)
    return None if found is None else (found.text or "").strip()


def _xml_card(index: int, gpu: ET.Element) -> Card:
    return Card(
        index,
        told(_text(gpu, "product_name")),
        told(_text(gpu, "uuid")),
        gpu.get("id"),
        memory_mib=mib(_text(gpu, "fb_memory_usage/total")),
        used_mib=mib(_text(gpu, "fb_memory_usage/used")),
        mig_mode=_text(gpu, "mig_mode/current_mig"),
        fabric_state=told(_text(gpu, "fabric/state")),
        fabric_status=told(_text(gpu, "fabric/status")),
    )


def _xml_slices(card: int, gpu: ET.Element) -> list[Mig]:
    return [
        Mig(
            card,
            number(_text(one, "index")),
            gpu_instance=number(_text(one, "gpu_instance_id")),
            compute_instance=number(_text(one, "compute_instance_id")),
            memory_mib=mib(_text(one, "fb_memory_usage/total")),
        )
        for one in gpu.findall("mig_devices/mig_device")
    ]


def _xml_apps(card: int, gpu: ET.Element) -> list[Process]:
    found = []
    for one in gpu.findall("processes/process_info"):
        pid = number(_text(one, "pid"))
        if pid is not None:
            found.append(
                Process(
                    pid,
                    card,
                    gpu.get("id"),
                    told(_text(gpu, "uuid")),
                    name=told(_text(one, "process_name")),
                    kind=told(_text(one, "type")),
                    used_mib=mib(_text(one, "used_memory")),
                    gpu_instance=number(_text(one, "gpu_instance_id")),
                )
            )
    return found
