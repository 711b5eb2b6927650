"""Parses the table of `nvidia-smi` without options, of drivers since 352."""

from __future__ import annotations

import re
from dataclasses import replace

from safelaunch.hostfacts.tools.cells import cell_text, parse_number, parse_version
from safelaunch.hostfacts.tools.report import Card, GpuProcess, MigDevice, Report

_HEADER = re.compile(r"NVIDIA-SMI\s+(?P<tool>\d[\d.]*)")
_DRIVER = re.compile(r"(?:Driver|KMD) Version:\s*(\S+)")
_CUDA = re.compile(r"CUDA (?:UMD )?Version:\s*(\S+)")
_BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
_CARD = re.compile(
    rf"\|\s*(?P<index>\d{{1,3}})\s+(?P<name>\S.*?)"
    rf"(?:\s+(?:On|Off|N/A|WDDM|TCC|MCDM|WDM|ERR!|Unknown))?\s*\|\s*(?P<bus>{_BUS})\b"
)
_MEMORY = re.compile(r"(\d+)\s*MiB\s*/\s*(\d+)\s*MiB")
_MODE = re.compile(r"\|\s*(Enabled\*?|Disabled\*?|N/A)\s*\|\s*$")
_SLICE = re.compile(r"\|\s*(\d+)\s+(\d+|N/A)\s+(\d+|N/A)\s+(\d+)\s*\|(.*)$")
_PROCESS = re.compile(
    r"\|\s*(?P<card>\d{1,3})\s+(?:(?P<gi>\d+|N/A)\s+(?P<ci>\d+|N/A)\s+)?(?P<pid>\d+)\s+"
    r"(?P<kind>[CGM](?:\+[CGM])*)\s+(?P<name>.*?)\s*(?:(?P<used>\d+)\s*MiB|N/A)?\s*\|?\s*$"
)
_OLD_PROCESS = re.compile(
    r"\|\s*(?P<card>\d{1,3})\s+(?P<pid>\d{2,})\s+(?P<name>\S.*?)\s+(?P<used>\d+)\s*MiB\s*\|?\s*$"
)
_TITLES = ("MIG devices:", "Processes:")
_WARNING = re.compile(r"^\s*WARNING:\s*(.+?)\s*$", re.MULTILINE)


def is_table(text: str) -> bool:
    """Whether a text contains the table of nvidia-smi, or the end of it."""
    return (_HEADER.search(text) is not None and "|" in text) or (
        "| Processes:" in text or re.search(r"\|\s*GPU\s+Name\b", text) is not None
    )


def read(text: str) -> Report:
    """Return the contents of the table; parts that were cut off are None."""
    gpu_lines: list[str] = []
    sections: dict[str, list[str]] = {title: [] for title in _TITLES}
    current = gpu_lines
    for line in text.splitlines():
        for title, lines in sections.items():
            current = lines if title in line else current
        if _HEADER.search(line) and sections["Processes:"]:
            break  # a second table follows: `-l`, or two captures in one text
        current.append(line)
    tool, driver, cuda = (pattern.search(text) for pattern in (_HEADER, _DRIVER, _CUDA))
    return Report(
        vendor="nvidia",
        tool=tool[1] if tool else None,
        driver=parse_version(driver[1]) if driver else None,
        cuda=parse_version(cuda[1]) if cuda else None,
        cards=tuple(_cards(gpu_lines)) or None,
        slices=tuple(filter(None, map(_slice, sections["MIG devices:"]))),
        processes=_processes(sections["Processes:"]) if sections["Processes:"] else None,
        warnings=tuple(_WARNING.findall(text)),
    )


def _cards(lines: list[str]) -> list[Card]:
    cards: list[Card] = []
    for line in lines:
        match = _CARD.search(line)
        if match is not None:
            name = cell_text(match["name"])
            cards.append(Card(int(match["index"]), name, bus_id=match["bus"]))
            continue
        if not cards:
            continue
        memory, mode = _MEMORY.search(line), _MODE.search(line)
        if memory is not None and cards[-1].memory_mib is None:
            used, size = int(memory[1]), int(memory[2])
            cards[-1] = replace(cards[-1], used_mib=used, memory_mib=size)
        elif mode is not None and memory is None and line.count("|") >= 4:  # noqa: PLR2004
            cards[-1] = replace(cards[-1], mig_mode=mode[1].rstrip("*"))
    return cards


def _slice(line: str) -> MigDevice | None:
    match = _SLICE.search(line)
    if match is None:
        return None
    memory = _MEMORY.search(match[5])
    return MigDevice(
        int(match[1]),
        int(match[4]),
        gpu_instance=parse_number(match[2]),
        compute_instance=parse_number(match[3]),
        memory_mib=int(memory[2]) if memory else None,
    )


def _processes(lines: list[str]) -> tuple[GpuProcess, ...]:
    processes = []
    for line in lines:
        match = _PROCESS.search(line) or _OLD_PROCESS.search(line)
        if match is not None:
            fields = match.groupdict()
            process = GpuProcess(
                int(match["pid"]),
                int(match["card"]),
                name=match["name"].strip() or None,
                kind=fields.get("kind"),
                used_mib=parse_number(match["used"]),
                gpu_instance=parse_number(fields.get("gi")),
            )
            processes.append(process)
    return tuple(processes)
