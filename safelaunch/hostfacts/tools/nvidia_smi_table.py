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
_TITLES = (("mig", "MIG devices:"), ("process", "Processes:"))
_WARNING = re.compile(r"^\s*WARNING:\s*(.+?)\s*$", re.MULTILINE)
_MIN_BARS = 4  # vertical bars in a row of the part about cards


def is_table(text: str) -> bool:
    """Whether a text contains the table of nvidia-smi, or the end of it."""
    return (_HEADER.search(text) is not None and "|" in text) or (
        "| Processes:" in text or re.search(r"\|\s*GPU\s+Name\b", text) is not None
    )


def read(text: str) -> Report:
    """Return the contents of the table; parts that were cut off are None."""
    parts = _sections(text)
    cards = _cards(parts["card"])
    slices = tuple(filter(None, map(_slice, parts["mig"])))
    processes = _processes(parts["process"]) if parts["process"] else None
    return Report(
        vendor="nvidia",
        tool=_first_group(_HEADER, text),
        driver=parse_version(_first_group(_DRIVER, text)),
        cuda=parse_version(_first_group(_CUDA, text)),
        cards=tuple(cards) if cards else None,
        slices=slices,
        processes=processes,
        warnings=tuple(_WARNING.findall(text)),
    )


def _first_group(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1] if match else None


def _sections(text: str) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {"card": [], "mig": [], "process": []}
    current = "card"
    for line in text.splitlines():
        current = next((name for name, title in _TITLES if title in line), current)
        if _HEADER.search(line) and parts["process"]:
            break  # a second table follows: `-l`, or two captures in one text
        parts[current].append(line)
    return parts


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
        elif mode is not None and memory is None and line.count("|") >= _MIN_BARS:
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
        match = _PROCESS.search(line)
        if match is not None:
            process = GpuProcess(
                int(match["pid"]),
                int(match["card"]),
                name=match["name"].strip() or None,
                kind=match["kind"],
                used_mib=parse_number(match["used"]),
                gpu_instance=parse_number(match["gi"]),
            )
            processes.append(process)
            continue
        old = _OLD_PROCESS.search(line)
        if old is not None:
            used = parse_number(old["used"])
            processes.append(
                GpuProcess(int(old["pid"]), int(old["card"]), name=old["name"], used_mib=used)
            )
    return tuple(processes)
