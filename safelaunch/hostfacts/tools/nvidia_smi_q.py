"""Parses the output of `nvidia-smi -q`, as text and as XML (`-x`)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from safelaunch.hostfacts.tools.cells import cell_text, parse_mib, parse_number, parse_version
from safelaunch.hostfacts.tools.report import Card, GpuProcess, MigDevice, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_KEY = re.compile(r"^(\s*)([^:\n]+?)\s*:\s(.*)$")
_GPU = re.compile(r"^\W*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\s*$")
_XML_NAMES = {
    "gpu_uuid": "uuid",
    "mig_mode/current": "mig_mode/current_mig",
    "process_id": "pid",
    "name": "process_name",
    "used_gpu_memory": "used_memory",
}


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
    cards, slices = [], []
    processes: list[GpuProcess] = []
    for index, (bus, lines) in enumerate(blocks[1:]):
        rows = _rows(lines)
        values = {_xml_name(row.path): row.value for row in reversed(rows)}  # the first one counts
        cards.append(_card(index, bus, values.get))
        slices += [_slice(index, g.get) for g in _groups(rows, "MIG Device", "MIG Device", 1)]
        groups = _groups(rows, "Processes", "Process ID", -1)
        processes += filter(None, (_process(index, bus, None, group.get) for group in groups))
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


def _xml_name(path: Sequence[str]) -> str:
    """Return the name that the XML has for a field of the text."""
    name = "/".join(path).lower().replace(" ", "_")
    return _XML_NAMES.get(name, name)


def _groups(rows: list[_Field], title: str, first: str, start: int) -> list[dict[str, str]]:
    """Return the fields of each item below a title; `first` begins an item."""
    groups: list[dict[str, str]] = []
    for row in rows:
        if row.path[0] == title and row.path[-1] == first:
            groups.append({})
        if row.path[0] == title and groups:
            groups[-1].setdefault(_xml_name(row.path[start:]), row.value)
    return groups


# -- both: `get` returns a field by its name in the XML --------------------------------------------


def _card(index: int, bus: str | None, get: Callable[[str], str | None]) -> Card:
    return Card(
        index,
        cell_text(get("product_name")),
        cell_text(get("uuid")),
        bus,
        memory_mib=parse_mib(get("fb_memory_usage/total")),
        used_mib=parse_mib(get("fb_memory_usage/used")),
        mig_mode=get("mig_mode/current_mig"),
        fabric_state=cell_text(get("fabric/state")),
        fabric_status=cell_text(get("fabric/status")),
    )


def _slice(card: int, get: Callable[[str], str | None]) -> MigDevice:
    return MigDevice(
        card,
        parse_number(get("index")),
        gpu_instance=parse_number(get("gpu_instance_id")),
        compute_instance=parse_number(get("compute_instance_id")),
        memory_mib=parse_mib(get("fb_memory_usage/total")),
    )


def _process(
    card: int, bus: str | None, uuid: str | None, get: Callable[[str], str | None]
) -> GpuProcess | None:
    pid = parse_number(get("pid"))
    return (
        None
        if pid is None
        else GpuProcess(
            pid,
            card,
            bus,
            uuid,
            name=cell_text(get("process_name")),
            kind=cell_text(get("type")),
            used_mib=parse_mib(get("used_memory")),
            gpu_instance=parse_number(get("gpu_instance_id")),
        )
    )


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
    slices, processes = [], []
    for index, gpu in enumerate(gpus):
        devices = gpu.findall("mig_devices/mig_device")
        slices += [_slice(index, partial(_text, device)) for device in devices]
        bus, uuid = gpu.get("id"), cell_text(_text(gpu, "uuid"))
        elements = gpu.findall("processes/process_info")
        processes += [_process(index, bus, uuid, partial(_text, each)) for each in elements]
    return Report(
        vendor="nvidia",
        driver=parse_version(head.get("kmd_version")) or parse_version(head.get("driver_version")),
        cuda=parse_version(head.get("cuda_umd_version")) or parse_version(head.get("cuda_version")),
        attached=parse_number(head.get("attached_gpus")),
        cards=tuple(_card(n, gpu.get("id"), partial(_text, gpu)) for n, gpu in enumerate(gpus)),
        slices=tuple(slices),
        processes=tuple(filter(None, processes)),
    )


def _text(element: ET.Element, path: str) -> str | None:
    child = element.find(path)
    return None if child is None else (child.text or "").strip()
