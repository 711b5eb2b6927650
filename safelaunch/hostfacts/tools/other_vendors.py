"""Parses the tools of other vendors: rocm-smi, amd-smi, npu-smi, mx-smi."""

from __future__ import annotations

import re
from itertools import zip_longest

from safelaunch.hostfacts.tools.cells import cell_text, parse_number
from safelaunch.hostfacts.tools.report import Card, Report
from safelaunch.hostfacts.tools.topology_matrix import read_matrix

_AMD = re.compile(
    r"ROCm System Management Interface|\bROCm SMI\b|\bAMD-SMI\b|^GPU\[\d+\]|^GPU: \d+\n\s+[A-Z_]+:",
    re.MULTILINE,
)
_CARD_FIELD = re.compile(r"^\s*GPU\[(\d+)\]\s*:\s*(.+?)\s*:\s*(.*?)\s*$", re.MULTILINE)
_NAME_FIELDS = ("card series", "card model", "device name")
_AMD_CARD = re.compile(
    r"^\|\s*[0-9A-Fa-f]{4}:[0-9A-Fa-f:.]+\s+(?P<name>\S.*?)\s*\|.*\n"
    r"\|\s*(?P<index>\d+)\s.*?(?:\d+/(?P<memory>\d+) MB)?\s*\|\s*$",
    re.MULTILINE,
)
_NPU_CARD = re.compile(
    r"^\|\s*(\d+)\s+((?:Ascend ?)?\d{3}[A-Z]?\w*(?:-\d)?|\w*\d\w*)\s*\|", re.ASCII
)


def vendor_of(text: str) -> str | None:
    """Return the vendor whose tool printed a text; None for NVIDIA and unknown ones."""
    if _AMD.search(text):
        return "amd"
    if re.search(r"\bnpu-smi\b|^\s*NPU\d|\bHCCS\b", text, re.MULTILINE):
        return "huawei"
    if re.search(r"MetaX|MetaXLink|\bmx-smi\b", text):
        return "metax"
    return None


def read(text: str, vendor: str) -> Report:
    """Return the contents of the output of another vendor's tool."""
    # rocm-smi prints tables of weights and hops before the table of links
    matrix = read_matrix(text[max(0, text.find("Link Type between")) :])
    names = {"rocm": "ROCm version:", "npu_smi": "npu-smi ", "driver": "amdgpu version:"}
    matches = {name: _first(rf"{label}\s*(\d[\w.]*)", text) for name, label in names.items()}
    versions = {name: version for name, version in matches.items() if version}
    cards = {"amd": _amd, "huawei": _huawei}.get(vendor, lambda _: [])(text)
    if not cards and matrix is not None:
        cards = [Card(index) for index in range(matrix.size)]
    return Report(
        vendor=vendor,
        driver=versions.pop("driver", None),
        cards=tuple(cards) or None,
        matrix=matrix,
        versions=versions,
    )


def _amd(text: str) -> list[Card]:
    cards = [
        Card(int(index), cell_text(name), memory_mib=parse_number(memory))
        for name, index, memory in _AMD_CARD.findall(text)
    ]
    return cards or _amd_fields(text) or _amd_blocks(text) or _rocm_rows(text)


def _amd_blocks(text: str) -> list[Card]:
    """Return the GPUs of `amd-smi list` and `amd-smi static`."""
    cards = []
    for block in re.split(r"^(?=GPU: \d)", text, flags=re.MULTILINE)[1:]:
        index = _first(r"GPU: (\d+)", block)
        name = cell_text(_first(r"MARKET_NAME:\s*(.+)", block))
        memory = _first(r"\bVRAM:(?:\n\s+(?!SIZE).*)*\n\s+SIZE:\s*(\d+) MB", block)
        bus = _first(r"\bBDF:\s*(\S+)", block)
        if index is not None:
            cards.append(Card(int(index), name, bus_id=bus, memory_mib=parse_number(memory)))
    return cards


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match[1] if match else None


def _amd_fields(text: str) -> list[Card]:
    """Return the GPUs of `rocm-smi --showproductname`, `--showmeminfo vram` and the like."""
    fields: dict[int, dict[str, str]] = {}
    for index, key, value in _CARD_FIELD.findall(text):
        fields.setdefault(int(index), {}).setdefault(key.lower(), value)
    return [
        Card(
            index,
            next(filter(None, (cell_text(values.get(key)) for key in _NAME_FIELDS)), None),
            device_id=device if re.fullmatch(r"0x[0-9a-fA-F]{4}", device) else None,
            memory_mib=int(memory) >> 20 if memory.isdigit() else None,
        )
        for index, values in sorted(fields.items())
        for device in (values.get("device id") or values.get("gpu id") or "",)
        for memory in (values.get("vram total memory (b)", ""),)
    ]


def _rocm_rows(text: str) -> list[Card]:
    """Return the GPUs of rocm-smi's concise table, with names where a second row has them."""
    head = re.search(r"^\s*(?:GPU|Device)\s+.*$", text, re.MULTILINE)
    if head is None or "Perf" not in head[0]:
        return []
    cards = []
    has_both = re.search(r"Pwr|Power", head[0].replace("PwrCap", "")) is not None
    lines = text[head.end() :].splitlines()
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        match = re.match(r"\s*(\d+)\s+\S", line)
        if match is None:
            continue
        name = _first(r"^\s{4,}([A-Za-z].*)", following)
        device = _first(r"\b(0x[0-9a-fA-F]{4})\b", line)
        watts = re.findall(r"(\d+(?:\.\d+)?)W(?=\s)", line)
        is_capped = "PwrCap" in head[0] and len(watts) > has_both
        power_cap = float(watts[-1]) if is_capped else None
        cards.append(Card(int(match[1]), name, device_id=device, power_cap_w=power_cap))
    return cards


def _huawei(text: str) -> list[Card]:
    """Return the devices of `npu-smi info`: two rows each, memory (HBM) in the second."""
    cards: list[Card] = []
    name: str | None = None
    for line in text.partition("Process")[0].splitlines():  # the rest is the table of processes
        match = _NPU_CARD.match(line)
        bus = re.search(r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f.]*", line)
        if match is not None and bus is None:
            name = match[2]
        elif name is not None and bus is not None:
            sizes = re.findall(r"(\d+)\s*/\s*(\d+)", line)  # used and whole, of DDR and of HBM
            used, memory = max(
                ((int(u), int(m)) for u, m in sizes), key=_whole, default=(None, None)
            )
            cards.append(Card(len(cards), name, bus_id=bus[0], memory_mib=memory, used_mib=used))
    return cards


def _whole(sizes: tuple[int, int]) -> int:
    return sizes[1]
