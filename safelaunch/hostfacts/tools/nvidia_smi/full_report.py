"""Parses the output of `nvidia-smi -q`, as text and as XML (`-x`).

Both forms are read into the paths that the XML has, such as `fb_memory_usage/total`.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, NamedTuple, cast

from safelaunch.hostfacts.tools.cells import cell_text, parse_mib, parse_number, parse_version
from safelaunch.hostfacts.tools.nvidia_smi.health import read_health
from safelaunch.hostfacts.tools.report import Card, GpuProcess, MigDevice, Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_KEY = re.compile(r"^(\s*)([^:\n]+?)\s*:\s(.*)$")
_GPU = re.compile(r"^\W*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\s*$")


class _Gpu(NamedTuple):
    bus_id: str | None
    fields: dict[str, str]
    mig_devices: list[dict[str, str]]
    processes: list[dict[str, str]]


def is_text(text: str) -> bool:
    """Whether a text is the output of `nvidia-smi -q`."""
    return "NVSMI LOG" in text or (
        re.search(r"^\s*Attached GPUs\s*:", text, re.MULTILINE) is not None
        and re.search(r"^\s*Product Name\s*:", text, re.MULTILINE) is not None
    )


def is_xml(text: str) -> bool:
    """Whether a text is the output of `nvidia-smi -q -x`."""
    return "<nvidia_smi_log" in text


def read_text(text: str) -> Report:
    """Return the contents of `nvidia-smi -q`."""
    head: list[str] = []
    blocks: list[tuple[str, list[str]]] = [("", head)]
    for line in text.splitlines():
        start = _GPU.match(line)
        if start is not None:
            blocks.append((start[1], []))
        else:
            blocks[-1][1].append(line)
    fields = {path.rpartition("/")[2]: value for path, value in reversed(_rows(head))}
    return _report(fields, [_text_gpu(bus, _rows(lines)) for bus, lines in blocks[1:]])


def _rows(lines: list[str]) -> list[tuple[str, str]]:
    """Return each value with its path: the titles above it, by indentation, and its name."""
    above: list[tuple[int, str]] = []
    rows = []
    for line in filter(str.strip, lines):
        match = _KEY.match(line)
        indent = len(line.expandtabs(8)) - len(line.expandtabs(8).lstrip())
        while above and above[-1][0] >= indent:
            above.pop()
        name = match[2].strip() if match else line.strip().rstrip(":").strip()
        above.append((indent, name.lower().replace(" ", "_")))
        rows.append(("/".join(title for _, title in above), match[3].strip() if match else ""))
    return rows


def _text_gpu(bus: str, rows: list[tuple[str, str]]) -> _Gpu:
    gpu = _Gpu(bus, {}, [], [])
    for path, value in rows:
        title, _, below = path.partition("/")
        name = path.rpartition("/")[2]
        if path == "mig_device":
            gpu.mig_devices.append({})
        elif title == "mig_device" and gpu.mig_devices:
            gpu.mig_devices[-1].setdefault(below, value)
        elif title == "processes" and name == "process_id":
            gpu.processes.append({"pid": value})
        elif title == "processes" and gpu.processes and not name.endswith("_instance_id"):
            gpu.processes[-1].setdefault(name, value)  # the instances are above the process id
        else:
            gpu.fields.setdefault(path, value)
    return gpu


def read_xml(text: str) -> Report:
    """Return the contents of `nvidia-smi -q -x`; of truncated output, the complete GPUs."""
    starts = [at for at in (text.find("<?xml"), text.find("<nvidia_smi_log")) if at >= 0]
    parser: ET.XMLPullParser[ET.Element] = ET.XMLPullParser(("start", "end"))
    head: dict[str, str] = {}
    gpus: list[_Gpu] = []
    depth = 0
    try:
        parser.feed(text[min(starts) :])
        events = cast("Iterator[tuple[str, ET.Element]]", parser.read_events())
        for event, element in events:
            depth += 1 if event == "start" else -1
            if event == "end" and depth == 1:
                head[str(element.tag)] = (element.text or "").strip()
                if element.tag == "gpu":
                    slices = map(_flatten, element.findall("mig_devices/mig_device"))
                    processes = map(_flatten, element.findall("processes/process_info"))
                    gpus.append(_Gpu(element.get("id"), _flatten(element), [*slices], [*processes]))
    except ET.ParseError:
        pass
    return _report(head, gpus)


def _flatten(element: ET.Element, prefix: str = "") -> dict[str, str]:
    """Return {path: text} of what is in an element, the first of each path."""
    fields: dict[str, str] = {}
    for child in element:
        path = f"{prefix}{child.tag}"
        for below, text in {path: child.text or "", **_flatten(child, f"{path}/")}.items():
            fields.setdefault(below, text.strip())
    return fields


def _report(head: dict[str, str], gpus: Sequence[_Gpu]) -> Report:
    return Report(
        vendor="nvidia",
        driver=parse_version(head.get("kmd_version")) or parse_version(head.get("driver_version")),
        cuda=parse_version(head.get("cuda_umd_version")) or parse_version(head.get("cuda_version")),
        attached=parse_number(head.get("attached_gpus")),
        cards=tuple(_card(index, gpu) for index, gpu in enumerate(gpus)),
        health=tuple(read_health(index, gpu.fields) for index, gpu in enumerate(gpus)),
        slices=tuple(
            MigDevice(
                index,
                parse_number(device.get("index")),
                gpu_instance=parse_number(device.get("gpu_instance_id")),
                compute_instance=parse_number(device.get("compute_instance_id")),
                memory_mib=parse_mib(device.get("fb_memory_usage/total")),
            )
            for index, gpu in enumerate(gpus)
            for device in gpu.mig_devices
        ),
        processes=tuple(
            GpuProcess(
                int(process["pid"]),
                index,
                gpu.bus_id,
                cell_text(gpu.fields.get("uuid")),
                name=cell_text(process.get("process_name") or process.get("name")),
                kind=cell_text(process.get("type")),
                used_mib=parse_mib(process.get("used_memory") or process.get("used_gpu_memory")),
                gpu_instance=parse_number(process.get("gpu_instance_id")),
            )
            for index, gpu in enumerate(gpus)
            for process in gpu.processes
            if parse_number(process.get("pid")) is not None
        ),
    )


def _card(index: int, gpu: _Gpu) -> Card:
    fields = gpu.fields
    return Card(
        index,
        cell_text(fields.get("product_name")),
        cell_text(fields.get("uuid") or fields.get("gpu_uuid")),
        gpu.bus_id,
        memory_mib=parse_mib(fields.get("fb_memory_usage/total")),
        used_mib=parse_mib(fields.get("fb_memory_usage/used")),
        mig_mode=fields.get("mig_mode/current_mig", fields.get("mig_mode/current")),
        fabric_state=cell_text(fields.get("fabric/state")),
        fabric_status=cell_text(fields.get("fabric/status")),
    )
