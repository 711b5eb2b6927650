"""The table that plain `nvidia-smi` prints, of drivers from 352 on."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from safelaunch.hostfacts.tools.cells import number, told, version
from safelaunch.hostfacts.tools.report import Card, Mig, Process, Report

_HEAD = re.compile(r"NVIDIA-SMI\s+(?P<tool>\d[\d.]*)")
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


class _Sections(NamedTuple):
    card: list[str]
    mig: list[str]
    process: list[str]


def is_table(text: str) -> bool:
    """Whether a text has the frame of nvidia-smi's table, or the end of one."""
    return (_HEAD.search(text) is not None and "|" in text) or (
        "| Processes:" in text or re.search(r"\|\s*GPU\s+Name\b", text) is not None
    )


def read(text: str) -> Report:
    """Return what the table says; a part that was cut off is None."""
    parts = _sections(text)
    cards = _cards(parts.card)
    slices = tuple(filter(None, map(_slice, parts.mig)))
    processes = _processes(parts.process) if parts.process else None
    # without rows of cards, instances of processes still tell that cards are cut
    return Report(
        vendor="nvidia",
        tool=_one(_HEAD, text),
        driver=version(_one(_DRIVER, text)),
        cuda=version(_one(_CUDA, text)),
        cards=tuple(cards) if cards else None,
        slices=slices,
        processes=processes,
        warnings=tuple(_WARNING.findall(text)),
    )


def _one(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1] if match else None


def _sections(text: str) -> _Sections:
    parts = _Sections([], [], [])
    now = parts.card
    for line in text.splitlines():
        for name, title in _TITLES:
            if title in line:
                now = getattr(parts, name)
        if _HEAD.search(line) and parts.process:
            break  # another table follows: `-l`, or two captures in one text
        now.append(line)
    return parts


def _cards(lines: list[str]) -> list[Card]:
    cards: list[Card] = []
    for line in lines:
        match = _CARD.search(line)
        if match is not None:
            name = told(match["name"])
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


def _slice(line: str) -> Mig | None:
    match = _SLICE.search(line)
    if match is None:
        return None
    memory = _MEMORY.search(match[5])
    return Mig(
        int(match[1]),
        int(match[4]),
        gpu_instance=number(match[2]),
        compute_instance=number(match[3]),
        memory_mib=int(memory[2]) if memory else None,
    )


def _processes(lines: list[str]) -> tuple[Process, ...]:
    found = []
    for line in lines:
        match = _PROCESS.search(line)
        if match is not None:
            made = Process(
                int(match["pid"]),
                int(match["card"]),
                name=match["name"].strip() or None,
                kind=match["kind"],
                used_mib=number(match["used"]),
                gpu_instance=number(match["gi"]),
            )
            found.append(made)
            continue
        old = _OLD_PROCESS.search(line)
        if old is not None:
            used = number(old["used"])
            found.append(
                Process(int(old["pid"]), int(old["card"]), name=old["name"], used_mib=used)
            )
    return tuple(found)
